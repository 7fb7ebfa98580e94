"""mount(2), for which Python has no word: a file system in memory, and directories seen elsewhere without set-user-id
programs and device files."""

import ctypes
import errno
import os

_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
#: Of mount_setattr(2), the same on every machine.
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
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


def bind(source: int, target: str, *, read_only: bool) -> None:
    """Have the directory that is open as `source` at `target`, too: what lies on its own file system, and nothing mounted
    below. It is never there with fewer restrictions, not even where mounts are passed on to other namespaces: they are set
    before it is put there. Raises OSError (ENOSYS before Linux 5.12)."""
    tree = _call(_OPEN_TREE, source, b"", _EMPTY_PATH | _CLONE | _CLOEXEC)
    try:
        wanted = _ATTR_NOSUID | _ATTR_NODEV | (_ATTR_RDONLY if read_only else 0)
        attributes = (ctypes.c_uint64 * 4)(wanted, 0, 0, 0)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(attributes), size)
        _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)
    finally:
        os.close(tree)


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
