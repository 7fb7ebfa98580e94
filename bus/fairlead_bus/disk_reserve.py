"""Disk space reserved in a file, to be released when the disk is full.

Owns `<directory>/reserve`. The agent keeps one for its journal, the local stack one for its nats-server. Used by one
thread alone, except `held`.
"""

import contextlib
import errno
import os
from pathlib import Path

NAME = "reserve"
#: The disk, or this user's share of it, is full.
FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """Reserve of `size` bytes; nothing is reserved if the disk had no room at the start."""

    def __init__(self, directory: Path, size: int) -> None:
        self._path = directory / NAME
        self._size = size
        self.held = False
        self.take()

    @property
    def short(self) -> bool:
        """True while what should be kept is not: the disk is full, or was and has no room for it again."""
        return self._size > 0 and not self.held

    def take(self) -> bool:
        """Reserve the room if at least twice as much is free. Return True if it is held."""
        if self.held or not self._size:
            return self.held
        with contextlib.suppress(OSError):
            kept = self._path.stat().st_blocks * 512 if self._path.exists() else 0
            disk = os.statvfs(self._path.parent)
            if kept < self._size and disk.f_bavail * disk.f_frsize < 2 * self._size:
                return False
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
                self.held = True
            finally:
                os.close(fd)
        return self.held

    def give(self) -> bool:
        """Give it up; whether there was something to give."""
        if not self.held:
            return False
        self.held = False
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
        return True
