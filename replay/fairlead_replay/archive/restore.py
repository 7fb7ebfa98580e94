"""New log from an archive or an export: the same commits at the same sequences, so that every cursor and every cause still
holds.

An old stream is never mended: it may be evidence. The new stream must be empty. Commits missing from the source are
lost, and `restore` returns the new end of the log. Services start on it as after any restart. Commands that they had
consumed are not restored, so the CMD stream continues behind the last command that the log names.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from fairlead_bus import snapshots
from fairlead_bus.log import Chain
from fairlead_bus.port import Bus, BusError, LogDamaged, Stored
from fairlead_replay.archive.contents import ArchiveContents, is_archive
from fairlead_replay.audit import SNAPSHOTS, Seen, counted, unseen, verify_export
from fairlead_replay.export import MANIFEST_FILE, decode_line, read_export
from fairlead_replay.fold import commits_of
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_envelope


class NotEmpty(ValueError):
    """A stream that should be made from an archive holds something already."""


async def restore(bus: Bus, directory: Path, seen: Seen = unseen) -> int:
    """Write the commits of an archive or an export into the bus's empty log and return the last sequence. Raises NotEmpty,
    ArchiveDamaged, NoArchive, ExportError, LogDamaged; Unavailable and other BusErrors, after which a new attempt needs
    a new, empty stream."""
    source = _source(directory)
    count = 0
    for _ in commits_of(source()):
        count += 1  # all of it is looked at before anything is written
    await bus.ensure()
    await _check_empty(bus, subjects.LOG)
    await _check_empty(bus, subjects.CMD)
    chain, consumed = Chain(), 0
    for stored in counted(source(), count, seen):
        envelope = decode_envelope(stored.payload)
        before = chain.head(envelope.writer).sequence
        sequence = await bus.append(subjects.LOG, stored.subject, stored.payload, expected=before)
        if sequence != stored.sequence:
            raise BusError(
                f"the server stored sequence {stored.sequence} as {sequence}: something else writes this log"
            )
        chain.extend(stored, envelope)
        consumed = max(consumed, envelope.cursors.get(subjects.CMD, 0))
    await bus.advance(subjects.CMD, consumed)
    await snapshots.forget(bus, SNAPSHOTS)
    return chain.last


def _source(directory: Path) -> Callable[[], Iterator[Stored]]:
    """Return a function that reads the directory's commits from the first on."""
    if not is_archive(directory) and (directory / MANIFEST_FILE).exists():
        verdict = verify_export(directory)
        if not verdict.ok:
            raise LogDamaged(verdict.first_bad, f"the export cannot be trusted: {verdict.what}")
        return lambda: read_export(directory)
    shelf = ArchiveContents(directory)
    return lambda: map(decode_line, shelf.lines())


async def _check_empty(bus: Bus, stream: str) -> None:
    state = await bus.state(stream)
    if state.last != 0:
        raise NotEmpty(
            f"stream {stream} ends at sequence {state.last}, expected an empty one: restore into a new server"
        )
