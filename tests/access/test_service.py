"""The access service as a process on a bus: commands from the stream, restarts, a second leader, snapshots and expiry."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from fairlead_access.service import build
from fairlead_bus.log import LogReader
from fairlead_bus.memory import MemoryHub
from fairlead_bus.nats.adapter import connect
from fairlead_bus.port import Bus
from fairlead_replay.audit import read_log, verify_live
from fairlead_replay.fold import commits_of
from fairlead_replay.live_comparison import compare_live, compare_snapshots
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import encode_commands
from fairlead_schemas.wire.commit import VERSION, Commit, commit_hash, decode_commit, encode_commit
from tests.kit.eventually import eventually_async

SECOND = 10**9
LIMIT_S = 60.0
STEPPED_DOWN = 75


@contextlib.asynccontextmanager
async def running(bus: Bus) -> AsyncIterator["asyncio.Task[int]"]:
    """The service until the end of the block; then it is stopped as by SIGTERM."""
    service = await build(bus)
    task = asyncio.create_task(service.run())
    try:
        yield task
    finally:
        await service.stop()
        await asyncio.wait_for(task, LIMIT_S)


async def send(bus: Bus, *commands: cmd.AccessCommand) -> None:
    """Append one message of commands."""
    await bus.append(subjects.CMD, subjects.cmd("access"), encode_commands(list(commands)))


async def written(bus: Bus, count: int) -> list[ev.Event]:
    """Events of the access service, once there are so many."""
    reader, found = LogReader(bus), list[ev.Event]()
    try:
        async with asyncio.timeout(LIMIT_S):
            while len(found) < count:
                for folded in await reader.next():
                    found += [event for event in folded.commit.events if folded.writer == "access"]
    finally:
        await reader.close()
    return found


async def agrees(bus: Bus) -> bool:
    """Its live state is what the log folds to."""
    return next(each.equal for each in await compare_live(bus) if each.what == "access")


def admit(number: int) -> cmd.AdmitPrincipal:
    """Command `number` admits the principal of that number."""
    return cmd.AdmitPrincipal(id=f"c{number}", principal=f"p{number}")


async def test_commands_become_events_and_the_state_is_that_of_the_log() -> None:
    """Live, in the stored snapshot, and by the chain of its part of the log."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    async with running(hub.connect()):
        role = cmd.RoleEntry(subject="p1", role="admin", scope="cluster")
        await send(bus, admit(1), cmd.GrantRole(id="c2", grant=role))
        found = await written(bus, 2)
        assert [event.cause for event in found] == ["cmd:c1", "cmd:c2"]
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
    assert (await verify_live(bus)).ok
    stored = list(commits_of([message async for message in read_log(bus)]))
    assert [(each.what, each.equal) for each in await compare_snapshots(bus, stored)] == [("access snapshot", True)]


async def test_a_restart_amid_commands_loses_none_and_doubles_none() -> None:
    """Every command is answered once, in order, though the process is cut off again and again without a word."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    total = 60
    for first in range(0, total, 6):
        service = await build(hub.connect())
        task = asyncio.create_task(service.run())
        for number in range(first, first + 6):
            await send(bus, admit(number))
            await asyncio.sleep(0)
        await written(bus, first + 1)
        task.cancel()
        await asyncio.wait([task])
    async with running(hub.connect()):
        found = await written(bus, total)
        assert [event.cause for event in found] == [f"cmd:c{number}" for number in range(total)]
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))


async def test_another_leader_ends_the_process() -> None:
    """The server refuses the append of a deposed leader: exit code 75, and no commit of it after the other's."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    async with running(hub.connect()) as task:
        await send(bus, admit(1))
        await written(bus, 1)
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
        await bus.append(subjects.LOG, subjects.log("access"), encode_commit(await next_commit(bus)))
        await send(bus, admit(2))
        assert await asyncio.wait_for(task, LIMIT_S) == STEPPED_DOWN
    assert [type(event) for event in await written(bus, 2)] == [ev.PrincipalAdmitted, ev.PrincipalSuspended]
    assert (await bus.state(subjects.LOG)).last == 2


async def next_commit(bus: Bus) -> Commit:
    """A commit of another leader, right behind the only one in the log."""
    stored = await bus.read(subjects.LOG, 1)
    assert stored is not None
    first = decode_commit(stored.payload)
    event = ev.PrincipalSuspended(cause="cmd:other", principal="p1")
    return Commit(
        v=VERSION,
        writer="access",
        n=2,
        basis=1,
        at_ns=first.at_ns,
        cursors=first.cursors,
        prev=commit_hash(stored.payload),
        events=[event],
    )


async def test_a_token_ends_by_the_clock_while_no_command_comes() -> None:
    """The process sleeps until the expiry, then records it."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    async with running(hub.connect()):
        expires_ns = time.time_ns() + SECOND
        await send(bus, admit(1), cmd.IssueToken(id="c2", token="t1", principal="p1", expires_ns=expires_ns))
        ended = (await written(bus, 3))[-1]
        assert isinstance(ended, ev.TokenRevoked)
        assert (ended.token, ended.reason, ended.cause) == ("t1", "expired", "clock")
        assert time.time_ns() >= expires_ns


@pytest.mark.nats
async def test_on_a_real_server(nats_url: str) -> None:
    """The same on NATS: command in, event in the service's own part of the log, its state compared."""
    bus, own = await connect(nats_url, name="test"), await connect(nats_url, name="access")
    await bus.ensure()
    async with running(own):
        await send(bus, admit(1))
        assert [type(event) for event in await written(bus, 1)] == [ev.PrincipalAdmitted]
        await eventually_async(lambda: agrees(bus), not_yet=(Exception,))
    for each in (own, bus):
        await each.close()
