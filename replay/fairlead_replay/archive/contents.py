"""Contents of an archive's directory, for reading only. Start at `Shelf`.

archive.json       the log's origin, and the public key of the signer of its checkpoints
segments/          sealed pieces of the log (segments.py)
tail.jsonl         lines that are not sealed yet, in the same form, each fsynced with those that arrived with it
checkpoints        the book of signed checkpoints (checkpoints.py)
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from fairlead_replay.archive import checkpoints, segments
from fairlead_replay.archive.checkpoints import BadNote, Verifier, read_verifier
from fairlead_replay.archive.segments import ArchiveDamaged, Segment

VERSION = 1
IDENTITY, TAIL, BOOK = "archive.json", "tail.jsonl", "checkpoints"


class NoArchive(ValueError):
    """A directory is no archive; the message names the file and says what was expected."""


class ArchiveIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """archive.json."""

    v: int
    #: The public key in the spelling of checkpoints.py; its name is the log's.
    key: str


_identity = msgspec.json.Decoder(ArchiveIdentity)


class ArchiveContents:
    """Archive on disk, for reading. Raises NoArchive where the directory has none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.verifier = _read_identity(directory)

    @cached_property
    def segments(self) -> list[Segment]:
        """Sealed segments in order. Raises ArchiveDamaged where their manifests do not fit together."""
        return segments.load(self.directory)

    @property
    def sealed(self) -> int:
        """Last sequence in a sealed segment; 0 without one."""
        return self.segments[-1].manifest.last if self.segments else 0

    def pieces(self) -> Iterator[Segment | list[bytes]]:
        """Segments in order, their files checked, and last the tail's lines without newlines. What an archiver seals while
        this is read comes as a segment, once. Raises ArchiveDamaged at the first that is not there."""
        after = 0
        while True:
            for segment in self.segments:
                if segment.manifest.last > after:
                    segment.check_file()
                    yield segment
                    after = segment.manifest.last
            # Lines that a crash between sealing and emptying the tail has left in both are the segment's.
            tail = [line for number, line in self.unsealed() if number > after]
            if not segments.manifest_path(self.directory, after + 1).exists():
                yield tail
                return
            del self.segments  # more was sealed, and the tail may have been emptied before it was read

    def lines(self) -> Iterator[bytes]:
        """All lines of the log in order, each without its newline. Raises ArchiveDamaged at the first that is not there."""
        for piece in self.pieces():
            if isinstance(piece, Segment):
                for line in piece.lines():
                    yield line[:-1]
            else:
                yield from piece

    def unsealed(self) -> Iterator[tuple[int, bytes]]:
        """(the sequence that it says, line) of every whole line of tail.jsonl. Raises ArchiveDamaged."""
        path = self.directory / TAIL
        if not path.exists():
            return
        at = self.sealed
        with path.open("rb") as file:
            while (line := file.readline(segments.LINE_BYTES_MAX)).endswith(b"\n"):
                try:
                    at = msgspec.json.decode(line, type=_Numbered).sequence
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise ArchiveDamaged(at + 1, f"{TAIL}: a line does not decode: {error}") from error
                yield at, line[:-1]
        if len(line) == segments.LINE_BYTES_MAX:
            raise ArchiveDamaged(at + 1, f"{TAIL}: a line is longer than {segments.LINE_BYTES_MAX} bytes")

    def notes(self) -> list[str]:
        """The book's checkpoints, oldest first, unchecked."""
        return read_notes(self.directory / BOOK)


class _Numbered(msgspec.Struct, frozen=True):
    sequence: int


def read_notes(path: Path) -> list[str]:
    """The checkpoints of a book; none where there is no such file. Raises NoArchive for one that cannot be read."""
    try:
        return checkpoints.read_book(path.read_bytes().decode(errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NoArchive(f"{path}: expected a book of checkpoints ({error})") from error


def is_archive(directory: Path) -> bool:
    """True for a directory that an archiver has begun."""
    return (directory / IDENTITY).exists()


def _read_identity(directory: Path) -> Verifier:
    path = directory / IDENTITY
    try:
        found = _identity.decode(path.read_bytes())
        if found.v != VERSION:
            raise BadNote(f"version {found.v}, this reader knows {VERSION}")
        return read_verifier(found.key)
    except (OSError, msgspec.MsgspecError, BadNote, UnicodeDecodeError) as error:
        raise NoArchive(f"{path}: not an archive's ({error})") from error
