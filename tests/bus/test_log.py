"""The log's rules: contiguity, hash chain, read-back. Each breach is seen, and named by its sequence."""

import asyncio

import pytest
from structlog.testing import capture_logs

from fairlead_bus import log
from fairlead_bus.log import RETRY_S, FencedWriter, LogReader
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus, LogDamaged, StaleWriter, Stored, StreamState
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit
from tests.bus.commits import chain, commit
from tests.bus.worlds import BusWorld

QUEUE = subjects.log("queue")


async def write(bus: Bus, commits: list[bytes], *, writer: str = "queue") -> None:
    """Put commits into the log as they are."""
    for payload in commits:
        await bus.append(subjects.LOG, subjects.log(writer), payload)


async def read_until_damage(bus: Bus) -> LogDamaged:
    """Read until the reader refuses; what it says."""
    reader = LogReader(bus)
    with pytest.raises(LogDamaged) as caught:  # noqa: PT012 -- at whichever read meets it
        while True:
            list(await asyncio.wait_for(reader.next(), 60))
    await reader.close()
    return caught.value


async def test_reader_folds_two_writers_chains(world: BusWorld):
    """Each writer has its own chain; the reader knows both heads."""
    bus = await world.connect()
    queue, placer = chain(3), chain(2, writer="placer")
    await write(bus, queue[:2])
    await write(bus, placer, writer="placer")
    await write(bus, queue[2:])
    reader = LogReader(bus)
    read: list[int] = []
    while len(read) < 5:
        read += [folded.seq for folded in await asyncio.wait_for(reader.next(), 60)]
    assert read == [1, 2, 3, 4, 5]
    assert {writer: (head.n, head.sequence) for writer, head in reader.chain.heads.items()} == {
        "queue": (3, 5),
        "placer": (2, 4),
    }
    await reader.close()


async def test_gap_stops_the_reader(world: BusWorld):
    """A removed commit is named by its own sequence."""
    bus = await world.connect()
    await write(bus, chain(5))
    await world.remove(bus, 3)
    assert (await read_until_damage(bus)).sequence == 3


async def test_wrong_hash_stops_the_reader(world: BusWorld):
    """A replaced commit: the chain names the one whose hash does not fit."""
    bus = await world.connect()
    first, second, _ = chain(3)
    forged = commit(2, first, text="forged")
    await write(bus, [first, forged, commit(3, second)])
    assert (await read_until_damage(bus)).sequence == 2


async def test_repeated_commit_number_stops_the_reader(world: BusWorld):
    """The same commit twice is damage, not a duplicate to skip."""
    bus = await world.connect()
    first = chain(1)[0]
    await write(bus, [first, first])
    assert (await read_until_damage(bus)).sequence == 2


async def test_commit_under_another_writers_subject_stops_the_reader(world: BusWorld):
    """Its writer and its subject must agree."""
    bus = await world.connect()
    await write(bus, chain(1), writer="placer")
    assert (await read_until_damage(bus)).sequence == 1


@pytest.mark.parametrize("change", [(b'"v":2', b'"v":1'), (b"CommandRejected", b"CommandForgotten"), (b"{", b"[")])
async def test_undecodable_commit_stops_the_reader(world: BusWorld, change: tuple[bytes, bytes]):
    """An unknown version, an unknown type and broken JSON are all a stop, never a skip."""
    bus = await world.connect()
    first, second = chain(2)
    await write(bus, [first, second.replace(*change, 1)])
    assert (await read_until_damage(bus)).sequence == 2


async def test_log_that_went_backwards_stops_the_reader(world: BusWorld):
    """A reader whose cursor is beyond the log's end refuses; it never rewinds."""
    bus = await world.connect()
    await write(bus, chain(3))
    reader = LogReader(bus)
    while reader.chain.last < 3:
        list(await asyncio.wait_for(reader.next(), 60))
    await world.lose_log()
    with pytest.raises(LogDamaged) as caught:
        list(await asyncio.wait_for(reader.next(), 20))
    assert "went back" in str(caught.value)
    await reader.close()


