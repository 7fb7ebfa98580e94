"""Bounds that jobs set for their own output (the job file's `output`), kept on disk while a run's directory is there.

`<base>/<job>.<attempt>.<rank>` holds one run's bounds as JSON: what is needed of the job file after the run has ended and the
agent has been restarted. They lie outside the run's directory, which the job can write to. Files are cut by freeing their
head (a hole), so that byte offsets, the cursor of all readers, stay as they are.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import structlog

from fairlead_schemas.outputwords import NODE_BOUNDS, OutputBounds

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
