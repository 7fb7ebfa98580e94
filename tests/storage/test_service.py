"""The storage service as a process on a bus: commands from the stream, restarts, snapshots, and the state of the log."""

import asyncio

from fairlead_bus.log import LogReader
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus
from fairlead_replay.audit import read_log, verify_live
from fairlead_replay.fold import commits_of
from fairlead_replay.live_comparison import compare_live, compare_snapshots
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import encode_commands
from fairlead_storage.service import build
from tests.kit.eventually import eventually_async

LIMIT_S = 60.0
TOTAL = 24


def command(number: int) -> cmd.StorageCommand:
    """Command `number` sets a class, or makes a volume in the first one."""
    if number == 0:
        return cmd.SetStorageClass(id="c0", name="shared", backend="directory")
    return cmd.CreateVolume(
        id=f"c{number}", volume=f"v{number}", owner="project:llm", storage_class="shared", quota_bytes=2**30
    )


async def causes(bus: Bus, count: int) -> list[str]:
    """Causes of the service's events, once there are so many."""
    reader, found = LogReader(bus), list[str]()
    try:
        async with asyncio.timeout(LIMIT_S):
            while len(found) < count:
                for folded in await reader.next():
                    found += [event.cause for event in folded.commit.events if folded.writer == "storage"]
    finally:
        await reader.close()
    return found


async def agrees(bus: Bus) -> bool:
    """Its live state is what the log folds to."""
    return next(each.equal for each in await compare_live(bus) if each.what == "storage")


async def test_a_restart_amid_commands_loses_none_and_doubles_none() -> None:
    """Every command is answered once, in order, though the process is cut off again and again; its state is the log's at the end."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    for first in range(0, TOTAL, 6):
        service = await build(hub.connect())
        task = asyncio.create_task(service.run())
        for number in range(first, first + 6):
            await bus.append(subjects.CMD, subjects.cmd("storage"), encode_commands([command(number)]))
            await asyncio.sleep(0)
        await causes(bus, first + 1)
        task.cancel()
        await asyncio.wait([task])
    service = await build(hub.connect())
    task = asyncio.create_task(service.run())
    assert await causes(bus, TOTAL) == [f"cmd:c{number}" for number in range(TOTAL)]
    await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
    await service.stop()
    await asyncio.wait_for(task, LIMIT_S)
    assert (await verify_live(bus)).ok
    stored = list(commits_of([message async for message in read_log(bus)]))
    assert [(each.what, each.equal) for each in await compare_snapshots(bus, stored)] == [("storage snapshot", True)]
