"""The queue on the service shell and the in-memory bus: commands in, commits out, and a restart between."""

import asyncio

from fairlead_bus.memory import MemoryHub
from fairlead_queue.service import build
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob, encode_commands
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SPEC, kinds
from tests.queue.stored_log import commits


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
