"""New log from an archive or an export: the same commits at the same sequences, so that every cursor and every cause still
holds.

An old stream is never mended: it may be evidence. The new stream must be empty. Commits missing from the source are
lost, and `restore` returns the new end of the log. Services start on it as after any restart. Commands that they had
consumed are not restored, so the CMD stream continues behind the last command that the log names.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import structlog

from fairlead_bus import snapshots
from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.port import Bus, BusError, LogDamaged, OutcomeUnknown, StaleWriter, Stored, Unavailable
from fairlead_replay.archive.contents import ArchiveContents, is_archive
from fairlead_replay.audit import SNAPSHOTS, Seen, counted, unseen, verify_export
from fairlead_replay.export import MANIFEST_FILE, decode_line, read_export
from fairlead_replay.fold import commits_of
from fairlead_schemas.wire import subjects

#: A server that fails while the log is written is waited for; between two tries.
RESUME_S, RESUME_PAUSE_S = 60.0, 0.5

log = structlog.get_logger()


class NotEmpty(ValueError):
    """A stream that should be made from an archive holds something already."""


async def restore(bus: Bus, directory: Path, seen: Seen = unseen, *, through: int | None = None) -> int:
    """Write the commits of an archive or an export, up to the sequence `through`, into the bus's empty log and return the last sequence. Raises NotEmpty,
    ArchiveDamaged, NoArchive, ExportError, LogDamaged; Unavailable and other BusErrors, after which a new attempt needs
    new, empty streams."""
    read = _source(directory)

    def source() -> Iterator[Stored]:
        return islice(read(), through)

    last = consumed = 0
    for placed in commits_of(source()):  # all of it is looked at before anything is written
        last, consumed = placed.sequence, max(consumed, placed.commit.cursors.get(subjects.CMD, 0))
    await bus.ensure()
    await _check_empty(bus, subjects.LOG)
    await _check_empty(bus, subjects.CMD)
    await _fill(bus, source, last, seen)
    await bus.advance(subjects.CMD, consumed)
    await snapshots.forget(bus, SNAPSHOTS)
    return last


async def _fill(bus: Bus, source: Callable[[], Iterator[Stored]], last: int, seen: Seen) -> None:
    """Write the whole log. A server that fails meanwhile is waited for: what it has is kept, since each commit can be stored at its own
    sequence alone. Raises BusError where nothing is stored any more for RESUME_S, or something else writes."""
    loop = asyncio.get_running_loop()
    done, moved = 0, loop.time()
    while done < last:
        rest = (each for each in counted(source(), last, seen) if each.sequence > done)
        try:
            done = await bus.fill(subjects.LOG, ((each.subject, each.payload) for each in rest), after=done)
        except (Unavailable, OutcomeUnknown, StaleWriter) as error:
            log.warning("the log is not written further, trying again", sequence=done, reason=str(error))
            await asyncio.sleep(RESUME_PAUSE_S)
            found = await retry_until_available(lambda: bus.state(subjects.LOG), limit_s=RESUME_S)
            if found.last > done:
                moved = loop.time()
            elif loop.time() - moved > RESUME_S:
                raise
            done = found.last
            await _check_own(bus, source, done)


async def _check_own(bus: Bus, source: Callable[[], Iterator[Stored]], sequence: int) -> None:
    """Raises BusError unless the newest commit of the new log is the source's of that sequence."""
    stored = (
        await retry_until_available(lambda: bus.read(subjects.LOG, sequence), limit_s=RESUME_S) if sequence else None
    )
    wanted = next((each for each in source() if each.sequence == sequence), None)
    if sequence and (stored is None or wanted is None or stored.payload != wanted.payload):
        raise BusError(f"the new log has another commit at sequence {sequence}: something else writes this log")


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
