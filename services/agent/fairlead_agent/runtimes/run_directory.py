"""Where a run's files lie: `<base>/<job>.<attempt>.<rank>/{stdout,stderr,hostfile}`; bounded.

Owns the directories of ended runs: the newest `keep` stay for people, older ones are removed in batches. A job's own bounds
(own_bounds.py, in `<base>-kept`) lower those of the node.
"""

# ruff: noqa: PTH208 -- hundreds are removed per second: plain system calls on strings

import asyncio
import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from fairlead_agent.run import RunKey, parse_name
from fairlead_agent.runtimes.kept_output import KEEP_ENDED, Keep, expired, too_much
from fairlead_agent.runtimes.own_bounds import OwnBounds, cut_head
from fairlead_schemas.outputwords import NODE_BOUNDS, OutputBounds

#: Sizes and ages are looked at this often.
LOOK_S = 60.0
#: So many more than `keep` are removed together, off the event loop.
PRUNE_BATCH = 64
#: What every directory holds.
FILES = ["stderr", "stdout"]
#: The rest is removed.
SPARES_MAX = 4 * PRUNE_BATCH

_log = structlog.get_logger()


class RunDirectories:
    """The directories of all runs of a node."""

    def __init__(self, base: Path, keep: int | Keep = KEEP_ENDED, clock: Callable[[], float] = time.time) -> None:
        self.base = base
        self._clock = clock
        self._own = OwnBounds(base.with_name(f"{base.name}-kept"))
        self._base = str(base)
        self._bounds = keep if isinstance(keep, Keep) else Keep(keep)
        self.keep = self._bounds.runs
        self._looked_at = -LOOK_S
        self._ended: deque[str] = deque()
        #: Full paths, each still under its old run's name: after a restart they are old directories again.
        self._spares: deque[str] = deque()
        base.mkdir(parents=True, exist_ok=True)

    def path(self, key: RunKey) -> Path:
        """The directory of a run, whether it exists or not."""
        return self.base / key.name

    def open_only(self, keys: set[RunKey]) -> None:
        """After a restart: every directory but those of `keys` belongs to an ended run, oldest first."""
        names = [p for p in self.base.iterdir() if (key := parse_name(p.name)) is not None and key not in keys]
        self._ended.extend(path.name for path in sorted(names, key=_modified))
        self._own.load({*self._ended, *(key.name for key in keys)})

    def bound(self, key: RunKey, bounds: OutputBounds) -> None:
        """The run is about to start, and its job file has these bounds for its output."""
        if bounds != NODE_BOUNDS:
            self._own.put(key.name, bounds)

    def ended(self, key: RunKey) -> None:
        """The run has ended; its directory may go when it is no longer among the newest."""
        self._ended.append(key.name)
        if len(self._ended) >= self.keep + PRUNE_BATCH:
            old = [self._ended.popleft() for _ in range(len(self._ended) - self.keep)]
            self._own.drop(old)
            asyncio.get_running_loop().run_in_executor(None, self._remove, old)

    async def look(self) -> None:
        """Remove what is too old or too much, where that is bounded; called again and again."""
        bounded = self._bounds.bytes_max or self._bounds.age_s
        now = self._clock()
        if not (bounded or self._own) or 0 <= now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        own = dict(self._own.items())
        names = [name for name in self._ended if bounded or name in own]
        found = await asyncio.to_thread(self._measure, names, own)
        over = expired(found, own, now)
        left = [each for each in found if each[0] not in over]
        over.update(name for name, *_ in left[: too_much(left, self._bounds, now)])
        old = [name for name in self._ended if name in over]  # others may have gone meanwhile
        if not old:
            return
        self._ended = deque(name for name in self._ended if name not in over)
        self._own.drop(old)
        await asyncio.to_thread(lambda: [shutil.rmtree(f"{self._base}/{name}", ignore_errors=True) for name in old])

    def _measure(self, names: Sequence[str], own: Mapping[str, OutputBounds]) -> list[tuple[str, int, float]]:
        """Cut files to their job's size, of runs that have not ended, too; then (name, bytes, end) of `names`."""
        for name, bounds in own.items():
            for file in FILES if bounds.bytes_max else ():
                try:
                    cut_head(f"{self._base}/{name}/{file}", bounds.bytes_max)
                except OSError as error:
                    _log.warning("output beyond its job's size could not be cut", run=name, error=str(error))
        return [(name, *_size_and_end(f"{self._base}/{name}")) for name in names]

    def spare(self) -> str:
        """An old directory with two empty files that a new run may have by renaming it; "" when there is none.
        Making and removing three inodes costs some file systems more than everything else about a short run."""
        return self._spares.popleft() if self._spares else ""

    def _remove(self, names: list[str]) -> None:
        for name in names:
            directory = f"{self._base}/{name}"
            if len(self._spares) < SPARES_MAX and _is_spare(directory):
                self._spares.append(directory)
            else:
                shutil.rmtree(directory, ignore_errors=True)


def _is_spare(directory: str) -> bool:
    """Nothing in it but two empty files, which nobody can write to any more: the kernel grants a write lease
    only on a file that is not open elsewhere. What an old run left behind must not write into a new run's output."""
    try:
        return sorted(os.listdir(directory)) == FILES and all(_is_unused(f"{directory}/{file}") for file in FILES)
    except OSError:
        return False


def _is_unused(path: str) -> bool:
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # let go with the file
        stat = os.fstat(fd)
        return stat.st_size == 0 and stat.st_nlink == 1
    finally:
        os.close(fd)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_and_end(directory: str) -> tuple[int, float]:
    """(bytes on the disk, when something was last written)."""
    size, newest = 0, 0.0
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                found = os.lstat(f"{parent}/{name}")
            except FileNotFoundError:
                continue
            size, newest = size + found.st_blocks * 512, max(newest, found.st_mtime)
    return size, newest or _modified(Path(directory))
