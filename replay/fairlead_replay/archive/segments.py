"""Sealed pieces of the log: a compressed file of lines, and a manifest of its contents. Both never change again.

    segments/0000000000000001.jsonl.zst   lines as an export has them (export.py), zstd with its own checksum
    segments/0000000000000001.json        the manifest: its sequences, the file's SHA-256, and the log's state after it

A line without its newline is an entry of the Merkle tree: line n is leaf n - 1. The manifest of a segment holds the
SHA-256 of the previous manifest, so that they form a chain. The manifest is written last and makes the segment part of
the archive. The manifest carries the state needed to continue (writers' heads, the tree's peaks), so that opening an
archive reads one segment at most.

Writing that has reached the disk when it returns: the file and, for new names, the directory that lists it.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlead_bus.log import LogHead
from fairlead_bus.streams import MESSAGE_BYTES_MAX
from fairlead_replay.export import HeadDoc
from fairlead_schemas.wire.commit import GENESIS


def write_new(path: Path, payload: bytes) -> None:
    """A file in one step: it is there whole, or not at all, also after a crash. One that is there is replaced."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def append(path: Path, payload: bytes) -> None:
    """To the end of a file, which is made where it is missing. A crash may leave a beginning of `payload` there."""
    new = not path.exists()
    with path.open("ab") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_directory(path.parent)


def truncate(path: Path, size: int) -> None:
    """Drop everything behind the first `size` bytes."""
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

VERSION = 1
FOLDER = "segments"
#: Upper bound of any line: a message and its envelope.
LINE_BYTES_MAX = MESSAGE_BYTES_MAX + 4096
LEVEL = 9
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
}


class ArchiveDamaged(ValueError):
    """An archive does not hold what it says. `sequence` is the first of the log that is in doubt (0: all of it)."""

    def __init__(self, sequence: int, message: str) -> None:
        super().__init__(message)
        self.sequence = sequence


class SegmentManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Manifest of one sealed segment."""

    v: int
    #: Sequences of the log, both included.
    first: int
    last: int
    events: int
    #: Clocks of the first and the last commit, Unix nanoseconds.
    from_ns: int
    to_ns: int
    #: Of the compressed file.
    file_bytes: int
    sha256: str
    #: What the lines amount to before compression.
    plain_bytes: int
    #: SHA-256 of the manifest before (`GENESIS` for the first).
    prev: str
    #: {writer: its newest commit at `last`}
    heads: dict[str, HeadDoc]
    #: The Merkle tree's peaks at `last`, in hex, largest first.
    peaks: list[str]

    def chain_heads(self) -> dict[str, LogHead]:
        """The heads as the chain check takes them."""
        return {writer: LogHead(head.n, head.hash, head.sequence) for writer, head in self.heads.items()}

    def tree_peaks(self) -> list[bytes]:
        """The peaks as the tree takes them. Raises ValueError."""
        return [bytes.fromhex(peak) for peak in self.peaks]


_manifest = msgspec.json.Decoder(SegmentManifest)


class Segment:
    """Sealed segment of an archive."""

    def __init__(self, path: Path, manifest: SegmentManifest, manifest_sha256: str) -> None:
        self.path, self.manifest, self.manifest_sha256 = path, manifest, manifest_sha256

    def check_file(self) -> None:
        """Raises ArchiveDamaged where the file is not the one that its manifest names."""
        try:
            with self.path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise self._damaged(f"cannot be read: {error.strerror}") from error
        if found != self.manifest.sha256:
            raise self._damaged("is not the file that its manifest names")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, newline included; only their number and size are checked. Raises ArchiveDamaged."""
        expected, found = self.manifest.last - self.manifest.first + 1, 0
        try:
            with zstd.open(self.path, "rb") as file:
                while line := file.readline(LINE_BYTES_MAX):
                    found += 1
                    if not line.endswith(b"\n") or found > expected:
                        raise self._damaged(f"holds more than {expected} lines, or one that is too long", found - 1)
                    yield line
        except (OSError, EOFError, zstd.ZstdError) as error:
            raise self._damaged(f"cannot be read on: {error}", found) from error
        if found < expected:
            raise self._damaged(f"ends after {found} of {expected} lines", found)

    def _damaged(self, what: str, after: int = 0) -> ArchiveDamaged:
        first, last = self.manifest.first, self.manifest.last
        return ArchiveDamaged(first + after, f"{FOLDER}/{self.path.name} (sequences {first} to {last}) {what}")


def seal(directory: Path, lines: Sequence[bytes], manifest: SegmentManifest) -> Segment:
    """Write a segment, the file first and then its manifest, whose `file_bytes`, `sha256` and `plain_bytes` are filled in here."""
    plain = b"".join(lines)
    compressed = zstd.compress(plain, options=_OPTIONS)
    manifest = msgspec.structs.replace(
        manifest, file_bytes=len(compressed), sha256=hashlib.sha256(compressed).hexdigest(), plain_bytes=len(plain)
    )
    path = directory / FOLDER / f"{manifest.first:016}.jsonl.zst"
    write_new(path, compressed)
    encoded = msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
    write_new(manifest_path(directory, manifest.first), encoded)
    return Segment(path, manifest, hashlib.sha256(encoded).hexdigest())


def load(directory: Path) -> list[Segment]:
    """Every sealed segment in order. Raises ArchiveDamaged where a manifest is unreadable or missing, or the chain broken."""
    found: list[Segment] = []
    after, prev = 0, GENESIS
    for path in sorted((directory / FOLDER).glob("*.json")):
        segment = _read(path, after)
        if segment.manifest.first != after + 1 or segment.manifest.last <= after:
            raise ArchiveDamaged(after + 1, f"no segment begins at sequence {after + 1}; the next is {path.name}")
        if segment.manifest.prev != prev:
            raise ArchiveDamaged(after + 1, f"{FOLDER}/{path.name} does not follow the manifest before it")
        found.append(segment)
        after, prev = segment.manifest.last, segment.manifest_sha256
    return found


def manifest_path(directory: Path, first: int) -> Path:
    """Return the path of the manifest of the segment that begins at a sequence; the file need not exist."""
    return directory / FOLDER / f"{first:016}.json"


def _read(path: Path, after: int) -> Segment:
    try:
        encoded = path.read_bytes()
        manifest = _manifest.decode(encoded)
        if manifest.v != VERSION or path.stem != f"{manifest.first:016}":
            raise ValueError(f"version {manifest.v}, first sequence {manifest.first}")
        if len(manifest.tree_peaks()) != manifest.last.bit_count():
            raise ValueError(f"{len(manifest.peaks)} peaks for {manifest.last} lines")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ArchiveDamaged(after + 1, f"{FOLDER}/{path.name}: not a manifest ({error})") from error
    return Segment(path.with_name(f"{path.stem}.jsonl.zst"), manifest, hashlib.sha256(encoded).hexdigest())
