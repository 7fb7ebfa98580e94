"""Pieces of a directory on this machine, and the index by which unchanged files are not read again.

The index has, for each group of files and each large file, a digest of all their stamps (`walk.LocalFile`) and the digests of the
pieces that they gave. A file that changed a moment ago is not indexed: within a tick of the clock it may change again under the same
stamp. Losing the index costs reading only. Start at `LocalTree`.
"""

import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead.sync.walk import LocalFile, Walked
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import TreeEntry, TreeGroup

#: A file that changed later than this before the walk is read again next time.
YOUNG_NS = 2_000_000_000
#: Bytes of new pieces that are kept until they are sent; the rest is read once more then.
HELD_BYTES_MAX = 64 * 2**20


class Changed(Exception):
    """A file changed while it was read; the message is its path."""


class _Index(msgspec.Struct):
    """{digest of stamps: digests of pieces}."""

    version: int = 1
    known: dict[bytes, tuple[bytes, ...]] = {}


_index = msgspec.msgpack.Decoder(_Index)


class _Part(NamedTuple):
    """Where the bytes of a piece come from: a group of entries, or a part of a large file."""

    entries: Sequence[LocalFile]
    offset: int = -1


class LocalTree:
    """Pieces of a walked directory. Raises Changed, OSError. `index`: file of the index; None: none."""

    def __init__(self, root: Path, walked: Walked, index: Path | None, clock: Callable[[], int] = time.time_ns) -> None:
        self._root = str(root.resolve())
        self._walked = walked
        self._young = clock() - YOUNG_NS
        self._known = _read_index(index)
        self._used: dict[bytes, tuple[bytes, ...]] = {}
        #: {digest: its source}, in the order of sending: parts of large files, groups, the root.
        self._parts: dict[bytes, _Part] = {}
        self._held: dict[bytes, bytes] = {}
        self._held_bytes = 0
        self.files_read = 0
        groups = [self._group(group) for group in _groups(walked.found)]
        self._root_piece = trees.tree_of(groups, len(walked.found), walked.size)
        self.digest = trees.digest_of(self._root_piece)
        if index is not None and self._used != self._known:
            _write_index(index, self._used)

    @property
    def digests(self) -> list[bytes]:
        """Digests of all pieces, the root's last: whoever has the root has the rest."""
        return [*self._parts, self.digest]

    def piece(self, digest: bytes) -> bytes:
        """Return a piece, read again where it is not held. Raises Changed where the files give another one now."""
        if digest == self.digest:
            return self._root_piece
        data = self._held.pop(digest, None)
        if data is None:
            part = self._parts[digest]
            first = part.entries[0]
            data = self._encoded(part.entries) if part.offset < 0 else self._read_part(first, part.offset)
            if trees.digest_of(data) != digest:
                raise Changed(first.path)
        return data

    def _group(self, group: Sequence[LocalFile]) -> bytes:
        """Note the pieces of a group, and return its digest."""
        for each in group:
            if _is_large(each):
                for number, digest in enumerate(self._large(each)):
                    self._parts.setdefault(digest, _Part((each,), number * trees.PIECE_BYTES_MAX))
        signature = _signature(group)
        digests = self._lookup(signature)
        if digests is None:
            data = self._encoded(group)
            digests = (self._hold(data),)
            self._remember(signature, digests, group)
        self._parts.setdefault(digests[0], _Part(group))
        return digests[0]

    def _large(self, found: LocalFile) -> tuple[bytes, ...]:
        """Return the digests of a large file's pieces."""
        signature = _signature((found,), b"large")
        digests = self._lookup(signature)
        if digests is None:
            offsets = range(0, found.size, trees.PIECE_BYTES_MAX)
            digests = tuple(self._hold(self._read_part(found, offset)) for offset in offsets)
            self.files_read += 1
            self._remember(signature, digests, (found,))
        return digests

    def _lookup(self, signature: bytes) -> tuple[bytes, ...] | None:
        digests = self._used.get(signature) or self._known.get(signature)
        if digests is not None:
            self._used[signature] = digests
        return digests

    def _remember(self, signature: bytes, digests: tuple[bytes, ...], group: Sequence[LocalFile]) -> None:
        newest = max((max(each.stamp[3:], default=0) for each in group), default=0)
        if newest < self._young:
            self._used[signature] = digests

    def _hold(self, data: bytes) -> bytes:
        digest = trees.digest_of(data)
        if digest not in self._held and self._held_bytes + len(data) <= HELD_BYTES_MAX:
            self._held[digest] = data
            self._held_bytes += len(data)
        return digest

    def _encoded(self, group: Sequence[LocalFile]) -> bytes:
        return trees.encode_piece(TreeGroup(entries=tuple(map(self._entry, group))))

    def _entry(self, found: LocalFile) -> TreeEntry:
        if found.kind == "directory":
            return TreeEntry(path=found.path, directory=True)
        if found.kind == "link":
            return TreeEntry(path=found.path, target=found.target)
        if _is_large(found):
            return TreeEntry(path=found.path, size=found.size, executable=found.executable, pieces=self._large(found))
        self.files_read += 1
        data = self._read(found, 0, found.size)
        return TreeEntry(path=found.path, size=found.size, executable=found.executable, data=data)

    def _read_part(self, found: LocalFile, offset: int) -> bytes:
        return self._read(found, offset, min(trees.PIECE_BYTES_MAX, found.size - offset))

    def _read(self, found: LocalFile, offset: int, count: int) -> bytes:
        """Read a part of a file that is as it was when it was found. Raises Changed."""
        try:
            file = os.open(f"{self._root}/{found.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Changed(found.path) from None
        try:
            data = os.pread(file, count, offset)
            at = os.fstat(file)
        finally:
            os.close(file)
        now = (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
        if len(data) != count or now != found.stamp or not stat.S_ISREG(at.st_mode):
            raise Changed(found.path)
        return data


def _is_large(found: LocalFile) -> bool:
    return found.kind == "file" and found.size > trees.SMALL_BYTES_MAX


def _groups(found: Sequence[LocalFile]) -> list[list[LocalFile]]:
    return [*trees.grouped((each.path, 0 if _is_large(each) else each.size, each) for each in found)]


def _signature(group: Sequence[LocalFile], kind: bytes = b"group") -> bytes:
    """Return a digest of everything that a piece depends on, without content."""
    text = "\0".join(f"{each.path}\0{each.kind}\0{each.executable:d}\0{each.target}\0{each.stamp}" for each in group)
    return hashlib.sha256(kind + text.encode()).digest()


def index_path(root: Path, environ: "os._Environ[str] | dict[str, str]" = os.environ) -> Path:
    """Return the file of a directory's index, in the user's cache."""
    base = environ.get("XDG_CACHE_HOME") or f"{Path.home()}/.cache"
    return Path(base) / "fairlead" / "sync" / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]


def _read_index(path: Path | None) -> dict[bytes, tuple[bytes, ...]]:
    if path is None:
        return {}
    try:
        found = _index.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return found.known if found.version == 1 else {}


def _write_index(path: Path, known: dict[bytes, tuple[bytes, ...]]) -> None:
    """Replace the index. A directory that cannot be written costs reading next time, and nothing else."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(msgspec.msgpack.encode(_Index(known=known)))
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
