"""The one shell: exactly-once inputs, fencing of leaders, snapshots, damage, a full log."""

import asyncio
import time
from typing import Self

import msgspec
import pytest
import structlog

from fairlead_bus import lease, log_time, snapshots
from fairlead_bus import service as shell
from fairlead_bus.input_source import CommandSource
from fairlead_bus.lease import process_word
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus, OutcomeUnknown, StaleWriter, Unavailable
from fairlead_bus.service import EXIT_OK, Service
from fairlead_bus.snapshots import Snapshot
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Commit, decode_commit
from fairlead_schemas.wire.conditions import ALIVE, EXIT_DAMAGED, EXIT_STEPPED_DOWN, Alive, decode_alive
from fairlead_schemas.wire.events import QueueClockStepped
from tests.bus.commits import commit
from tests.bus.counting import CountingCore, command
from tests.bus.worlds import BusWorld
from tests.kit.eventually import eventually_async

CMD = subjects.cmd("queue")


def service(bus: Bus, instance: str = "a") -> Service[CountingCore]:
    """A service around the counting core."""
    return Service(bus, CountingCore, writer="queue", sources=[CommandSource("queue")], instance=instance)


async def crash(task: "asyncio.Task[int]") -> None:
    """End a service with no chance to tidy up."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_commands_are_decided_once_over_crashes(world: BusWorld):
    """After each crash the next process resumes exactly at the cursor in the log."""
    bus = await world.connect()
    for round_number in range(4):
        running = service(await world.connect())
        task = asyncio.create_task(running.run())
        for number in range(25):
            await bus.append(subjects.CMD, CMD, command(round_number * 25 + number))
        wanted = round_number * 25 + 10
        await eventually_async(lambda r=running, w=wanted: len(r.core.ids) >= w)
        await crash(task)
    last = service(await world.connect())
    task = asyncio.create_task(last.run())
    await eventually_async(lambda: len(last.core.ids) >= 100)
    await last.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK
    assert last.core.ids == [f"c{number}" for number in range(100)]


async def test_restored_state_equals_a_fold_of_the_log(world: BusWorld):
    """Snapshot plus tail gives the same bytes as the whole log, and the snapshot is really used."""
    bus = await world.connect()
    first = service(bus)
    task = asyncio.create_task(first.run())
    for number in range(30):
        await bus.append(subjects.CMD, CMD, command(number))
    await eventually_async(lambda: len(first.core.ids) == 30)
    await first.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK  # a clean stop leaves a snapshot
    second = service(await world.connect())
    task = asyncio.create_task(second.run())
    await eventually_async(lambda: second.leading)
    assert second.core.snapshot() == first.core.snapshot()
    asking = lambda: bus.request(subjects.rpc("queue", "state"), b"", timeout_s=60)  # noqa: E731 -- asked until it listens
    answer = msgspec.json.decode(await eventually_async(asking, not_yet=(Unavailable,)))
    assert answer["sequence"] == second.folded
    assert second.reader.chain.last == first.folded, "only the tail behind the snapshot was read"
    await crash(task)


async def test_second_process_waits_for_the_lease_and_then_takes_over(world: BusWorld):
    """Two at once: one leads; when it stops, the other continues from its state."""
    bus = await world.connect()
    first, second = service(await world.connect(), "a"), service(await world.connect(), "b")
    leading = asyncio.create_task(first.run())
    await eventually_async(lambda: first.leading)
    standby = asyncio.create_task(second.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: first.core.ids == ["c1"])
    assert not second.leading
    await first.stop()
    assert await asyncio.wait_for(leading, 60) == EXIT_OK
    await eventually_async(lambda: second.leading)
    await bus.append(subjects.CMD, CMD, command(2))
    await eventually_async(lambda: second.core.ids == ["c1", "c2"])
    await crash(standby)


async def test_of_two_leaders_one_steps_down(world: BusWorld):
    """Same lease holder twice (so the lease lets both in): the fence lets one commit, the other leaves with 75."""
    bus = await world.connect()
    services = [service(await world.connect(), "same") for _ in range(2)]
    tasks = [asyncio.create_task(each.run()) for each in services]
    await eventually_async(lambda: all(each.leading for each in services))
    for number in range(20):
        await bus.append(subjects.CMD, CMD, command(number))
    done, pending = await asyncio.wait(tasks, timeout=15, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [EXIT_STEPPED_DOWN]
    survivor = services[tasks.index(next(iter(pending)))]
    await eventually_async(lambda: len(survivor.core.ids) == 20)
    assert survivor.core.ids == [f"c{number}" for number in range(20)]
    await crash(next(iter(pending)))


async def test_foreign_commit_under_our_name_makes_us_step_down(world: BusWorld):
    """Another process's commit in our chain is not built upon, even if the fence would allow it."""
    bus = await world.connect()
    running = service(bus)
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    await bus.append(subjects.LOG, subjects.log("queue"), commit(1, None))
    assert await asyncio.wait_for(task, 60) == EXIT_STEPPED_DOWN


