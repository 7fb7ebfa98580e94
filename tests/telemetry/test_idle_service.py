"""The whole process's half that decides: on a bus, with commands and samples from streams, over restarts and a damaged log."""

import asyncio
import time
from pathlib import Path

import pytest

from fairlead_bus.log import LogReader
from fairlead_bus.memory import MemoryHub
from fairlead_bus.nats.adapter import connect
from fairlead_bus.port import Bus
from fairlead_replay.audit import read_log, verify_live
from fairlead_replay.fold import commits_of
from fairlead_replay.live_comparison import compare_live, compare_snapshots
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import ExtendJob, SetIdlePolicies, encode_commands
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, encode_samples
from tests.kit.eventually import eventually_async
from tests.telemetry.service_on_bus import ask, running
from tests.telemetry.story import Story, joined, offered, placed, submitted

SECOND = 10**9
LIMIT_S = 60.0
LIFE = IdlePolicy(rule="lifetime", action="stop", mode="always", after_ns=SECOND, notice_ns=0)
USE = IdlePolicy(rule="utilization", action="warn", mode="always", below={"gpu": 50}, after_ns=SECOND, notice_ns=0)


def one_run() -> Story:
    """Job 1 runs since the new year on one GPU."""
    story = Story()
    story.at(0, joined("n1", 1))
    story.at(
        0, ev.QueueConfigured(cause="cmd:q", path="research", settings=QueueSettings()), submitted("1"), offered("1")
    )
    story.at(1, placed("1", n1=1))
    story.at(2, ev.RunStarted(cause="1.0", job="1", attempt=1))
    return story


async def command(bus: Bus, *wanted: SetIdlePolicies | ExtendJob) -> None:
    await bus.append(subjects.CMD, subjects.cmd("telemetry"), encode_commands(list(wanted)))


async def until_said(bus: Bus, *types: str) -> list[ev.Event]:
    """What telemetry has written, once all of these types are there, in this order."""
    reader, said = LogReader(bus), list[ev.Event]()
    try:
        async with asyncio.timeout(LIMIT_S):
            while not is_within(types, [type(event).__name__ for event in said]):
                for folded in await reader.next():
                    said += [event for event in folded.commit.events if folded.writer == "telemetry"]
    finally:
        await reader.close()
    return said


def is_within(wanted: tuple[str, ...], found: list[str]) -> bool:
    rest = iter(found)
    return all(name in rest for name in wanted)


async def small_world(hub: MemoryHub) -> Bus:
    bus = hub.connect()
    await bus.ensure()
    await one_run().append_to(bus)
    return bus


async def agrees(bus: Bus) -> bool:
    """Its live state is what the log folds to."""
    return next(each.equal for each in await compare_live(bus) if each.what == "telemetry")


async def test_a_policy_by_command_becomes_a_reclaim(tmp_path: Path) -> None:
    """By the clock alone; the log is whole with its third writer, and the live state is that of the log."""
    hub = MemoryHub()
    bus = await small_world(hub)
    async with running(hub.connect(), tmp_path):
        await command(bus, SetIdlePolicies(id="c1", user="root", scope="global", policies=(LIFE,)))
        said = await until_said(bus, "IdlePoliciesSet", "JobIdle", "ReclaimRequested")
        assert said[0].cause == "cmd:c1"
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
        assert (await ask(bus, "warehouse"))["samples_refused"] == {}
    assert (await verify_live(bus)).ok
    stored = list(commits_of([message async for message in read_log(bus)]))
    assert [each.equal for each in await compare_snapshots(bus, stored)] == [True]


async def test_samples_of_the_stream_decide(tmp_path: Path) -> None:
    """The watch gets what ingest decodes: below the threshold for the time, then a busy moment."""
    hub = MemoryHub()
    bus = await small_world(hub)
    busy_pct, done = 0, asyncio.Event()

    async def measure() -> None:
        n = 0
        while not done.is_set():
            n += 1
            gpu = GpuSample(uuid="GPU-n1-0", run="1.1", utilization_pct=busy_pct, memory_used_mib=1, memory_busy_pct=0)
            batch = SampleBatch(node="n1", incarnation="a", n=n, at_ns=time.time_ns(), gpus=[gpu])
            await bus.append(subjects.SAMPLE, subjects.sample("n1"), encode_samples(batch))
            await asyncio.sleep(0.2)

    async with running(hub.connect(), tmp_path):
        measuring = asyncio.create_task(measure())
        await command(bus, SetIdlePolicies(id="c1", user="root", scope="global", policies=(USE,)))
        idle = (await until_said(bus, "JobIdle"))[-1]
        assert isinstance(idle, ev.JobIdle)
        assert [each.signal for each in idle.evidence] == ["gpu"]
        busy_pct = 90
        active = (await until_said(bus, "JobIdle", "JobActive"))[-1]
        assert isinstance(active, ev.JobActive)
        assert (active.reason, active.evidence[0].highest) == ("active", 900)
        done.set()
        await measuring


async def test_a_restart_continues_at_the_end_of_the_log(tmp_path: Path) -> None:
    """Commands are answered once; decisions are not repeated."""
    hub = MemoryHub()
    bus = await small_world(hub)
    async with running(hub.connect(), tmp_path):
        await command(bus, SetIdlePolicies(id="c1", user="root", scope="global", policies=(LIFE,)))
        await until_said(bus, "JobIdle", "ReclaimRequested")
    await command(bus, ExtendJob(id="c2", user="ada", job="1"), ExtendJob(id="c3", user="eve", job="7"))
    async with running(hub.connect(), tmp_path):
        said = await until_said(bus, "TelemetryCommandRejected", "TelemetryCommandRejected")
    names = [type(event).__name__ for event in said]
    assert names == ["IdlePoliciesSet", "JobIdle", "ReclaimRequested", *["TelemetryCommandRejected"] * 2]


async def test_another_leader_ends_the_process(tmp_path: Path) -> None:
    """Another writer of telemetry's part of the log is another leader: exit code 75, and no second commit of ours."""
    hub = MemoryHub()
    bus = await small_world(hub)
    async with running(hub.connect(), tmp_path) as task:
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
        story = one_run()
        story.at(9, ev.IdlePoliciesSet(cause="clock", scope="global", policies=(LIFE,)))
        await story.append_to(bus, first=4)
        assert await asyncio.wait_for(task, LIMIT_S) == 75


@pytest.mark.nats
async def test_on_a_real_server(tmp_path: Path, nats_url: str) -> None:
    """The same on NATS: command in, events in telemetry's own part of the log, its state compared."""
    bus = await connect(nats_url, name="test")
    await bus.ensure()
    await one_run().append_to(bus)
    own = await connect(nats_url, name="telemetry")
    async with running(own, tmp_path):
        await command(bus, SetIdlePolicies(id="c1", user="root", scope="global", policies=(LIFE,)))
        await until_said(bus, "JobIdle", "ReclaimRequested")
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
    for each in (own, bus):
        await each.close()