async def test_writer_settles_a_stored_unknown_outcome_by_reading_back(world: BusWorld):
    """The first copy landed after all: the writer's retry finds its own commit and takes its sequence."""
    bus = await world.connect()
    first, second = chain(2)
    writer = FencedWriter(bus, "queue")
    assert await writer.append(first, 0) == 1
    assert await bus.append(subjects.LOG, QUEUE, second, expected=1) == 2  # the copy whose answer was lost
    assert await asyncio.wait_for(writer.append(second, 1), 60) == 2
    assert (await bus.state(subjects.LOG)).last == 2


async def test_writer_steps_down_when_another_has_written(world: BusWorld):
    """Read-back finds another's commit: this writer is stale and nothing of it is stored."""
    bus = await world.connect()
    first = chain(1)[0]
    mine, theirs = commit(2, first, text="mine"), commit(2, first, text="theirs")
    await write(bus, [first, theirs])
    with pytest.raises(StaleWriter):
        await asyncio.wait_for(FencedWriter(bus, "queue").append(mine, 1), 60)
    assert (await bus.state(subjects.LOG)).last == 2


async def test_writer_waits_while_a_deposed_server_lacks_its_newest_commit(monkeypatch: pytest.MonkeyPatch):
    """Of several copies, one that was cut off is read back from; it is asked again, and damage is what stays so."""
    bus = MemoryHub().connect()
    first, second = chain(2)
    await write(bus, [first, second])
    state, last, stale = bus.state, bus.last, [True, True, False]

    async def of_three(stream: str) -> StreamState:
        return (await state(stream))._replace(copies=3)

    async def sometimes_stale(stream: str, subject: str) -> Stored | None:
        newest = await last(stream, subject)
        return Stored(1, subject, first) if (stale.pop(0) if len(stale) > 1 else stale[0]) else newest

    monkeypatch.setattr(bus, "state", of_three)
    monkeypatch.setattr(bus, "last", sometimes_stale)
    assert await asyncio.wait_for(FencedWriter(bus, "queue").append(second, 1), 60) == 2
    stale[:] = [True]
    monkeypatch.setattr(log, "STALE_S", 0.3)
    with pytest.raises(LogDamaged, match="below its own"):
        await asyncio.wait_for(FencedWriter(bus, "queue").append(second, 1), 60)


async def test_writer_waits_out_a_lasting_refusal_and_says_so_once(monkeypatch: pytest.MonkeyPatch):
    """A server that cannot store is asked again in peace, not in a tight loop; one line when it begins, one at its end."""
    hub, slept = MemoryHub(), list[float]()

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(5):
        hub.lose_next_answer(stored=False)
    with capture_logs() as lines:
        assert await FencedWriter(hub.connect(), "queue").append(chain(1)[0], 0) == 1
    assert slept.count(RETRY_S) == 5
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "append not stored, trying again"),
        ("info", "append stored after all"),
    ]


async def test_writer_logs_that_an_unknown_outcome_was_stored():
    """One line with the sequence; nothing is appended twice."""
    hub = MemoryHub()
    hub.lose_next_answer(stored=True)
    bus = hub.connect()
    with capture_logs() as lines:
        assert await FencedWriter(bus, "queue").append(chain(1)[0], 0) == 1
    assert [(line["event"], line["sequence"]) for line in lines] == [("append found stored", 1)]
    assert (await bus.state(subjects.LOG)).last == 1


async def test_server_restart_amid_appends_loses_and_doubles_nothing(world: BusWorld):
    """Three kills of the server while a writer appends: every acknowledged commit is there, once, in order."""
    bus = await world.connect()
    writer, commits, acknowledged = FencedWriter(bus, "queue"), chain(400), list[int]()

    async def append_all() -> None:
        expected = 0
        for payload in commits:
            expected = await writer.append(payload, expected)
            acknowledged.append(expected)
            await asyncio.sleep(0.002)

    appending = asyncio.create_task(append_all())
    for _ in range(3):
        await asyncio.sleep(0.25)
        await world.stop_server()
        await world.start_server()
    await asyncio.wait_for(appending, 60)
    assert acknowledged == list(range(1, 401))
    reader, read = LogReader(bus), list[bytes]()
    while len(read) < 400:
        read += [folded.payload for folded in await asyncio.wait_for(reader.next(), 60)]
    assert [decode_commit(payload).n for payload in read] == list(range(1, 401))
    await reader.close()
