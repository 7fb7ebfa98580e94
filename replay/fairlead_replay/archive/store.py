"""Growing archive: lines go to its tail, full tails into sealed segments, checkpoints into its book. Start at `Store`.

All data has reached the disk when a method returns. The data on disk is the cursor, so a crash loses and repeats
nothing. Input that does not fit the existing data is refused, never mended: a person has to examine it.
"""

import fcntl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead_bus.log import Chain, LogHead
from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.archive import checkpoints, contents, segments
from fairlead_replay.archive.checkpoints import BadNote, LogCheckpoint, Signer, open_checkpoint
from fairlead_replay.archive.contents import BOOK, IDENTITY, TAIL, ArchiveContents, ArchiveIdentity, NoArchive
from fairlead_replay.archive.merkle import MerkleTree, leaf_hash
from fairlead_replay.archive.segments import ArchiveDamaged, Segment, SegmentManifest
from fairlead_replay.export import ExportError, HeadDoc, decode_line, encode_line
from fairlead_schemas.wire.commit import GENESIS, CommitUndecodable, Envelope, decode_envelope

#: A segment is sealed when it has so many events, or its lines so many bytes.
SEGMENT_EVENTS = 10_000
SEGMENT_BYTES = 16 * 2**20


class ArchiveBusy(RuntimeError):
    """Another process lets this archive grow."""


