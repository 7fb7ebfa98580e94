"""Files of volumes that a gateway reaches: uploads that continue after any break, and files to read. Everything here blocks; no HTTP, no rights.

A gateway reaches the classes whose file systems are mounted on its machine (FAIRLEAD_STORAGE, as of an agent) and whose volumes are plain
directories. The inside of a volume is its users': whatever is there, a path leads to a file below the volume's root or nowhere. The kernel
resolves every path by openat2 beneath an open directory and follows no link, so a link that is put there meanwhile changes nothing.

An upload is a file next to the volumes and moves into its volume when it is whole, so its progress is known to every gateway that
reaches the class, and no reader ever sees half of it. Start at `VolumeFiles.begin`.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import stat
import struct
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from fairlead_bus.environment_settings import StoragePlace
from fairlead_schemas.policies.storage import volume_directory

PATH_BYTES_MAX, PATH_PARTS_MAX, NAME_BYTES_MAX = 4096, 64, 255
#: Uploads of a volume that are not whole, and how long one is kept after its last byte.
UPLOADS_MAX, UPLOAD_KEPT_S = 200, 7 * 86400.0
READ_BYTES = 256 * 1024
_UPLOADS = "uploads"
_ID = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)
#: Of openat2(2), the same on every machine.
_OPENAT2, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 437, 0x02, 0x04, 0x08
_CLOSED = os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | _CLOSED
_libc = ctypes.CDLL(None, use_errno=True)


class VolumePlace(NamedTuple):
    """Volume, as far as its files are concerned."""

    name: str
    made: int
    storage_class: str
    uid: int


class Upload(msgspec.Struct, frozen=True):
    """Upload that is not whole, or became whole by the request that returns it."""

    id: str
    path: str
    length: int
    #: SHA-256 of the whole file in hex digits; "" where its sender named none.
    digest: str
    by: str
    offset: int = 0


class BadPath(ValueError):
    """The path leads nowhere, or to what cannot be read or replaced. The message is for the user who named it."""


class NotReached(Exception):
    """This gateway does not reach the class. The message says what does."""


class WrongOffset(Exception):
    """Bytes were sent for another place than the end of what is there, which `offset` states."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the upload has {offset} bytes")
        self.offset = offset


class WrongDigest(Exception):
    """The whole file has another SHA-256 than its sender named. Nothing of it is kept."""


def check_path(path: str) -> str:
    """Return a path of a file in a volume. Raises BadPath."""
    parts = path.split("/")
    wrong = any(part in ("", ".", "..") or len(part.encode()) > NAME_BYTES_MAX for part in parts)
    if wrong or "\0" in path or len(path.encode()) > PATH_BYTES_MAX or len(parts) > PATH_PARTS_MAX:
        raise BadPath(f'expected a path such as runs/7/model.pt, without "..", found {path[:80]!r}')
    return path


