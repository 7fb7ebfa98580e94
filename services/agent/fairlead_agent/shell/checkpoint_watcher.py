"""Watcher of runs that report when they have saved: reads their marks, and notifies them when their end is near.

A mark is a file that the job writes (FAIRLEAD_CHECKPOINT_FILE); its content is passed on with it. Only runs whose
job file has `checkpoint` are looked at. In a gang, rank 0 reports for all ranks. The core decides what follows.
"""

import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import CheckpointMark, CheckpointMarked, Emit, NoticeCommandEnded, RunKey, RunNoticed
from fairlead_agent.core.steps import NoticeRun
from fairlead_agent.runtimes.port import Runtime
from fairlead_schemas.policies.checkpoints import note_of

#: Bytes of a mark that are read.
MARK_BYTES_MAX = 1024
#: A file that grows beyond this is emptied: it holds a mark, not data.
FILE_BYTES_MAX = 64 * 1024
#: Every so many looks, all are looked at; those who have their notice, each time.
LOOKS = 5

_log = structlog.get_logger()


class CheckpointWatcher:
    """Watcher of the checkpoint files of one node's runs."""

    def __init__(self, runtime: Runtime, emit: Emit, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._runtime, self._emit, self._spawn = runtime, emit, spawn
        self._files: dict[RunKey, Path] = {}
        self._noticed: set[RunKey] = set()
        self._looks = 0

    def hold(self, run: RunEntry) -> None:
        """Start to look for the marks of a run that has started."""
        if run.checkpoint is not None and run.key.rank == 0:
            self._files[run.key] = self._runtime.checkpoint_file(run.key)

    def let_go(self, key: RunKey) -> CheckpointMark | None:
        """Stop looking for the marks of a run that has ended, and return its last one."""
        path = self._files.pop(key, None)
        self._noticed.discard(key)
        return read_mark(path) if path is not None else None

    def poll(self) -> None:
        """Read the marks; a call costs one look at a file per run that has its notice, every fifth one per run."""
        self._looks += 1
        for key in list(self._files if self._looks % LOOKS == 0 else self._noticed):
            mark = read_mark(self._files[key]) if key in self._files else None
            if mark is not None:
                self._emit(CheckpointMarked(key, mark))

    def notice(self, notice: NoticeRun, left_s: float) -> None:
        """Notify a run that its end is near; `left_s`: so long a command may take."""
        key, path = notice.key, self._files.get(notice.key)
        self._emit(RunNoticed(key, read_mark(path) if path is not None else None))
        self._noticed.add(key)
        _log.info("run notified of its end", job=key.job, attempt=key.attempt, rank=key.rank, why=notice.reason)
        if notice.checkpoint.signal:
            self._runtime.signal(key, notice.checkpoint.signal)
        else:
            self._spawn(self._run_command(notice, left_s))

    async def _run_command(self, notice: NoticeRun, left_s: float) -> None:
        key = notice.key
        more = {"FAIRLEAD_STOP_REASON": notice.reason}
        done = await self._runtime.exec(key, list(notice.checkpoint.command), left_s, more)
        if done.code != 0:
            _log.warning(
                "a checkpoint command has failed", job=key.job, rank=key.rank, code=done.code, output=done.output
            )
        path = self._files.get(key)
        if done.code == 0 and path is not None and (mark := read_mark(path)) is not None:
            self._emit(CheckpointMarked(key, mark))  # its own mark is better evidence than an exit code
        self._emit(NoticeCommandEnded(key, done.code == 0))


def read_mark(path: Path) -> CheckpointMark | None:
    """Return the mark in a file. None when there is none yet: no file, a file of time 0, or a path that is not a regular
    file.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not found.st_mtime_ns:
            return None
        note = note_of(os.read(fd, MARK_BYTES_MAX).decode(errors="replace"))
        if found.st_size > FILE_BYTES_MAX:
            os.ftruncate(fd, 0)
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        return CheckpointMark(found.st_mtime_ns, note)
    finally:
        os.close(fd)
