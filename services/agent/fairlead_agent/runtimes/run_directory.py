"""Directories of runs' files: `<base>/<job>.<attempt>.<rank>/{stdout,stderr,hostfile}`; bounded.

This module owns the directories of ended runs: the newest `keep` stay for people, older ones are removed in batches. A
job's own bounds (in `<base>-kept`) lower those of the node.

Bounds that jobs set for their own output (the job file's `output`), kept on disk while a run's directory is there.

`<base>/<job>.<attempt>.<rank>` holds one run's bounds as JSON: what is needed of the job file after the run has ended and the
agent has been restarted. They lie outside the run's directory, which the job can write to. Files are cut by freeing their
head (a hole), so that byte offsets, the cursor of all readers, stay as they are.

Lines of the agent's own in a run's output. The program writes to the same file, so each says whose it is.
"""

import asyncio
import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from fairlead_agent.core.output_retention import KEEP_ENDED, Keep, expired, too_much
from fairlead_agent.core.runs import RunKey, parse_name
from fairlead_agent.runtimes.run_files import WORK, size_of
from fairlead_schemas.jobfile.agent_fields import NODE_BOUNDS, OutputBounds

#: Of fallocate(2): free the blocks, leave the size.
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_log = structlog.get_logger()


class OwnBounds:
    """The bounds of those runs of a node that have any."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._of: dict[str, OutputBounds] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def items(self) -> list[tuple[str, OutputBounds]]:
        """Return (run's name, its bounds) of all of them."""
        return list(self._of.items())

    def get(self, name: str) -> OutputBounds:
        """Return a run's bounds; those of the node (none) where its job file has none."""
        return self._of.get(name, NODE_BOUNDS)

    def put(self, name: str, bounds: OutputBounds) -> None:
        """Keep a run's bounds. Where they cannot be written they hold until the agent restarts."""
        self._of[name] = bounds
        try:
            self._base.mkdir(parents=True, exist_ok=True)
            (self._base / name).write_bytes(msgspec.json.encode(bounds))
        except OSError as error:
            _log.warning("a run's output bounds could not be written", run=name, error=str(error))

    def drop(self, names: Iterable[str]) -> None:
        """Forget runs whose directories are removed."""
        for name in names:
            if self._of.pop(name, None) is not None:
                (self._base / name).unlink(missing_ok=True)

    def load(self, names: Collection[str]) -> None:
        """Read the bounds of these runs after a restart; those of others are removed."""
        if not self._base.is_dir():
            return
        for path in self._base.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)
                continue
            try:
                self._of[path.name] = msgspec.json.decode(path.read_bytes(), type=OutputBounds)
            except (OSError, msgspec.MsgspecError) as error:  # cut off by a crash of the machine
                _log.warning("a run's output bounds cannot be read", run=path.name, error=str(error))


def cut_head(path: str, bytes_max: int) -> None:
    """Free all of a file but its last `bytes_max` bytes, in whole blocks; its offsets and its times stay. A file that is not
    there is left alone, as is one whose file system has no holes. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        stat = os.fstat(fd)
        surplus = stat.st_size - bytes_max
        surplus -= surplus % stat.st_blksize
        if surplus <= 0 or first_data(fd, 0) >= surplus:
            return
        if _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, 0, surplus):
            number = ctypes.get_errno()
            if number != errno.EOPNOTSUPP:
                raise OSError(number, os.strerror(number), path)
            return
        os.utime(fd, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the newest of them is the end of the run
    finally:
        os.close(fd)


def first_data(fd: int, offset: int) -> int:
    """Return the first offset from `offset` on that is not in a hole; `offset` itself where nothing follows."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EINVAL):  # at the end; or a file system that knows no holes
            return offset
        raise


# ruff: noqa: PTH208 -- hundreds are removed per second: plain system calls on strings