def open_beneath(root: int, path: str, flags: int) -> int:
    """Return a descriptor of what is at a path below an open directory; no link on the way is followed. Raises OSError."""
    how = struct.pack("QQQ", flags | _CLOSED, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    found = _libc.syscall(ctypes.c_long(_OPENAT2), root, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(found)


class OpenFile:
    """File of a volume, open for reading. Closed by `close`, or with the object: an answer that a client never took ends so."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.close = weakref.finalize(self, os.close, file)
        status = os.fstat(file)
        self.size = status.st_size
        #: Changes with the file's content.
        self.tag = hashlib.sha256(f"{status.st_ino} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:32]

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset on; fewer where it ends."""
        return os.pread(self._file, size, offset)

    def digest(self) -> bytes:
        """Return the SHA-256 of the whole file."""
        return _digest_of(self._file)


class VolumeFiles:
    """Files of all volumes that this gateway reaches. `places`: {class: its place}."""

    def __init__(self, places: Mapping[str, StoragePlace]) -> None:
        self._places = places

    def open(self, volume: VolumePlace, path: str) -> OpenFile:
        """Open a file to read it. Raises BadPath, NotReached."""
        check_path(path)
        with self._inside(volume) as root:
            try:
                file = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError as error:
                raise BadPath(f"{path[:80]!r} cannot be read (links are not followed): {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise BadPath(f"{path[:80]!r} is not a file")
        return OpenFile(file)

    def begin(self, volume: VolumePlace, path: str, length: int, digest: str, by: str) -> Upload:
        """Begin an upload, or return the one that the same user began of the same file: by its digest, so a client need not remember it.
        Raises BadPath, NotReached, OSError.
        """
        check_path(path)
        words = f"{by}\0{volume.made}\0{path}\0{length}\0{digest}"
        name = hashlib.sha256(words.encode()).hexdigest()[:32] if digest else secrets.token_hex(16)
        upload = Upload(name, path, length, digest, by)
        if digest and self._is_there(volume, upload):  # by an upload whose last answer was lost
            return msgspec.structs.replace(upload, offset=length)
        with self._uploads(volume) as uploads:
            with contextlib.suppress(FileNotFoundError):
                return self._state(uploads, volume, name)
            self._sweep(uploads, volume)
            _write(uploads, f"{_stem(volume, name)}.json", msgspec.json.encode(upload))
            os.close(os.open(f"{_stem(volume, name)}.part", os.O_WRONLY | os.O_CREAT | _CLOSED, 0o600, dir_fd=uploads))
        if not length:
            self.append(volume, name, 0, b"")
        return upload

    def _is_there(self, volume: VolumePlace, upload: Upload) -> bool:
        try:
            file = self.open(volume, upload.path)
        except BadPath:
            return False
        try:
            return file.size == upload.length and file.digest().hex() == upload.digest
        finally:
            file.close()

    def state(self, volume: VolumePlace, name: str) -> Upload | None:
        """Return an upload as it is now; None where there is none that is not whole. Raises NotReached."""
        with self._uploads(volume) as uploads, contextlib.suppress(FileNotFoundError):
            return self._state(uploads, volume, name)
        return None

    def append(self, volume: VolumePlace, name: str, offset: int, data: bytes) -> Upload | None:
        """Append bytes, on the disk when this returns; a whole file moves into its volume. None: there is no such upload. Raises WrongOffset,
        WrongDigest and BadPath, after which nothing of it is kept; NotReached, OSError, after which what was appended stays.
        """
        with self._uploads(volume) as uploads, contextlib.suppress(FileNotFoundError):
            upload = self._state(uploads, volume, name)
            file = os.open(f"{_stem(volume, name)}.part", os.O_RDWR | _CLOSED, dir_fd=uploads)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                there = os.fstat(file).st_size
                if offset != there or there + len(data) > upload.length:
                    raise WrongOffset(there)
                _append(file, there, data)
                if there + len(data) == upload.length:
                    self._finish(uploads, volume, upload, file)
                return msgspec.structs.replace(upload, offset=there + len(data))
            finally:
                os.close(file)
        return None

    def cancel(self, volume: VolumePlace, name: str) -> bool:
        """Remove an upload that is not whole. False: there is none. Raises NotReached."""
        with self._uploads(volume) as uploads:
            try:
                self._state(uploads, volume, name)
            except FileNotFoundError:
                return False
            _forget(uploads, _stem(volume, name))
            return True

    # ------------------------------------------------------------------------------- on the disk

    def _state(self, uploads: int, volume: VolumePlace, name: str) -> Upload:
        """Raises FileNotFoundError."""
        if not _ID.match(name):
            raise FileNotFoundError(name)
        stem = _stem(volume, name)
        file = os.open(f"{stem}.json", os.O_RDONLY | _CLOSED, dir_fd=uploads)
        try:
            upload = msgspec.json.decode(os.read(file, 4 * PATH_BYTES_MAX), type=Upload)
        finally:
            os.close(file)
        size = os.stat(f"{stem}.part", dir_fd=uploads, follow_symlinks=False).st_size
        return msgspec.structs.replace(upload, offset=size)

    def _finish(self, uploads: int, volume: VolumePlace, upload: Upload, file: int) -> None:
        stem = _stem(volume, upload.id)
        if upload.digest and _digest_of(file).hex() != upload.digest:
            _forget(uploads, stem)
            raise WrongDigest(f"expected SHA-256 {upload.digest}")
        *parents, last = upload.path.split("/")
        with self._inside(volume) as root, contextlib.ExitStack() as stack:
            at = root
            try:
                for part in parents:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=at)
                        _own(at, part, volume.uid)
                    at = open_beneath(at, part, _DIRECTORY)
                    stack.callback(os.close, at)
                os.fchmod(file, 0o644)
                if os.getuid() == 0:
                    os.fchown(file, volume.uid, volume.uid)
                os.fsync(file)
                os.rename(f"{stem}.part", last, src_dir_fd=uploads, dst_dir_fd=at)
            except OSError as error:
                _forget(uploads, stem)
                raise BadPath(
                    f"{upload.path[:80]!r} cannot be written (links are not followed): {error.strerror}"
                ) from error
        _forget(uploads, stem)

    def _sweep(self, uploads: int, volume: VolumePlace) -> None:
        """Remove uploads that nothing was added to for long. Raises OSError where there are too many others."""
        before, count = time.time() - UPLOAD_KEPT_S, 0
        for name in os.listdir(uploads):
            if name.endswith(".part") and name.startswith(f"{volume.made}-"):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=uploads, follow_symlinks=False).st_mtime < before:
                        _forget(uploads, name.removesuffix(".part"))
                    else:
                        count += 1
        if count >= UPLOADS_MAX:
            raise OSError(0, f"volume {volume.name} has {count} uploads that are not whole: finish or cancel some")

    @contextlib.contextmanager
    def _place(self, volume: VolumePlace) -> Iterator[int]:
        place = self._places.get(volume.storage_class)
        if place is None or place.backend not in ("directory", "nfs"):
            raise NotReached(
                f"this gateway does not reach files of class {volume.storage_class}: use a job that mounts the volume (fairlead cp JOB:PATH), or "
                "an admin names a class of plain directories in its FAIRLEAD_STORAGE"
            )
        slash = os.open("/", _DIRECTORY)
        try:
            root = open_beneath(slash, place.path.lstrip("/"), _DIRECTORY)
        except OSError as error:
            raise NotReached(
                f"class {volume.storage_class} cannot be opened on this gateway: {error.strerror}"
            ) from error
        finally:
            os.close(slash)
        try:
            yield root
        finally:
            os.close(root)

    @contextlib.contextmanager
    def _inside(self, volume: VolumePlace) -> Iterator[int]:
        """Open a volume's root, made where no run has mounted it yet."""
        name = volume_directory(volume.name, volume.made)
        with self._place(volume) as root:
            with contextlib.suppress(FileExistsError):
                os.mkdir(
                    name, 0o700 if self._places[volume.storage_class].backend == "directory" else 0o777, dir_fd=root
                )
                _own(root, name, volume.uid)
            inside = open_beneath(root, name, _DIRECTORY)
            try:
                yield inside
            finally:
                os.close(inside)

    @contextlib.contextmanager
    def _uploads(self, volume: VolumePlace) -> Iterator[int]:
        with self._place(volume) as root:
            with contextlib.suppress(FileExistsError):
                os.mkdir(_UPLOADS, 0o700, dir_fd=root)
            uploads = os.open(_UPLOADS, os.O_RDONLY | os.O_DIRECTORY | _CLOSED, dir_fd=root)
            try:
                yield uploads
            finally:
                os.close(uploads)


def _stem(volume: VolumePlace, name: str) -> str:
    return f"{volume.made}-{name}"


def _own(at: int, name: str, uid: int) -> None:
    """Give a new directory to the volume's owner. A gateway that is not root makes files of its own user."""
    if os.getuid() == 0:
        os.chown(name, uid, uid, dir_fd=at, follow_symlinks=False)


def _append(file: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    os.fsync(file)


def _write(directory: int, name: str, content: bytes) -> None:
    """Write a small file so that it is there as a whole or not at all."""
    half = f"{name}.{secrets.token_hex(4)}"
    file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED, 0o600, dir_fd=directory)
    try:
        _append(file, 0, content)
    finally:
        os.close(file)
    os.rename(half, name, src_dir_fd=directory, dst_dir_fd=directory)


def _forget(directory: int, stem: str) -> None:
    for end in (".part", ".json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(stem + end, dir_fd=directory)


def _digest_of(file: int) -> bytes:
    found, offset = hashlib.sha256(), 0
    while data := os.pread(file, 2**20, offset):
        found.update(data)
        offset += len(data)
    return found.digest()
