"""Runs that report when they have saved: looks for their words, and notifies them when their end is near.

A word is a file that the job writes (FAIRLEAD_CHECKPOINT_FILE); its content is passed on with it. Only runs whose
job file has `checkpoint` are looked at. In a gang, rank 0 reports for all ranks. The core decides what follows.
"""

import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import structlog

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import RunKey, Word
from fairlead_agent.core.steps import NoticeRun
from fairlead_agent.runtimes.port import Runtime
from fairlead_schemas.policies.checkpoints import note_of

#: Of a word, so much is looked at.
WORD_BYTES_MAX = 1024
#: A file that grows beyond this is emptied: it is a word, not a place for data.
FILE_BYTES_MAX = 64 * 1024
#: Every so many looks, all are looked at; those who have their notice, each time.
LOOKS = 5

_log = structlog.get_logger()


class Hears(Protocol):
    """Receiver of notifications about ended runs."""

    def said(self, key: RunKey, word: Word) -> None:
        """Take the word that a run's file holds now. The same word is passed again and again."""
        ...

    def told(self, key: RunKey, word: Word | None) -> None:
        """Take note that the run is notified now. `word`: its newest word before the notice."""
        ...

    def command_ended(self, key: RunKey, saved: bool) -> None:
        """Take note that the command that notified the run has ended. `saved`: the command succeeded."""
        ...


class Saving:
    """The runs of one node that say when they have saved."""

    def __init__(self, runtime: Runtime, hears: Hears, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._runtime, self._hears, self._spawn = runtime, hears, spawn
        self._files: dict[RunKey, Path] = {}
        self._told: set[RunKey] = set()
        self._looks = 0

    def hold(self, run: RunEntry) -> None:
        """Start to look for the words of a run that has started."""
        if run.checkpoint is not None and run.key.rank == 0:
            self._files[run.key] = self._runtime.checkpoint_file(run.key)

    def let_go(self, key: RunKey) -> Word | None:
        """Stop looking for the words of a run that has ended, and return its last word."""
        path = self._files.pop(key, None)
        self._told.discard(key)
        return read_word(path) if path is not None else None

    def poll(self) -> None:
        """Look; a call costs one look at a file per run that has its notice, every fifth one per run."""
        self._looks += 1
        for key in list(self._files if self._looks % LOOKS == 0 else self._told):
            word = read_word(self._files[key]) if key in self._files else None
            if word is not None:
                self._hears.said(key, word)

    def notice(self, notice: NoticeRun, left_s: float) -> None:
        """Tell a run that its end is near; `left_s`: so long a command may take."""
        key, path = notice.key, self._files.get(notice.key)
        self._hears.told(key, read_word(path) if path is not None else None)
        self._told.add(key)
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
            _log.warning("a checkpoint command has failed", job=key.job, rank=key.rank, code=done.code, said=done.said)
        path = self._files.get(key)
        if done.code == 0 and path is not None and (word := read_word(path)) is not None:
            self._hears.said(key, word)  # its own word says more than an exit code
        self._hears.command_ended(key, done.code == 0)


def read_word(path: Path) -> Word | None:
    """Return the word in a file. None when there is none yet: no file, a file of time 0, or a path that is not a regular
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
        note = note_of(os.read(fd, WORD_BYTES_MAX).decode(errors="replace"))
        if found.st_size > FILE_BYTES_MAX:
            os.ftruncate(fd, 0)
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        return Word(found.st_mtime_ns, note)
    finally:
        os.close(fd)
