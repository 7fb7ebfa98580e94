"""A directory as content-addressed pieces: what `submit --sync` sends and what nodes unpack. Pure.

A piece is at most PIECE_BYTES_MAX bytes, named by their SHA-256. The root piece (`Tree`) lists groups; a group (`TreeGroup`) lists
entries next to each other in the order of paths. Small files are within their group, so that a directory of a thousand of them is a
few dozen pieces; larger files are pieces of their own. Groups end where the digest of a path decides it, so that a file more
or less changes its own group alone.

A tree may come from anybody: `decode_tree` and `decode_group` refuse whatever does not stay within its directory and its bounds.
Nothing here resolves a link: those who unpack or read a tree never follow one. Start at `TreeEntry`.
"""

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fairlead_schemas.units.quantities import format_bytes

PIECE_BYTES_MAX = 512 * 1024
#: Larger files are pieces of their own.
SMALL_BYTES_MAX = 32 * 1024
#: A group ends after so much content, at the latest, or so many entries. Both keep its piece below PIECE_BYTES_MAX.
GROUP_BYTES_MAX = 192 * 1024
GROUP_ENTRIES_MAX = 128
#: On average a group ends after so many entries.
GROUP_ENTRIES_MEAN = 32
ENTRIES_MAX = 50_000
TREE_BYTES_MAX = 2 * 2**30
PATH_BYTES_MAX = 1024
NAME_BYTES_MAX = 255
DIGEST_BYTES = 32
#: How a job file names a tree.
PREFIX = "sha256:"


class TreeRefused(ValueError):
    """The tree, or a part of it, is not one that may be unpacked. The message says what was expected and found."""


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A file, a symbolic link (`target`), or an empty directory."""

    #: Relative to the tree, with "/" between names.
    path: str
    size: int = 0
    executable: bool = False
    #: The content of a small file.
    data: bytes = b""
    #: Digests of the pieces of a large file, in order.
    pieces: tuple[bytes, ...] = ()
    #: Of a symbolic link: a path within the tree, relative to the link.
    target: str = ""
    directory: bool = False


class TreeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that follow each other in the order of their paths."""

    entries: tuple[TreeEntry, ...]


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The root piece of a directory."""

    version: int = 1
    #: Entries, and bytes of content, of all groups together.
    entries: int
    size: int
    #: Digests of the groups.
    groups: tuple[bytes, ...]


_encoder = msgspec.msgpack.Encoder()
_tree = msgspec.msgpack.Decoder(Tree)
_group = msgspec.msgpack.Decoder(TreeGroup)


def digest_of(data: bytes) -> bytes:
    """Return the name of a piece."""
    return hashlib.sha256(data).digest()


def encode_piece(piece: Tree | TreeGroup) -> bytes:
    """Return the bytes of a root piece or of a group; equal ones have equal bytes."""
    return _encoder.encode(piece)


def decode_tree(data: bytes) -> Tree:
    """Decode a root piece. Raises TreeRefused for one that is none, or beyond the bounds."""
    try:
        tree = _tree.decode(data)
    except msgspec.MsgspecError as error:
        raise TreeRefused(f"expected the root piece of a directory: {error}") from None
    if tree.version != 1:
        raise TreeRefused(
            f"expected a directory of version 1, found version {tree.version}: this node's agent is older"
        )
    if fault := bounds_fault(tree.entries, tree.size):
        raise TreeRefused(fault)
    if any(len(each) != DIGEST_BYTES for each in tree.groups):
        raise TreeRefused(f"expected digests of {DIGEST_BYTES} bytes")
    return tree


def decode_group(data: bytes) -> TreeGroup:
    """Decode a group. Raises TreeRefused for one that is none, and for an entry that may not be unpacked."""
    try:
        group = _group.decode(data)
    except msgspec.MsgspecError as error:
        raise TreeRefused(f"expected a group of files: {error}") from None
    for entry in group.entries:
        if fault := entry_fault(entry):
            raise TreeRefused(f"{entry.path[:200]!r}: {fault}")
    return group


def bounds_fault(entries: int, size: int) -> str:
    """Return the reason why a directory is too large to be sent; "" if it is not."""
    if not 0 <= entries <= ENTRIES_MAX:
        return f"expected at most {ENTRIES_MAX} files, found {entries}"
    if not 0 <= size <= TREE_BYTES_MAX:
        return f"expected at most {format_bytes(TREE_BYTES_MAX)}, found {format_bytes(size)}"
    return ""


def entry_fault(entry: TreeEntry) -> str:
    """Return the reason why an entry may not be unpacked; "" if it may."""
    if fault := path_fault(entry.path):
        return fault
    if entry.target:
        return target_fault(entry.path, entry.target)
    if entry.directory:
        return "" if not (entry.data or entry.pieces or entry.size) else "expected a directory without content"
    if entry.pieces:
        wanted = -(-entry.size // PIECE_BYTES_MAX)
        ok = len(entry.pieces) == wanted and not entry.data and {len(each) for each in entry.pieces} == {DIGEST_BYTES}
        return "" if ok else f"expected {wanted} digests for {entry.size} bytes, found {len(entry.pieces)}"
    return "" if len(entry.data) == entry.size else f"expected {entry.size} bytes, found {len(entry.data)}"


def path_fault(path: str) -> str:
    """Return the reason why a path is not one within a directory; "" if it is."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return 'expected a relative path without empty, "." and ".." parts'
    try:
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return "expected a name in UTF-8"
    if sum(map(len, encoded)) + len(parts) - 1 > PATH_BYTES_MAX or max(map(len, encoded)) > NAME_BYTES_MAX:
        return f"expected a path of at most {PATH_BYTES_MAX} bytes, and names of at most {NAME_BYTES_MAX}"
    return ""


