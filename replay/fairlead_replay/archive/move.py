"""Move of a cluster from one bus to another: from one server to three, or back.

The log goes by way of an archive, which is verified against both. What is next to the log and not derived from it goes directly:
people, credentials, rules, the record of access, job files and pieces of directories. Samples, output, leases, desired state and
snapshots stay behind. Services are stopped meanwhile: what they commit later would be lost. Start at `move`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead_bus.port import Bus, BusError, Stored
from fairlead_replay.archive.archiver import Archiver
from fairlead_replay.archive.restore import NotEmpty, restore
from fairlead_replay.archive.store import Store
from fairlead_replay.archive.verify import ArchiveReport, verify_together
from fairlead_replay.audit import Seen, unseen
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_envelope

#: Streams that are carried over as they are, beside the log.
CARRIED = (
    subjects.AUDIT,
    *(
        f"KV_{bucket}"
        for bucket in (subjects.PEOPLE, subjects.CREDENTIAL, subjects.NOTIFY, subjects.SPEC, subjects.PIECE)
    ),
)


class MoveRefused(ValueError):
    """A cluster cannot be moved now; the message says what to do first."""


class Moved(NamedTuple):
    """Result of a move: the log's newest sequence, and {stream: messages} of what was carried next to it."""

    sequence: int
    carried: dict[str, int]


async def move(source: Bus, target: Bus, store: Store, directory: Path, seen: Seen = unseen) -> Moved:
    """Archive the source's log into `store` (in `directory`), verify it, restore it into the empty target, verify again, and carry the
    rest. Raises MoveRefused, NotEmpty, BusError, LogDamaged. The source is not changed.
    """
    await check_at_rest(source)
    await _check_empty(target)
    sequence = await Archiver(source, store).catch_up(seen)
    store.close()
    _require(await verify_together(source, directory), "the archive and the log")
    await restore(target, directory, seen)
    _require(await verify_together(target, directory), "the archive and the new log")
    carried = {name: await _carry(source, target, name) for name in CARRIED}
    await check_at_rest(source)
    if (last := (await source.state(subjects.LOG)).last) != sequence:
        raise MoveRefused(f"the log has grown to {last} during the move: stop the services, and move into new servers")
    return Moved(sequence, carried)


async def check_at_rest(bus: Bus) -> None:
    """Raises MoveRefused while a service leads, or has commands that it has not decided."""
    for writer in subjects.WRITERS:
        if await bus.get(subjects.LEASE, writer) is not None:
            raise MoveRefused(f"the {writer} service runs: stop all services, wait some seconds, and try again")
        newest, commit = (
            await bus.last(subjects.CMD, subjects.cmd(writer)),
            await bus.last(subjects.LOG, subjects.log(writer)),
        )
        read = decode_envelope(commit.payload).cursors.get(subjects.CMD, 0) if commit is not None else 0
        if newest is not None and newest.sequence > read:
            raise MoveRefused(
                f"the {writer} service has not decided the command at sequence {newest.sequence} (it has read up to {read}): start it until"
                " it has, then stop it"
            )


async def _check_empty(target: Bus) -> None:
    await target.ensure()
    for stream in (subjects.LOG, subjects.CMD, *CARRIED):
        if last := (await target.state(stream)).last:
            raise NotEmpty(
                f"stream {stream} of the target ends at sequence {last}, expected an empty one: move into new servers"
            )


def _require(report: ArchiveReport, what: str) -> None:
    if not report.ok:
        raise BusError(f"{what} do not agree: {'; '.join(each.what for each in report.found)}")


async def _carry(source: Bus, target: Bus, stream: str) -> int:
    """Append the messages of a stream to the target's, in their order, and return their number."""
    state = await source.state(stream)
    count = state.last - state.first + 1 - state.missing if state.last and state.first <= state.last else 0
    found: list[Stored] = []
    if count:
        tail = await source.tail(stream, after=state.first - 1)
        try:
            while len(found) < count:
                found += await tail.next()
        finally:
            await tail.close()

    def messages() -> Iterator[tuple[str, bytes]]:
        for stored in found:
            yield stored.subject, stored.payload

    await target.fill(stream, messages(), after=0)
    return count
