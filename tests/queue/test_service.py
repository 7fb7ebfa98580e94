"""The queue on the service shell and the in-memory bus: commands in, commits out, and a restart between."""

import asyncio
from collections.abc import Callable

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus
from fairlead_queue.service import build
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob, encode_commands
from fairlead_schemas.wire.commit import Commit, decode_commit
from fairlead_schemas.wire.resources import Request
from tests.queue.world import SPEC, kinds

WAIT_S = 60.0


async def commits(bus: Bus, until: Callable[[list[Commit]], bool]) -> list[Commit]:
    """The whole log, once it says what is waited for."""
    async with asyncio.timeout(WAIT_S):
        while True:
            last = (await bus.state(subjects.LOG)).last
            stored = [await bus.read(subjects.LOG, sequence) for sequence in range(1, last + 1)]
            log = [decode_commit(each.payload) for each in stored if each is not None]
            if until(log):
                return log
            await asyncio.sleep(0.01)


def submission(id_: str) -> bytes:
    command = SubmitJob(id=id_, user="ada", name="job", queue="default", request=Request(gpu_milli=1000), spec=SPEC)
    return encode_commands([command])


async def test_commands_are_decided_once_across_a_restart() -> None:
    """Commands before the stop are not decided again; commands during the downtime are decided after; poison is
    recorded."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    await bus.append(subjects.CMD, subjects.cmd("queue"), submission("a"))
    service = await build(bus)
    running = asyncio.create_task(service.run())
    await commits(bus, lambda log: any(event.cause == "cmd:a" for commit in log for event in commit.events))
    await service.stop()
    assert await running == 0

    await bus.append(subjects.CMD, subjects.cmd("queue"), b"no json")
    await bus.append(subjects.CMD, subjects.cmd("queue"), submission("b"))
    again = await build(hub.connect())
    running = asyncio.create_task(again.run())
    log = await commits(bus, lambda log: any(event.cause == "cmd:b" for commit in log for event in commit.events))
    events = [event for commit in log for event in commit.events]
    assert kinds(events) == [
        "QueueConfigured",
        "JobSubmitted",
        "JobOffered",
        "CommandRejected",
        "JobSubmitted",
        "JobOffered",
    ]
    assert log[-1].cursors == {"CMD": 3}
    await again.stop()
    assert await running == 0