async def test_damaged_log_stops_the_service(world: BusWorld):
    """A commit that does not fit the chain is a stop, with a code of its own."""
    bus = await world.connect()
    await bus.append(subjects.LOG, subjects.log("placer"), commit(7, None, writer="placer"))
    assert await asyncio.wait_for(service(bus).run(), 60) == EXIT_DAMAGED


async def test_undecodable_message_is_passed_to_the_core_and_the_service_goes_on(world: BusWorld):
    """Poison arrives as an input of its own; what comes behind it is decided."""
    bus = await world.connect()
    running = service(bus)
    task = asyncio.create_task(running.run())
    for payload in (b"not json", b'[{"type":"CancelJob","id":"bad"}]', command(1)):
        await bus.append(subjects.CMD, CMD, payload)
    await eventually_async(lambda: len(running.core.ids) == 3)
    assert running.core.ids == ["", "bad", "c1"]
    await crash(task)


async def test_service_waits_out_a_server_restart(world: BusWorld):
    """The server dies and comes back under a running service; nothing is lost or doubled."""
    bus = await world.connect()
    running = service(await world.connect())
    task = asyncio.create_task(running.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: running.core.ids == ["c1"])
    back = asyncio.Event()
    bus.on_reconnect(back.set)
    await world.stop_server()
    await world.start_server()
    await asyncio.wait_for(back.wait(), 60)
    await bus.append(subjects.CMD, CMD, command(2))
    await eventually_async(lambda: running.core.ids == ["c1", "c2"])
    await crash(task)


async def test_full_log_holds_decisions_back_and_keeps_the_service_alive(
    small_world: BusWorld, monkeypatch: pytest.MonkeyPatch
):
    """Commands wait in CMD while the log is full; the service does not end and does not drop them."""
    monkeypatch.setattr(shell, "FULL_RETRY_S", 0.05)
    bus = await small_world.connect()
    running = service(await small_world.connect())
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    for number in range(400):
        await bus.append(subjects.CMD, CMD, command(number))
    await eventually_async(lambda: running.fence.refused)
    assert 0 < len(running.core.ids) < 400 and not task.done()
    alive = decode_alive(await bus.request(subjects.rpc("queue", ALIVE), b"", timeout_s=60))
    assert (alive.sequence, alive.refused != "") == (running.folded, True)
    await crash(task)


async def test_a_leader_gives_a_sign_of_life(world: BusWorld):
    """It reports its folded sequence; a process that waits for the lease, or has ended, does not answer."""
    bus, running, waiting = await world.connect(), service(await world.connect()), service(await world.connect(), "b")
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    other = asyncio.create_task(waiting.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: running.core.ids)
    alive = decode_alive(await bus.request(subjects.rpc("queue", ALIVE), b"", timeout_s=60))
    assert alive == Alive(sequence=running.folded, word=process_word())
    await crash(other)
    await running.stop()
    await task
    await bus.flush()
    with pytest.raises(Unavailable):
        await bus.request(subjects.rpc("queue", ALIVE), b"", timeout_s=1)


async def test_lease_expires_when_its_holder_dies(world: BusWorld):
    """A holder that vanished is succeeded after the lease has run out; the old one then notices."""
    bus = await world.connect()
    old, new = lease.LeaderLease(bus, "queue", "old"), lease.LeaderLease(await world.connect(), "queue", "new")
    assert await old.try_acquire() and not await new.try_acquire()
    async with asyncio.timeout(60):
        while not await new.try_acquire():  # noqa: ASYNC110 -- what is awaited is a time limit of the bus
            await asyncio.sleep(lease.POLL_S)
    await asyncio.wait_for(old.keep(), 60)
    with pytest.raises(StaleWriter):
        await bus.put(subjects.LEASE, "queue", b"x", expected=old.revision)