def target_fault(path: str, target: str) -> str:
    """Return the reason why a link may not be part of a directory; "" if it may."""
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or "\0" in target or inside == ".." or inside.startswith("../"):
        return f"expected a link that stays in the directory, found one to {target[:200]!r}"
    try:
        size = len(target.encode())
    except UnicodeEncodeError:
        return "expected a link to a name in UTF-8"
    return "" if size <= PATH_BYTES_MAX else f"expected a link of at most {PATH_BYTES_MAX} bytes"


class PathCheck:
    """Check of all paths of a tree together: none twice, and none below one that is no directory."""

    def __init__(self) -> None:
        self._entries: set[str] = set()
        self._parents: set[str] = set()

    def take(self, path: str) -> str:
        """Note a path that `path_fault` accepts. Return the reason why it may not follow the ones before; "" if it may."""
        if path in self._entries or path in self._parents:
            return "expected each path once"
        parent = posixpath.dirname(path)
        while parent and parent not in self._parents:
            if parent in self._entries:
                return f"expected a directory, found a file or link: {parent[:200]!r}"
            self._parents.add(parent)
            parent = posixpath.dirname(parent)
        self._entries.add(path)
        return ""


def ends_group(path: str) -> bool:
    """Return True if a group ends with this path, wherever it began."""
    return hashlib.sha256(path.encode()).digest()[0] % GROUP_ENTRIES_MEAN == 0


def grouped[T](entries: Iterable[tuple[str, int, T]]) -> Iterator[list[T]]:
    """Divide entries into groups. `entries`: (path, bytes of a small file's content, anything), in the order of paths."""
    group: list[T] = []
    held = 0
    for path, size, entry in entries:
        if group and held + size > GROUP_BYTES_MAX:
            yield group
            group, held = [], 0
        group.append(entry)
        held += size
        if len(group) == GROUP_ENTRIES_MAX or ends_group(path):
            yield group
            group, held = [], 0
    if group:
        yield group


def tree_of(groups: Sequence[bytes], entries: int, size: int) -> bytes:
    """Return the root piece for groups with these digests. Raises TreeRefused beyond the bounds."""
    if fault := bounds_fault(entries, size):
        raise TreeRefused(fault)
    data = encode_piece(Tree(entries=entries, size=size, groups=tuple(groups)))
    if len(data) > PIECE_BYTES_MAX:
        raise TreeRefused(
            f"expected at most {PIECE_BYTES_MAX // (DIGEST_BYTES + 2)} groups of files, found {len(groups)}"
        )
    return data


def name_of_tree(digest: bytes) -> str:
    """Return a tree's name as job files have it: "sha256:<hex>"."""
    return PREFIX + digest.hex()


def parse_tree_name(name: str) -> bytes | None:
    """Return the digest of a tree's name; None for any other text."""
    return parse_digest(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def parse_digest(text: str) -> bytes | None:
    """Return a digest from 64 lower-case hex digits; None for any other text."""
    if len(text) != 2 * DIGEST_BYTES or not set(text) <= set("0123456789abcdef"):
        return None
    return bytes.fromhex(text)
