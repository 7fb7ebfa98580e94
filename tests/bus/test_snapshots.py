"""Two snapshots are kept, in turn, over any number of restarts."""

import asyncio

import pytest

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus, LogDamaged
from fairlead_bus.snapshots import Snapshot, SnapshotWriter
from fairlead_schemas.wire import subjects
from tests.bus.commits import commit


async def kept(bus: Bus) -> list[int]:
    """Return the sequences of the stored snapshots, newest first."""
    return [found.sequence for found in await snapshots.load_all(bus, "queue", log_id="", schema="1")]


async def live_once(bus: Bus, *sequences: int) -> list[Snapshot]:
    """One process's life: it takes up what there is, and saves at these sequences."""
    at = iter(sequences)
    keeper = SnapshotWriter(bus, "queue", "1", lambda: Snapshot(next(at), {}, b"state"))
    found = await keeper.load()
    for _ in sequences:
        await keeper.save()
    return found


async def test_restarts_that_save_once_each_leave_the_newest_two() -> None:
    """Each clean stop saves one; the one before it must survive, since the newest may turn out to be damaged."""
    bus = MemoryHub().connect()
    for sequence in range(10, 15):
        await live_once(bus, sequence)
        assert await kept(bus) == [sequence, sequence - 1][: 1 + (sequence > 10)]


async def test_lives_of_any_length_never_overwrite_the_newest() -> None:
    """Also where a life saved an odd number, or none."""
    bus = MemoryHub().connect()
    for life, left in [((1,), [1]), ((2, 3), [3, 2]), ((), [3, 2]), ((4, 5, 6), [6, 5]), ((7,), [7, 6])]:
        await live_once(bus, *life)
        assert await kept(bus) == left


async def test_a_snapshot_names_the_log_by_its_first_commit() -> None:
    """Not by the stream's creation time, which a damaged meta.inf changes. One of an empty log fits every log."""
    hub = MemoryHub()
    bus = hub.connect()
    await live_once(bus, 0)
    await bus.append(subjects.LOG, subjects.log("queue"), commit(1, None))
    log_id = await identity(bus)
    await live_once(bus, 1)
    hub.streams[subjects.LOG].created = "another day"
    found = await snapshots.load_all(bus, "queue", log_id=log_id, schema="1")
    assert [one.sequence for one in found] == [1, 0]
    assert [one.sequence for one in await snapshots.load_all(bus, "queue", log_id="f" * 64, schema="1")] == [0]


@pytest.mark.parametrize(("log_id", "last", "words"), [("", 0, "backwards"), ("f" * 64, 5, "another first commit")])
async def test_a_snapshot_without_its_log_is_damage(log_id: str, last: int, words: str) -> None:
    """An empty log under a snapshot was lost, and one with another first commit was replaced: a fresh start would hide
    it."""
    bus = MemoryHub().connect()
    await bus.append(subjects.LOG, subjects.log("queue"), commit(1, None))
    found = await live_once(bus, 1)
    found = await snapshots.load_or_fold(bus, "queue", schema="1")
    with pytest.raises(LogDamaged, match=words):
        snapshots.check(found, log_id=log_id, last=last)
    snapshots.check(found, log_id=await identity(bus), last=1)


async def test_a_damaged_newest_one_is_overwritten_before_the_one_that_holds() -> None:
    """It verifies no more, so it is not the newest."""
    bus = MemoryHub().connect()
    await live_once(bus, 1, 2)
    (newest, _) = await snapshots.load_all(bus, "queue", log_id="", schema="1")
    await bus.put_object(subjects.SNAPSHOT, f"queue-{newest.turn}", b"damaged")
    assert await kept(bus) == [1]
    await live_once(bus, 3)
    assert await kept(bus) == [3, 1]


async def test_a_large_state_is_stored_less_often() -> None:
    """One event at least for so many bytes of the last snapshot: a state that grows is not stored all the time."""
    bus, taken = MemoryHub().connect(), list[int]()

    def take() -> Snapshot:
        taken.append(1)
        return Snapshot(len(taken), {}, b"s" * (20 * snapshots.BYTES_PER_EVENT))

    keeper = SnapshotWriter(bus, "queue", "1", take, events_max=10)
    await keeper.load()
    for events, stored in [(9, 0), (1, 1), (19, 1), (1, 2), (19, 2), (1, 3)]:
        keeper.count(events)
        keeper.save_when_due()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(taken) == stored
