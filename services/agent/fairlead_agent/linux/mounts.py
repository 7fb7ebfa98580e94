"""Mounts of directories and of file systems in memory, by mount(2), for which Python has no function. Also safe
opening of directories and files by names that others chose, following no link.

A path that is checked first and opened later may lead elsewhere by then; an open descriptor keeps its target. So
callers that mount or read get a file descriptor from here, never a path.
"""

import contextlib
import ctypes
import errno
import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
#: Of mount_setattr(2), the same on every machine.
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 1, 2, 4, 0x100000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_EMPTY_PATH, _CLONE, _CLOEXEC, _FROM_EMPTY_PATH, _HERE = 0x1000, 1, os.O_CLOEXEC, 4, -100
_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def mount_memory(target: str, size_mib: int) -> None:
    """An empty file system in memory, of our user only; never swapped out where the kernel can promise that. Raises
    OSError."""
    options = f"size={size_mib}m,mode=0700"
    flags = _NOSUID | _NODEV | _NOEXEC
    try:
        _mount("tmpfs", target, "tmpfs", flags, options + ",noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount("tmpfs", target, "tmpfs", flags, options)  # before Linux 6.4


def bind(source: int, target: str, *, read_only: bool, owner: tuple[int, int, int] | None = None) -> None:
    """Bind the directory open as `source` to `target`, too: only its own file system, without the mounts below it. `owner`: (id of
    user and group of files on disk, user and group that they have in the mount), where these differ: an idmapped mount.

    The restrictions are set before the mount is attached. So the mount never appears with fewer restrictions, not even
    where mounts propagate to other namespaces. Raises OSError (ENOSYS before Linux 5.12).
    """
    tree = _call(_OPEN_TREE, source, b"", _EMPTY_PATH | _CLONE | _CLOEXEC)
    try:
        wanted = _ATTR_NOSUID | _ATTR_NODEV | (_ATTR_RDONLY if read_only else 0)
        with contextlib.ExitStack() as stack:
            users = 0
            if owner is not None:
                users = _user_namespace(*owner)
                stack.callback(os.close, users)
                wanted |= _ATTR_IDMAP
            attributes = (ctypes.c_uint64 * 4)(wanted, 0, 0, users)
            size = ctypes.c_size_t(ctypes.sizeof(attributes))
            _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(attributes), size)
        _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)
    finally:
        os.close(tree)


def _user_namespace(on_disk: int, user: int, group: int) -> int:
    """Return a descriptor of a user namespace that maps one user and one group; the caller closes it. Raises OSError.

    A namespace needs a process to be made in: a child that answers one byte once it is in its own, and ends with its input.
    """
    child = subprocess.Popen(["unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(b"x")
        if child.stdout.read(1) != b"x":
            raise OSError(errno.EPERM, "a user namespace cannot be made")
        for file, seen in (("uid_map", user), ("gid_map", group)):
            Path(f"/proc/{child.pid}/{file}").write_text(f"{on_disk} {seen} 1\n")
        return os.open(f"/proc/{child.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def detach(target: str) -> None:
    """Take a mount away that nothing uses. Raises OSError (EBUSY while a file of it is open)."""
    if _libc.umount2(os.fsencode(target), 0):
        raise _error(target)


def unmount(target: str) -> None:
    """Take it away, at the latest when the last who uses it has gone. Raises OSError."""
    if _libc.umount2(os.fsencode(target), _DETACH):
        raise _error(target)


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) if options else None):
        raise _error(target)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise _error("a mount")
    return result


def _error(target: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), target)


_DIRECTORY = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Closed(ValueError):
    """The name leads nowhere, or to a forbidden place. The message is for the user who wrote the path."""


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
    """Raise Closed unless the name is one part of a path and leads only downwards."""
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
            descriptor = _open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, at)
            os.fchmod(descriptor, mode)
            os.close(descriptor)
    except FileExistsError:
        pass
    except (OSError, UnicodeEncodeError) as error:
        raise Closed(f"{name[:80]!r} cannot be made: {error}") from error
