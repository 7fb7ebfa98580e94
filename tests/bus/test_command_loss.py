"""The stream of commands, lost in part: found by every reader alike, and gone on with once a person has accepted it.

The second half runs against the twin and a real server: what is lost there is lost as a damaged file loses it.
"""

import asyncio

import pytest

from fairlead_bus import command_loss
from fairlead_bus.command_loss import ASIDE, Gap, Inspector, accept_loss, inspect, judge
from fairlead_bus.input_source import CommandSource
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus, CommandsLost, StreamState
from fairlead_bus.service import EXIT_OK, Service
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST
from tests.bus.counting import CountingCore, command
from tests.bus.worlds import BusWorld
from tests.kit.eventually import eventually_async

QUEUE, PLACER = subjects.cmd("queue"), subjects.cmd("placer")


def state(first: int, last: int, missing: int = 0) -> StreamState:
    return StreamState(first, last, 0, -1, "", missing)


# ------------------------------------------------------------------ pure


def test_a_stream_that_ends_at_or_behind_its_readers_is_whole() -> None:
    """Nothing is lost if all is read, if commands wait, or if none was ever sent."""
    for stream, read in [(state(1, 100), 100), (state(1, 100), 60), (state(1, 0), 0), (state(0, 0), 0)]:
        assert not judge(stream, {"queue": read, "placer": 0}, []).is_lost


def test_commands_that_have_reached_their_age_are_no_loss() -> None:
    """The front of the stream goes away after a week, also beyond what a service with few commands has read."""
    report = judge(state(101, 100), {"queue": 100, "placer": 5}, [])
    assert not report.is_lost


def test_a_stream_that_ends_in_front_of_a_reader_has_gone_back() -> None:
    """The range is named, its size, and the services whose commands may be among them."""
    report = judge(state(1, 90), {"queue": 100, "placer": 5, "telemetry": 100}, [])
    assert (report.gaps, report.messages_lost) == ((Gap(91, 100),), 10)
    assert "sequences 91 to 100 (10)" in report.message()
    assert "ends at 90, expected at least 100, which queue has read" in report.message()
    assert "to placer were never decided" in report.message()


def test_a_gap_counts_if_a_reader_had_not_read_past_it() -> None:
    """A message read by every reader is no longer needed; an unread one may have been for that reader."""
    read = {"queue": 100, "placer": 5}
    assert judge(state(1, 120), read, [Gap(110, 111)]).gaps == (Gap(110, 111),)
    assert judge(state(1, 120), read, [Gap(50, 50)]).gaps == (Gap(50, 50),)
    assert judge(state(1, 120), read, [Gap(3, 4)]).gaps == ()


# ------------------------------------------------------------------ on both buses


def service(bus: Bus, *, waits: bool = False) -> Service[CountingCore]:
    source = CommandSource("queue", waits=waits)
    return Service(bus, CountingCore, writer="queue", sources=[source], instance="a")


async def decided(bus: Bus, count: int, start: int = 0) -> None:
    """A queue has decided so many commands, and has stopped."""
    running = service(bus)
    task = asyncio.create_task(running.run())
    for number in range(start, start + count):
        await bus.append(subjects.CMD, QUEUE, command(number))
    await eventually_async(lambda: len(running.core.ids) == start + count)
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK


async def whole_again(bus: Bus) -> None:
    """Wait for the bus after a restart of its server."""
    async with asyncio.timeout(60):
        while True:
            try:
                await bus.state(subjects.CMD)
                return
            except Exception:  # noqa: BLE001 -- whatever it is, it ends
                await asyncio.sleep(0.05)


async def test_a_service_with_lost_commands_ends_with_a_code_of_its_own(world: BusWorld) -> None:
    """Twelve are read, the server keeps eight: new commands would be given sequences that count as read."""
    bus = await world.connect()
    await decided(bus, 12)
    await world.lose_commands(8)
    await whole_again(bus)
    assert await asyncio.wait_for(service(bus).run(), 60) == EXIT_COMMANDS_LOST
    report = await inspect(bus)
    assert report.gaps == (Gap(9, 12),)


async def test_commands_that_go_back_under_a_running_service_end_it(world: BusWorld) -> None:
    """After the reconnect the stream is held against the log again, before more is read."""
    bus = await world.connect()
    running = service(await world.connect())
    task = asyncio.create_task(running.run())
    for number in range(12):
        await bus.append(subjects.CMD, QUEUE, command(number))
    await eventually_async(lambda: len(running.core.ids) == 12)
    await world.lose_commands(8)
    assert await asyncio.wait_for(task, 60) == EXIT_COMMANDS_LOST


