"""Verification for `audit verify` with an archive: compares log, archive and signed checkpoints; and check of the
services' snapshots against the log: each state from which a service would start must equal the fold. The shell around
`agreement.py`.

    verify_archive(directory, ...) -> Report               the archive alone
    verify_together(bus, directory, ...) -> Report         and the log on the bus, and the snapshots in its store
    verify_with_export(export, directory, ...) -> Report   and an exported log

Damage never raises: it is part of the report.

An attacker with control of the bus's server can put an older or another state into the store, and a service would
continue from it. A fold of the log from its beginning detects that.
"""

from pathlib import Path
from typing import NamedTuple

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.port import Bus, LogDamaged
from fairlead_bus.snapshots import Snapshot
from fairlead_replay.archive.agreement import Disagreement, LogCopy, Signed, SignedCheckpoints
from fairlead_replay.archive.checkpoints import BadNote, Verifier, open_checkpoint
from fairlead_replay.archive.contents import BOOK, ArchiveContents, read_notes
from fairlead_replay.archive.segments import ArchiveDamaged, Segment
from fairlead_replay.audit import read_log
from fairlead_replay.export import ExportError, decode_line, read_export
from fairlead_replay.fold import CORES, FoldedCluster, state_hash
from fairlead_schemas.wire.commit import decode_commit


class KeptStates:
    """Comparison of kept states with the log: takes commits in order, and compares each state when the fold reaches its
    sequence.
    """

    def __init__(self, stored: list[tuple[str, Snapshot]]) -> None:
        self._kept = stored
        self._cluster = FoldedCluster()
        self._found: list[Disagreement] = []
        self._broken = False
        self.checked = 0

    @classmethod
    async def of(cls, bus: Bus) -> "KeptStates":
        """All that belong to this log. Raises Unavailable."""
        log_id = await identity(bus)
        return cls(
            [
                (writer, snapshot)
                for writer, core in CORES.items()
                for snapshot in await snapshots.load_all(bus, writer, log_id=log_id, schema=core.schema)
            ]
        )

    def take(self, sequence: int, payload: bytes) -> None:
        """The next commit of the log."""
        if self._broken or sequence > max((snapshot.sequence for _, snapshot in self._kept), default=0):
            return
        try:
            self._cluster.evolve(sequence, decode_commit(payload))
        except Exception:  # noqa: BLE001 -- a log that is not whole may break a fold in any way, and its own check says how
            self._broken = True
            return
        for writer, snapshot in self._kept:
            if snapshot.sequence == sequence:
                self._check(writer, snapshot)

    def end(self) -> list[Disagreement]:
        """Return the disagreements found, including states beyond the log's end."""
        for writer, snapshot in self._kept:
            if snapshot.sequence > self._cluster.sequence and not self._broken:
                what = f"{writer}'s state is of sequence {snapshot.sequence}, beyond the log's end: the log was cut or set back"
                self._found.append(Disagreement("snapshot", snapshot.sequence, what))
        return self._found

    def _check(self, writer: str, snapshot: Snapshot) -> None:
        self.checked += 1
        try:
            found = state_hash(CORES[writer].restore(snapshot.state).snapshot())
        except Exception:  # noqa: BLE001 -- bytes that somebody else wrote; whatever they break, they are no state
            found = ""
        if found != self._cluster.state_hashes()[writer]:
            what = (
                f"{writer}'s state that is kept for sequence {snapshot.sequence} is not what the log amounts to there"
            )
            self._found.append(Disagreement("snapshot", snapshot.sequence, what))


class ArchiveReport(NamedTuple):
    """The outcome. `found` is empty where everything agrees; sorted by place and sequence."""

    ok: bool
    #: Last sequences, and events of the archive; `log` is -1 where the bus was not asked.
    archived: int
    events: int
    log: int
    #: How many signed checkpoints there are, and how far the newest that was checked reaches.
    checkpoints: int
    covered: int
    signed_at: str
    key: str
    found: list[Disagreement]
    #: The newest checkpoint that holds, as a note: what an auditor keeps.
    newest: str


class _Notes(NamedTuple):
    marks: SignedCheckpoints
    found: list[Disagreement]
    by_size: dict[int, str]


def verify_archive(directory: Path, *, key: Verifier | None = None, known: tuple[Path, ...] = ()) -> ArchiveReport:
    """Check an archive by itself and against checkpoints. `key`: the public key that the auditor was given (None: the one
    that the archive names itself). `known`: books of checkpoints from elsewhere. Raises NoArchive."""
    notes, archive = _read_archive(directory, key, known)
    return _report(directory, key, notes, archive, None, [])