class Store:
    """The one writer of an archive. Makes it where there is none.

    Raises NoArchive, ArchiveBusy, and ArchiveDamaged for an archive that is not what its signed checkpoints say: it was
    changed, or an older copy of it was put in its place. `copy` is a second book of checkpoints, elsewhere.
    """

    def __init__(
        self,
        directory: Path,
        signer: Signer,
        *,
        copy: Path | None = None,
        segment_events: int = SEGMENT_EVENTS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        (directory / segments.FOLDER).mkdir(parents=True, exist_ok=True)
        self.directory, self.copy = directory, copy
        self._signer = signer
        self._segment_events, self._segment_bytes = segment_events, segment_bytes
        self._lock = (directory / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ArchiveBusy(f"{directory}: another process lets this archive grow") from None
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> None:
        if not contents.is_archive(self.directory):
            segments.write_new(self.directory / IDENTITY, _identity(self._signer))
        there = ArchiveContents(self.directory)
        if there.verifier.spelled != self._signer.verifier.spelled:
            raise NoArchive(
                f"{self.directory} is signed by {there.verifier.spelled}, not by {self._signer.verifier.spelled}"
            )
        #: How many events were taken since it was opened.
        self.events = 0
        self._sealed: Segment | None = there.segments[-1] if there.segments else None
        before = self._sealed.manifest if self._sealed else None
        self.chain = Chain(before.last, before.chain_heads()) if before else Chain()
        self.tree = MerkleTree(before.last, before.tree_peaks()) if before else MerkleTree()
        self._begin_segment()
        marks = self._signed_marks()
        self._check_mark(marks)
        for line in _whole_tail(there):
            self._take(_decoded(line), line)
            self._check_mark(marks)
        if marks and max(marks) > self.tree.size:
            raise ArchiveDamaged(
                self.tree.size + 1,
                f"{self.directory} ends at sequence {self.tree.size}, but a checkpoint was signed for {max(marks)}: lines were"
                " removed, or an older copy was put in its place; bring the newer one back",
            )
        self.signed = max(marks, default=0)

    # ------------------------------------------------------------------ growing

    @property
    def size(self) -> int:
        """The last sequence that it holds."""
        return self.tree.size

    @property
    def heads(self) -> dict[str, LogHead]:
        """Every writer's newest commit in it."""
        return self.chain.heads

    def add(self, found: Sequence[Stored], *, events_max: int = SEGMENT_EVENTS) -> int:
        """The next commits of the log, until the segment is full or so many events were taken; returns how many commits
        were, all of them on the disk now. Raises LogDamaged for one that does not follow (those before it are kept), OSError."""
        taken, until = len(self._lines), self.events + events_max
        try:
            for stored in found:
                self._take(stored, _line_of(stored))
                if self.full() or self.events >= until:
                    break
        finally:
            new = self._lines[taken:]
            if new:
                segments.append(self.directory / TAIL, b"".join(new))
        return len(new)

    def full(self) -> bool:
        """True when the tail should be sealed."""
        return self._events >= self._segment_events or self._bytes >= self._segment_bytes

    def seal(self) -> Segment | None:
        """Turn the tail into a segment; None where there is nothing to seal."""
        if not self._lines:
            return None
        assert self._first is not None
        assert self._newest is not None
        heads = {w: HeadDoc(n=h.n, hash=h.hash, sequence=h.sequence) for w, h in sorted(self.heads.items())}
        manifest = SegmentManifest(
            v=segments.VERSION,
            first=self.size - len(self._lines) + 1,
            last=self.size,
            events=self._events,
            from_ns=self._first.at_ns,
            to_ns=self._newest.at_ns,
            file_bytes=0,
            sha256="",
            plain_bytes=0,
            prev=self._sealed.manifest_sha256 if self._sealed else GENESIS,
            heads=heads,
            peaks=[peak.hex() for peak in self.tree.peaks],
        )
        self._sealed = segments.seal(self.directory, self._lines, manifest)
        segments.truncate(self.directory / TAIL, 0)
        self._begin_segment()
        return self._sealed

    def sign(self, now_ns: int) -> LogCheckpoint | None:
        """Put a signed checkpoint of all there is into the book; None where the newest one says it already. Call `spread`
        after it."""
        if self.signed == self.size:
            return None
        note = checkpoints.sign(self._signer, self.size, self.tree.root(), now_ns)
        segments.append(self.directory / BOOK, checkpoints.entry(note).encode())
        self.signed = self.size
        return open_checkpoint(note, self._signer.verifier)

    def spread(self) -> None:
        """Append to the copy of the book what it lacks. Raises OSError; the next checkpoint then writes what is still
        missing.
        """
        if self.copy is None:
            return
        with (self.directory / BOOK).open("rb") as book:
            # The copy is the beginning of the book, byte by byte, also where a write to it broke off.
            book.seek(self.copy.stat().st_size if self.copy.exists() else 0)
            missing = book.read()
        if missing:
            segments.append(self.copy, missing)

    def close(self) -> None:
        """Let another process have it."""
        self._lock.close()

    # ------------------------------------------------------------------ taking up what is there

    def _begin_segment(self) -> None:
        self._lines: list[bytes] = []
        self._events = self._bytes = 0
        self._first: Envelope | None = None
        self._newest: Envelope | None = None

    def _take(self, stored: Stored, line: bytes) -> None:
        """Take one line into memory, not yet onto the disk. Raises LogDamaged."""
        try:
            envelope = decode_envelope(stored.payload)
        except CommitUndecodable as error:
            raise LogDamaged(stored.sequence, str(error)) from error
        self.chain.extend(stored, envelope)
        self.tree.add(leaf_hash(line))
        self._lines.append(line + b"\n")
        self._events += len(envelope.events)
        self.events += len(envelope.events)
        self._bytes += len(line) + 1
        self._first = self._first or envelope
        self._newest = envelope

    def _signed_marks(self) -> dict[int, LogCheckpoint]:
        """Return {size: checkpoint} for checkpoints of the book that end behind the sealed segments (`verify` checks all of them).
        Raises ArchiveDamaged for a checkpoint that was not signed by this archive's key, and where the copy of the book
        differs.
        """
        book = _mended(self.directory / BOOK)
        if self.copy is not None and self.copy.exists() and not book.startswith(self.copy.read_bytes()):
            raise ArchiveDamaged(
                self.size + 1,
                f"{self.copy} has checkpoints that {self.directory / BOOK} has not: an older archive was put in its place, or"
                " the copy is another archive's; bring the newer archive back",
            )
        marks: dict[int, LogCheckpoint] = {}
        for note in checkpoints.read_book(book.decode(errors="replace")):
            try:
                if checkpoints.size_of(note) >= self.size:
                    found = open_checkpoint(note, self._signer.verifier)
                    marks[found.size] = found
            except BadNote as error:
                raise ArchiveDamaged(0, f"{self.directory / BOOK}: {error}") from error
        return marks

    def _check_mark(self, marks: dict[int, LogCheckpoint]) -> None:
        mark = marks.get(self.size)
        if mark is not None and mark.root != self.tree.root():
            raise ArchiveDamaged(
                self.size, f"up to sequence {self.size}, {self.directory} differs from its signed checkpoint"
            )


def _identity(signer: Signer) -> bytes:
    return (
        msgspec.json.format(msgspec.json.encode(ArchiveIdentity(v=contents.VERSION, key=signer.verifier.spelled)))
        + b"\n"
    )


def _whole_tail(there: ArchiveContents) -> list[bytes]:
    """The tail's whole lines that are not sealed; what a broken write left behind them is cut off."""
    path = there.directory / TAIL
    if not path.exists():
        segments.append(path, b"")
    lines = list(there.unsealed())
    segments.truncate(path, sum(len(line) + 1 for _, line in lines))
    return [line for number, line in lines if number > there.sealed]


def _mended(book: Path) -> bytes:
    """A book's bytes, after what a broken write has left at its end was cut off."""
    if not book.exists():
        segments.append(book, b"")
    found = book.read_bytes()
    text = found.decode(errors="replace")
    keep = text[: checkpoints.whole(text)].encode()
    if found.startswith(keep) and len(keep) < len(found):
        segments.truncate(book, len(keep))
        return keep
    return found


def _line_of(stored: Stored) -> bytes:
    if b"\n" in stored.payload:
        raise LogDamaged(stored.sequence, "the commit's bytes are not canonical: there is a line break among them")
    return encode_line(stored)[:-1]


def _decoded(line: bytes) -> Stored:
    try:
        return decode_line(line)
    except ExportError as error:
        raise LogDamaged(0, f"{TAIL}: {error}") from error