async def test_a_service_with_other_duties_goes_on_without_commands_until_the_loss_is_accepted(
    world: BusWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads all the time, and takes up commands again by itself."""
    monkeypatch.setattr("fairlead_bus.input_source.AGAIN_S", 0.05)
    bus = await world.connect()
    await decided(bus, 12)
    await world.lose_commands(8)
    await whole_again(bus)
    running = service(await world.connect(), waits=True)
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    await bus.append(subjects.CMD, QUEUE, command(99))  # at 9, which counts as read: nobody has a promise about it
    await asyncio.sleep(0.3)
    assert running.leading and len(running.core.ids) == 12
    assert (await accept_loss(bus)).through == 12
    await bus.append(subjects.CMD, QUEUE, command(12))
    await eventually_async(lambda: len(running.core.ids) == 13)
    assert running.core.ids[-1] == "c12"
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK


async def test_a_message_missing_in_the_middle_is_found_and_counted(world: BusWorld) -> None:
    """It is behind the cursors of all readers: no service continues as if it had never existed."""
    bus = await world.connect()
    await decided(bus, 3)
    for number in range(3, 9):
        await bus.append(subjects.CMD, QUEUE, command(number))
    await world.lose_command(bus, 6)
    assert (await inspect(bus)).gaps == (Gap(6, 6),)
    assert await asyncio.wait_for(service(bus).run(), 60) == EXIT_COMMANDS_LOST


async def test_a_server_that_notices_a_loss_as_it_is_read_is_believed(world: BusWorld) -> None:
    """The end of the stream goes away between the first look and the last: nothing of it is skipped."""
    bus = await world.connect()
    await decided(bus, 3)
    for number in range(3, 9):
        await bus.append(subjects.CMD, QUEUE, command(number))
    await world.lose_commands(6)
    await whole_again(bus)
    inspector = Inspector(bus)
    first = await inspector.look()
    # Nobody had read behind 3, and no cursor names 7 to 9: the log alone cannot know of them. The gateway does.
    assert (first.last, first.is_lost) == (6, False)


async def test_acceptance_keeps_unread_commands_and_is_done_once(world: BusWorld) -> None:
    """Commands behind a service's cursor are appended again, at new sequences and in order; a second acceptance does
    nothing."""
    bus = await world.connect()
    await decided(bus, 4)
    await bus.append(subjects.CMD, PLACER, b"for the placer")
    for number in range(4, 9):
        await bus.append(subjects.CMD, QUEUE, command(number))
    await world.lose_command(bus, 7)
    accepted = await accept_loss(bus)
    assert (accepted.changed, accepted.through, accepted.kept) == (True, 10, 5)
    assert not (await inspect(bus, deep=True)).is_lost
    again = await accept_loss(bus)
    assert (again.changed, again.kept) == (False, 0)
    running = service(bus)
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: len(running.core.ids) == 8)
    assert running.core.ids == ["c0", "c1", "c2", "c3", "c4", "c6", "c7", "c8"]  # c5 was at 7
    newest = await bus.last(subjects.CMD, PLACER)
    assert newest is not None and (newest.sequence, newest.payload) == (11, b"for the placer")
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK


async def test_acceptance_goes_behind_a_sequence_that_only_a_gateway_knows(world: BusWorld) -> None:
    """`through` is above every cursor and above the stream's end."""
    bus = await world.connect()
    await decided(bus, 2)
    assert (await accept_loss(bus, through=50)).changed
    assert await bus.append(subjects.CMD, QUEUE, command(2)) == 51
    assert not (await accept_loss(bus, through=50)).changed


@pytest.mark.parametrize("broken", ["advance", "append", "put_object"])
async def test_an_interrupted_acceptance_is_finished_by_the_next(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a failure at each step, no unread command is lost, and none is there twice."""
    bus = MemoryHub().connect()
    await decided(bus, 2)
    for number in range(2, 6):
        await bus.append(subjects.CMD, QUEUE, command(number))
    bus.hub.remove(subjects.CMD, 4)
    whole, calls = getattr(bus, broken), 0

    async def fails(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2 or broken == "advance":
            raise ConnectionResetError("planted")
        return await whole(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(bus, broken, fails)
        with pytest.raises(ConnectionResetError):
            await accept_loss(bus)
    assert await bus.get_object(subjects.SNAPSHOT, ASIDE)
    assert (await accept_loss(bus)).kept == 3
    found = [(await bus.read(subjects.CMD, sequence)) for sequence in range(7, 11)]
    assert [stored and stored.payload for stored in found] == [command(2), command(4), command(5), None]


async def test_a_loss_ends_only_what_reads_commands_and_is_looked_at_again_without_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An inspector reads once: later looks cost one question until the stream has changed."""
    hub = MemoryHub()
    bus = hub.connect()
    await decided(bus, 12)
    inspections = 0
    real = command_loss.inspect

    async def counted(bus: Bus, *, deep: bool = False) -> command_loss.CommandStreamReport:
        nonlocal inspections
        inspections += not deep  # a deep one is for accepting a loss
        return await real(bus, deep=deep)

    monkeypatch.setattr(command_loss, "inspect", counted)
    inspector = Inspector(bus)
    for _ in range(5):
        await inspector.require()
    assert inspections == 1
    hub.truncate(subjects.CMD, 8)
    for _ in range(5):
        with pytest.raises(CommandsLost):
            await inspector.require()
    assert inspections == 2
    await accept_loss(bus)
    for _ in range(5):
        await inspector.require()
    assert inspections == 3
