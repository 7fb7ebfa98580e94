"""Verification for `audit verify` with an archive: compares log, archive and signed checkpoints. The shell around
`agreement.py`.

    verify_archive(directory, ...) -> Report               the archive alone
    verify_together(bus, directory, ...) -> Report         and the log on the bus, and the snapshots in its store
    verify_with_export(export, directory, ...) -> Report   and an exported log

Damage never raises: it is part of the report.
"""

from pathlib import Path
from typing import NamedTuple

from fairlead_bus.port import Bus, LogDamaged
from fairlead_replay.archive.agreement import Disagreement, Marks, Signed, Telling
from fairlead_replay.archive.checkpoints import open_checkpoint
from fairlead_replay.archive.kept_states import KeptStates
from fairlead_replay.archive.notes import BadNote, Verifier
from fairlead_replay.archive.segments import ArchiveDamaged, Segment
from fairlead_replay.archive.shelf import BOOK, Shelf, read_notes
from fairlead_replay.audit import read_log
from fairlead_replay.export import ExportError, decode_line, read_export


class Report(NamedTuple):
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
    marks: Marks
    found: list[Disagreement]
    by_size: dict[int, str]


def verify_archive(directory: Path, *, key: Verifier | None = None, known: tuple[Path, ...] = ()) -> Report:
    """Check an archive by itself and against checkpoints. `key`: the public key that the auditor was given (None: the one
    that the archive names itself). `known`: books of checkpoints from elsewhere. Raises NoArchive."""
    notes, archive = _read_archive(directory, key, known)
    return _report(directory, key, notes, archive, None, [])


async def verify_together(
    bus: Bus, directory: Path, *, key: Verifier | None = None, known: tuple[Path, ...] = ()
) -> Report:
    """Verify like `verify_archive`, and also the log on the bus and its snapshots. Raises NoArchive, Unavailable."""
    notes, archive = _read_archive(directory, key, known)
    live = Telling("log", notes.marks, archive)
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
) -> Report:
    """`verify_archive`, and an exported log in the place of the one on the bus. Raises NoArchive, ExportError."""
    notes, archive = _read_archive(directory, key, known)
    told = Telling("log", notes.marks, archive)
    try:
        for stored in read_export(export):
            told.take(stored)
    except ExportError as error:
        told.damaged(told.size + 1, str(error))
    told.end()
    return _report(directory, key, notes, archive, told, [])


def _read_archive(directory: Path, key: Verifier | None, known: tuple[Path, ...]) -> tuple[_Notes, Telling]:
    shelf = Shelf(directory)
    notes = _read_all_notes(directory, key or shelf.verifier, known)
    archive = Telling("archive", notes.marks)
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


def _take_piece(piece: Segment | list[bytes], archive: Telling) -> None:
    if isinstance(piece, Segment):
        for line in piece.lines():
            archive.take(decode_line(line), line[:-1])
        _check_manifest(piece, archive)
    else:
        for line in piece:
            archive.take(decode_line(line), line)


def _check_manifest(segment: Segment, archive: Telling) -> None:
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
    marks = Marks(signed)
    return _Notes(marks, found + marks.found, by_size)


def _report(
    directory: Path,
    key: Verifier | None,
    notes: _Notes,
    archive: Telling,
    live: Telling | None,
    more: list[Disagreement],
) -> Report:
    found = [*notes.found, *archive.found, *(live.found if live else []), *more]
    covered = max(archive.covered, live.covered if live else 0)
    newest = notes.marks.by_size.get(covered)
    return Report(
        ok=not found, archived=archive.size, events=archive.audit.events, log=live.size if live else -1,
        checkpoints=len(notes.marks.by_size), covered=covered, signed_at=newest.checkpoint.signed_at if newest else "",
        key=(key or Shelf(directory).verifier).spelled, found=found, newest=notes.by_size.get(covered, ""),
    )  # fmt: skip