async def verify_together(
    bus: Bus, directory: Path, *, key: Verifier | None = None, known: tuple[Path, ...] = ()
) -> ArchiveReport:
    """Verify like `verify_archive`, and also the log on the bus and its snapshots. Raises NoArchive, Unavailable."""
    notes, archive = _read_archive(directory, key, known)
    live = LogCopy("log", notes.marks, archive)
    states = await KeptStates.of(bus)
    try:
        async for stored in read_log(bus):
            live.take(stored)
            states.take(stored.sequence, stored.payload)
    except LogDamaged as error:
        live.damaged(error.sequence, str(error))
    live.end()
    return _report(directory, key, notes, archive, live, states.end())


def verify_with_export(
    export: Path, directory: Path, *, key: Verifier | None = None, known: tuple[Path, ...] = ()
) -> ArchiveReport:
    """`verify_archive`, and an exported log in the place of the one on the bus. Raises NoArchive, ExportError."""
    notes, archive = _read_archive(directory, key, known)
    log_copy = LogCopy("log", notes.marks, archive)
    try:
        for stored in read_export(export):
            log_copy.take(stored)
    except ExportError as error:
        log_copy.damaged(log_copy.size + 1, str(error))
    log_copy.end()
    return _report(directory, key, notes, archive, log_copy, [])


def _read_archive(directory: Path, key: Verifier | None, known: tuple[Path, ...]) -> tuple[_Notes, LogCopy]:
    shelf = ArchiveContents(directory)
    notes = _read_all_notes(directory, key or shelf.verifier, known)
    archive = LogCopy("archive", notes.marks)
    if key is not None and key.spelled != shelf.verifier.spelled:
        archive.found.append(
            Disagreement("archive", 0, f"archive.json names the key {shelf.verifier.spelled}, expected {key.spelled}")
        )
    try:
        for piece in shelf.pieces():
            _take_piece(piece, archive)
    except ArchiveDamaged as error:
        archive.damaged(error.sequence, str(error))
    except ExportError as error:
        archive.damaged(archive.size + 1, str(error))
    archive.end()
    return notes, archive


def _take_piece(piece: Segment | list[bytes], archive: LogCopy) -> None:
    if isinstance(piece, Segment):
        for line in piece.lines():
            archive.take(decode_line(line), line[:-1])
        _check_manifest(piece, archive)
    else:
        for line in piece:
            archive.take(decode_line(line), line)


def _check_manifest(segment: Segment, archive: LogCopy) -> None:
    """Check that the state in a manifest for the next start equals the state computed from its lines. Raises ArchiveDamaged."""
    manifest = segment.manifest
    heads = {writer: links.newest for writer, links in archive.audit.links.items()}
    if archive.tree.peaks != manifest.tree_peaks() or heads != manifest.chain_heads():
        raise ArchiveDamaged(
            manifest.first,
            f"the manifest of sequences {manifest.first} to {manifest.last} does not have its lines' hashes",
        )


def _read_all_notes(directory: Path, key: Verifier, known: tuple[Path, ...]) -> _Notes:
    signed: list[Signed] = []
    found: list[Disagreement] = []
    by_size: dict[int, str] = {}
    for path in (directory / BOOK, *known):
        for number, note in enumerate(read_notes(path), start=1):
            try:
                checkpoint = open_checkpoint(note, key)
            except BadNote as error:
                found.append(Disagreement("checkpoint", 0, f"{path}, checkpoint {number}: {error}"))
            else:
                signed.append(Signed(checkpoint, str(path)))
                by_size.setdefault(checkpoint.size, note)
    marks = SignedCheckpoints(signed)
    return _Notes(marks, found + marks.found, by_size)


def _report(
    directory: Path,
    key: Verifier | None,
    notes: _Notes,
    archive: LogCopy,
    live: LogCopy | None,
    more: list[Disagreement],
) -> ArchiveReport:
    found = [*notes.found, *archive.found, *(live.found if live else []), *more]
    covered = max(archive.covered, live.covered if live else 0)
    newest = notes.marks.by_size.get(covered)
    return ArchiveReport(
        ok=not found,
        archived=archive.size,
        events=archive.audit.events,
        log=live.size if live else -1,
        checkpoints=len(notes.marks.by_size),
        covered=covered,
        signed_at=newest.checkpoint.signed_at if newest else "",
        key=(key or ArchiveContents(directory).verifier).spelled,
        found=found,
        newest=notes.by_size.get(covered, ""),
    )
