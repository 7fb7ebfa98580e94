"""Opens directories and files by names that others chose, one part after the other, and follows no link.

A path that is checked first and opened later may lead elsewhere by then; what is open stays what it is. So whoever
mounts or reads something gets a file descriptor from here, never a path.
"""

import os
import stat
from collections.abc import Iterable

_DIRECTORY = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Closed(ValueError):
    """A name that leads nowhere, or to where it must not; the message is for whoever wrote it."""


def open_path(path: str) -> int:
    """A descriptor of the directory with this full path, none of whose parts is a link. The caller closes it. Raises
    Closed."""
    if not path.startswith("/"):
        raise Closed(f"expected a full path, found {path[:200]!r}")
    root = os.open("/", _DIRECTORY)
    try:
        return open_below(root, [part for part in path.split("/") if part])
    except Closed as error:
        raise Closed(f"{path}: {error}") from error
    finally:
        os.close(root)


def open_below(root: int, names: Iterable[str], *, make_mode: int | None = None) -> int:
    """A descriptor of the directory that these names lead to from `root`, which stays open. With `make_mode`, directories
    that are missing are made, the last of them with this mode and the others closed to others. Raises Closed."""
    parts = list(names)
    at = os.dup(root)
    try:
        for index, name in enumerate(parts):
            _check(name)
            if make_mode is not None:
                _make(at, name, make_mode if index == len(parts) - 1 else 0o700)
            below = _open(name, _DIRECTORY, at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def read_below(root: int, names: Iterable[str], bytes_max: int) -> bytes:
    """The content of the file that these names lead to. Raises Closed."""
    *parents, name = names
    _check(name)
    directory = open_below(root, parents)
    try:
        file = _open(name, _FILE, directory)
    finally:
        os.close(directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Closed(f"{name!r} is not a file")
        content = os.read(file, bytes_max + 1)
    finally:
        os.close(file)
    if len(content) > bytes_max:
        raise Closed(f"{name!r} is larger than {bytes_max} bytes")
    return content


def _check(name: str) -> None:
    """One part of a path, which cannot lead anywhere but down."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Closed(f"expected one name, found {name[:80]!r}")


def _open(name: str, flags: int, at: int) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no file name"
        raise Closed(f"{name[:80]!r} cannot be opened (links are not followed): {reason}") from error


def _make(at: int, name: str, mode: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=at)
        if mode != 0o700:
            made = _open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, at)
            os.fchmod(made, mode)
            os.close(made)
    except FileExistsError:
        pass
    except (OSError, UnicodeEncodeError) as error:
        raise Closed(f"{name[:80]!r} cannot be made: {error}") from error