async def test_a_lease_outlives_missing_answers():
    """An unknown outcome does not end the attempt to take the lease or its renewal: a stalled server is no successor."""
    hub = MemoryHub()
    bus, unknown = hub.connect(), 2
    held = lease.LeaderLease(bus, "queue", "a")
    put = bus.put

    async def stalling(*arguments: object, **named: object) -> int:
        nonlocal unknown
        revision = await put(*arguments, **named)  # type: ignore[arg-type] -- whatever it was asked
        unknown -= 1
        if unknown >= 0:
            raise OutcomeUnknown("no answer within 5 s")
        return revision

    bus.put = stalling  # type: ignore[method-assign]
    assert not await held.try_acquire() and not await held.try_acquire() and await held.try_acquire()
    unknown = 1
    keeping = asyncio.create_task(held.keep())
    await asyncio.sleep(2.5 * lease.RENEW_S)
    assert not keeping.done()
    keeping.cancel()


async def test_a_service_that_waits_for_its_lease_can_be_stopped(world: BusWorld):
    """A standby is not the leader's prisoner: it ends in order, and leaves the lease where it is."""
    leader, standby = service(await world.connect(), "a"), service(await world.connect(), "b")
    leading = asyncio.create_task(leader.run())
    await eventually_async(lambda: leader.leading)
    waiting = asyncio.create_task(standby.run())
    await asyncio.sleep(2 * lease.POLL_S)
    await standby.stop()
    assert await asyncio.wait_for(waiting, 60) == EXIT_OK and not standby.leading
    assert leader.leading and not leading.done()
    await leader.stop()
    assert await asyncio.wait_for(leading, 60) == EXIT_OK


async def test_a_standby_follows_the_log_and_leads_at_once(world: BusWorld):
    """It has folded what the leader committed before its turn comes, and reads nothing of that again."""
    bus, leader, standby = (
        await world.connect(),
        service(await world.connect(), "a"),
        service(await world.connect(), "b"),
    )
    leading = asyncio.create_task(leader.run())
    await eventually_async(lambda: leader.leading)
    waiting = asyncio.create_task(standby.run())
    for number in range(5):
        await bus.append(subjects.CMD, CMD, command(number))
    await eventually_async(lambda: len(standby.core.ids) == 5)
    assert not standby.leading and standby.core.snapshot() == leader.core.snapshot()
    reader = standby.reader
    await crash(leading)
    await bus.append(subjects.CMD, CMD, command(5))
    await eventually_async(lambda: len(standby.core.ids) == 6)
    assert standby.leading and standby.reader is reader and standby.commits > 0
    await crash(waiting)


async def test_a_standby_replaces_no_newer_snapshot_of_the_leader_before_it():
    """Two are kept in turn; which one is the older is looked up by who has not saved the last one."""
    hub = MemoryHub()
    bus, leader, standby = hub.connect(), service(hub.connect(), "a"), service(hub.connect(), "b")
    leading = asyncio.create_task(leader.run())
    await eventually_async(lambda: leader.leading)
    waiting = asyncio.create_task(standby.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: standby.core.ids == ["c1"])
    await leader.stop()
    assert await asyncio.wait_for(leading, 60) == EXIT_OK
    await eventually_async(lambda: standby.leading)
    (saved,) = await snapshots.stored(bus, "queue")
    await standby.stop()
    assert await asyncio.wait_for(waiting, 60) == EXIT_OK
    assert {each.turn % snapshots.KEPT for each in await snapshots.stored(bus, "queue")} == {0, 1}
    assert saved.turn in {each.turn for each in await snapshots.stored(bus, "queue")}


class Reshaped(CountingCore):
    """Another version of the code: it cannot read what the one before wrote."""

    @classmethod
    def restore(cls, data: bytes) -> Self:
        raise msgspec.ValidationError("expected field `more`")


async def test_a_snapshot_of_another_shape_is_passed_over_and_the_log_folded(world: BusWorld):
    """State is disposable: an upgrade whose state has another shape starts, and later snapshots are its own."""
    bus = await world.connect()
    for core_type, count in ((CountingCore, 10), (Reshaped, 20)):
        running = Service(bus, core_type, writer="queue", sources=[CommandSource("queue")], instance="a")
        task = asyncio.create_task(running.run())
        for number in range(count - 10, count):
            await bus.append(subjects.CMD, CMD, command(number))
        await eventually_async(lambda r=running, c=count: len(r.core.ids) == c)
        await running.stop()
        assert await asyncio.wait_for(task, 60) == EXIT_OK
    assert running.core.ids == [f"c{number}" for number in range(20)]


class Widened(CountingCore):
    """Another version of the code: it reads what the one before wrote, and takes it for less than it was."""

    schema = "ids and more"

    @classmethod
    def restore(cls, data: bytes) -> Self:
        core = super().restore(data)
        core.ids.clear()  # the field is another one now
        return core