#: Sizes and ages are looked at this often.
LOOK_S = 60.0
#: So many more than `keep` are removed together.
PRUNE_BATCH = 64
#: What every directory holds.
FILES = ["stderr", "stdout"]
#: The rest is removed.
SPARES_MAX = 4 * PRUNE_BATCH


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
        #: {ended run: bytes of its own directory}
        self._work_sizes: dict[str, int] = {}
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

    def bounds(self, key: RunKey) -> OutputBounds:
        """Return what the run's job file states for its output; NODE_BOUNDS where it states nothing, or its directory is removed."""
        return self._own.get(key.name)

    def ended(self, key: RunKey) -> None:
        """The run has ended; its directory may go when it is no longer among the newest."""
        self._ended.append(key.name)
        if len(self._ended) >= self.keep + PRUNE_BATCH:
            old = [self._ended.popleft() for _ in range(len(self._ended) - self.keep)]
            self._own.drop(old)
            if unfit := [name for name in old if not self._spared(name)]:
                asyncio.get_running_loop().run_in_executor(None, self._remove, unfit)

    async def look(self) -> None:
        """Remove what is too old or too much, where that is bounded; called again and again."""
        bounded = self._bounds.bytes_max or self._bounds.age_s
        now = self._clock()
        if not (bounded or self._own) or 0 <= now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        own = dict(self._own.items())
        names = [name for name in self._ended if bounded or (name in own and own[name].keep_ns)]
        found = await asyncio.to_thread(self._measure, names, own)
        over = expired(found, own, now)
        left = [each for each in found if each[0] not in over]
        over.update(name for name, *_ in left[: too_much(left, self._bounds, now)])
        old = [name for name in self._ended if name in over]  # others may have gone meanwhile
        if own:
            await asyncio.to_thread(self._trim_work, [name for name in self._ended if name in own and own[name].work])
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

    def _trim_work(self, names: Sequence[str]) -> None:
        """Remove the own directories of the longest ended runs, beyond what the node keeps of all of them. Kept outputs stay."""
        # Those of ended runs change no more, and may have very many files: each is measured once.
        self._work_sizes = {
            name: self._work_sizes[name] if name in self._work_sizes else size_of(self.base / name / WORK)
            for name in names
        }
        sizes = [self._work_sizes[name] for name in names]
        surplus = sum(sizes) - self._bounds.work_bytes_max
        for name, size in zip(names, sizes, strict=True):
            if surplus <= 0:
                return
            shutil.rmtree(self.base / name / WORK, ignore_errors=True)
            self._own.put(name, self._own.get(name)._replace(work=False))
            surplus -= size

    def spare(self) -> str:
        """An old directory with two empty files that a new run may have by renaming it; "" when there is none.
        Making and removing three inodes costs some file systems more than everything else about a short run."""
        return self._spares.popleft() if self._spares else ""

    def _spared(self, name: str) -> bool:
        """Keep the directory as a spare if it may be one. The check is a dozen calls on names and inodes in memory: a thread
        would have to take the interpreter's lock back after each.
        """
        directory = f"{self._base}/{name}"
        spared = len(self._spares) < SPARES_MAX and _is_spare(directory)
        if spared:
            self._spares.append(directory)
        return spared

    def _remove(self, names: list[str]) -> None:
        for name in names:
            shutil.rmtree(f"{self._base}/{name}", ignore_errors=True)


def _is_spare(directory: str) -> bool:
    """Return True if the directory holds only two empty files that no process can write to any more.

    The kernel grants a write lease only on a file that is not open elsewhere. This check keeps leftovers of an old run from
    writing into a new run's output.
    """
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


MARK = "fairlead: "


def write_note(stderr: Path, text: str) -> None:
    """Append a line to stderr. A second file next to it counts the bytes that are not the program's, for a runtime that copies
    output and resumes by its length. A file that cannot be written is skipped: the note is a courtesy.
    """
    line = f"{MARK}{' '.join(text.split())}\n".encode()
    try:
        count = own_bytes(stderr) + len(line)
        _counter(stderr).write_text(str(count))
        with open(stderr, "ab", buffering=0, opener=_here) as file:
            file.write(line)
    except OSError:
        return


def clear(stderr: Path) -> None:
    """Remove the stderr file and its counter, with all text of the agent and of a program."""
    for path in (stderr, _counter(stderr)):
        path.unlink(missing_ok=True)


def own_bytes(path: Path) -> int:
    """Return the number of bytes in an output file that the agent wrote."""
    try:
        return int(_counter(path).read_text())
    except (OSError, ValueError):
        return 0


def _counter(path: Path) -> Path:
    return path.with_name(f"{path.name}.own")


def _here(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
