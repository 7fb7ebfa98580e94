"""Two snapshots are kept, in turn, over any number of restarts."""

import asyncio

from fairlead_bus import snapshots
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus
from fairlead_bus.snapshots import Keeper, Snapshot
from fairlead_schemas import subjects


async def kept(bus: Bus) -> list[int]:
    """Where the snapshots that there are stand, newest first."""
    return [found.sequence for found in await snapshots.load_all(bus, "queue", created="c", schema="1")]


async def live_once(bus: Bus, *sequences: int, created: str = "c") -> list[Snapshot]:
    """One process's life: it takes up what there is, and saves at these sequences."""
    at = iter(sequences)
    keeper = Keeper(bus, "queue", "1", lambda: Snapshot(next(at), {}, b"state"))
    found = await keeper.load(created)
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


async def test_snapshots_of_another_log_are_overwritten_first() -> None:
    """Nothing of this log is there to be kept; then they go on in turn."""
    bus = MemoryHub().connect()
    await live_once(bus, 100, 200, created="another")
    assert await live_once(bus, 1) == []
    await live_once(bus, 2)
    assert await kept(bus) == [2, 1]


async def test_a_damaged_newest_one_is_overwritten_before_the_one_that_holds() -> None:
    """It verifies no more, so it is not the newest."""
    bus = MemoryHub().connect()
    await live_once(bus, 1, 2)
    (newest, _) = await snapshots.load_all(bus, "queue", created="c", schema="1")
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

    keeper = Keeper(bus, "queue", "1", take, events_max=10)
    await keeper.load("c")
    for events, stored in [(9, 0), (1, 1), (19, 1), (1, 2), (19, 2), (1, 3)]:
        keeper.count(events)
        keeper.save_when_due()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(taken) == stored