async def test_a_snapshot_of_another_version_is_not_used_though_it_can_be_read():
    """Its missing fields would get their defaults, and the state would not be what the log gives."""
    bus = MemoryHub().connect()
    await bus.ensure()
    for core_type in (CountingCore, Widened):
        running = Service(bus, core_type, writer="queue", sources=[CommandSource("queue")], instance="a")
        task = asyncio.create_task(running.run())
        if core_type is CountingCore:
            await bus.append(subjects.CMD, CMD, command(1))
        await eventually_async(lambda r=running: r.core.ids == ["c1"])
        await running.stop()
        assert await asyncio.wait_for(task, 60) == EXIT_OK


async def test_a_snapshot_builds_on_the_very_commits_that_the_log_holds():
    """A log that was replaced under its name, and has grown past the snapshot since, is damaged, not continued."""
    hub = MemoryHub()
    bus = hub.connect()
    running = service(bus)
    task = asyncio.create_task(running.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: running.core.ids == ["c1"])
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK
    hub.truncate(subjects.LOG, 0)
    await bus.append(subjects.LOG, subjects.log("queue"), commit(1, None, text="another history"))
    assert await asyncio.wait_for(service(bus).run(), 60) == EXIT_DAMAGED


async def test_a_snapshot_that_is_stored_during_a_start_is_no_damage(monkeypatch: pytest.MonkeyPatch):
    """The leader before us stores its last one between our two questions (simulator seed 635 of a planted bug)."""
    hub = MemoryHub()
    first, second = service(hub.connect()), service(hub.connect())
    load = second._snapshots.load

    async def late() -> list[Snapshot]:
        task = asyncio.create_task(first.run())
        await first.bus.append(subjects.CMD, CMD, command(1))
        await eventually_async(lambda: first.core.ids == ["c1"])
        await first.stop()
        await task
        return await load()

    monkeypatch.setattr(second._snapshots, "load", late)
    task = asyncio.create_task(second.run())
    await eventually_async(lambda: second.leading)
    assert second.core.ids == ["c1"]
    await crash(task)


async def test_a_start_does_not_need_the_snapshots(monkeypatch: pytest.MonkeyPatch):
    """The server that has their only copy may be gone for good: the log has it all, and is folded from its start."""
    monkeypatch.setattr(snapshots, "LOAD_S", 0.1)
    hub = MemoryHub()
    first = service(hub.connect())
    task = asyncio.create_task(first.run())
    await first.bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: first.core.ids == ["c1"])
    await first.stop()
    await task
    hub.stores_up = False
    second = service(hub.connect())
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(second.run())
        await eventually_async(lambda: second.leading, within_s=20)
    assert second.core.ids == ["c1"]
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert "the log is folded from its start" in warning["event"] and "object stores" in warning["reason"]
    await crash(task)


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_step_of_the_wall_clock_is_not_taken_into_the_log(hours: int):
    """An hour forward or back between two commits: the second bears the time that has passed, not the step."""
    hub, offset_ns = MemoryHub(), [0]
    bus = hub.connect()
    running = Service(
        bus, CountingCore, writer="queue", sources=[CommandSource("queue")], clock=lambda: time.time_ns() + offset_ns[0]
    )
    task = asyncio.create_task(running.run())
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: running.core.ids == ["c1"])
    offset_ns[0] = hours * 3600 * 10**9
    await bus.append(subjects.CMD, CMD, command(2))
    await eventually_async(lambda: running.core.ids == ["c1", "c2"])
    await crash(task)
    tail = await bus.tail(subjects.LOG, after=0)
    commits = [decode_commit(each.payload) for each in await tail.next()]
    assert 0 < commits[-1].at_ns - commits[0].at_ns < 60 * 10**9


async def commits_of(bus: Bus) -> list[Commit]:
    """All commits of the log."""
    return [decode_commit(each.payload) for each in await (await bus.tail(subjects.LOG, after=0)).next()]


async def test_a_step_of_the_wall_clock_is_an_event(world: BusWorld):
    """Each step is in the log once, with its size; the next commit of an idle service need not be waited for."""
    bus, offset_ns = await world.connect(), [0]
    running = Service(
        bus, CountingCore, writer="queue", sources=[CommandSource("queue")], clock=lambda: time.time_ns() + offset_ns[0]
    )
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    offset_ns[0] = -3600 * 10**9
    await bus.append(subjects.CMD, CMD, command(1))
    await eventually_async(lambda: running.core.ids == ["c1"])
    offset_ns[0] = 0
    await bus.append(subjects.CMD, CMD, command(2))
    await eventually_async(lambda: running.core.ids == ["c1", "c2"])
    await crash(task)
    events = [event for each in await commits_of(bus) for event in each.events]
    steps = [event for event in events if isinstance(event, QueueClockStepped)]
    assert [round(each.step_ns / 1e9) for each in steps] == [-3600, 3600]
    assert [type(event).__name__ for event in events] == [*["QueueClockStepped", "CommandRejected"] * 2]


async def test_a_restart_goes_on_with_log_time(world: BusWorld):
    """A process that starts with a wall clock that is far from log time does not take it over either."""
    bus, offset_ns = await world.connect(), [0]

    async def lead(number: int) -> None:
        running = Service(
            bus,
            CountingCore,
            writer="queue",
            sources=[CommandSource("queue")],
            instance="a",
            clock=lambda: time.time_ns() + offset_ns[0],
            skew_ns=7200 * 10**9,
        )
        task = asyncio.create_task(running.run())
        await bus.append(subjects.CMD, CMD, command(number))
        await eventually_async(lambda: len(running.core.ids) == number)
        await crash(task)

    await lead(1)
    await lead(2)
    offset_ns[0] = 3600 * 10**9
    await lead(3)
    offset_ns[0] = -3600 * 10**9
    await lead(4)
    times = [each.at_ns for each in await commits_of(bus)]
    assert len(times) == 4
    assert times == sorted(times)
    assert times[-1] - times[0] < 120 * 10**9


async def test_a_log_from_an_archive_is_gone_on_with_at_the_wall_clock():
    """Its commits were stored all at once: the server's times do not tell how long ago the last one was made."""
    hub = MemoryHub()
    bus, now_ns = hub.connect(), time.time_ns()
    await bus.append(subjects.LOG, subjects.log("queue"), commit(1, None, at_ns=now_ns - 3600 * 10**9))
    running = service(bus)
    task = asyncio.create_task(running.run())
    await bus.append(subjects.CMD, CMD, command(2))
    await eventually_async(lambda: running.core.ids == ["c1", "c2"])
    await crash(task)
    assert (await commits_of(bus))[-1].at_ns >= now_ns


async def test_a_process_with_a_deviating_clock_does_not_lead(monkeypatch: pytest.MonkeyPatch):
    """It logs this, gives the lease back to those with agreeing clocks, and leads by itself once its own agrees."""
    monkeypatch.setattr(log_time, "LISTEN_S", 0.01)
    monkeypatch.setattr(shell, "CLOCK_RETRY_S", 0.1)
    hub, offset_ns = MemoryHub(), [3600 * 10**9]
    wrong = Service(
        hub.connect(), CountingCore, writer="queue", instance="wrong", clock=lambda: time.time_ns() + offset_ns[0]
    )
    task = asyncio.create_task(wrong.run())
    right = service(hub.connect(), "right")
    with structlog.testing.capture_logs() as logged:
        await eventually_async(
            lambda: any(each["event"] == "this machine's clock differs, not leading" for each in logged)
        )
        await eventually_async(lambda: hub.subscribers.get(subjects.rpc("queue", ALIVE)))
        said = decode_alive(await hub.connect().request(subjects.rpc("queue", ALIVE), b"", timeout_s=60))
        assert "-3600.0 s" in said.clock
        leading = asyncio.create_task(right.run())
        await eventually_async(lambda: right.leading)
    assert not wrong.leading
    await right.stop()
    assert await asyncio.wait_for(leading, 60) == EXIT_OK
    offset_ns[0] = 0
    await eventually_async(lambda: wrong.leading)
    await wrong.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK


async def test_a_leader_does_not_follow_a_clock_that_is_alone(monkeypatch: pytest.MonkeyPatch):
    """Log time creeps to a wall clock that was set only while that agrees with the others."""
    monkeypatch.setattr(log_time, "LISTEN_S", 0.01)
    monkeypatch.setattr(shell, "CLOCK_CHECK_S", 0.05)
    offset_ns = [0]
    running = Service(MemoryHub().connect(), CountingCore, writer="queue", clock=lambda: time.time_ns() + offset_ns[0])
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    offset_ns[0] = 3600 * 10**9
    await eventually_async(lambda: not running.clock.is_trusted)
    offset_ns[0] = 0
    await eventually_async(lambda: running.clock.is_trusted)
    await crash(task)
