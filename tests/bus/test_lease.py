"""Acquisition of leases: by a successor of a dead process at once, by another after it expired while the bus was there."""

import asyncio
import os
import subprocess
import sys

import pytest

from fairlead_bus.lease import POLL_S, LeaderLease, LeaseHolder
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire import subjects

OTHER_HOST = "another-host"


@pytest.fixture
def dead_pid() -> int:
    """The id of a process that has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


def test_a_process_succeeds_only_a_predecessor_that_is_dead(dead_pid: int) -> None:
    """Same name, same host, and no such process any more; of another host nothing is known."""
    me = LeaseHolder("queue-1")
    assert me.succeeds(me)
    assert me.succeeds(LeaseHolder("queue-1", pid=dead_pid))
    assert not me.succeeds(LeaseHolder("queue-1", pid=os.getppid()))
    assert not me.succeeds(LeaseHolder("queue-2", pid=dead_pid))
    assert not me.succeeds(LeaseHolder("queue-1", OTHER_HOST, dead_pid))


def lease(hub: MemoryHub, name: str, **holder: object) -> LeaderLease:
    """A lease of the queue on a client of its own, of a process of this name."""
    made = LeaderLease(hub.connect(), "queue", name)
    made.holder = LeaseHolder(name, **holder)  # type: ignore[arg-type] -- host and pid
    return made


async def test_two_processes_of_one_name_do_not_duel() -> None:
    """As two containers of one service have it: the second waits, and the first keeps its lease."""
    hub = MemoryHub()
    first, second = lease(hub, "queue-1"), lease(hub, "queue-1", host=OTHER_HOST)
    assert await first.try_acquire()
    assert not await second.try_acquire()
    keeping = asyncio.create_task(first.keep())
    await asyncio.sleep(4 * POLL_S)
    assert not await second.try_acquire()
    assert not keeping.done()
    keeping.cancel()


async def test_a_restarted_process_takes_its_lease_over_at_once(dead_pid: int) -> None:
    """Its predecessor on this host is dead, and has left the lease behind."""
    hub = MemoryHub()
    assert await lease(hub, "queue-1", pid=dead_pid).try_acquire()
    assert await lease(hub, "queue-1").try_acquire()


async def test_a_lease_that_expired_while_the_bus_was_away_stays_with_its_holder() -> None:
    """The holder could not renew it, and is as healthy as before. A standby that got no answers gives it time; one that
    has waited that long takes an unrenewed lease."""
    hub = MemoryHub()
    leader, standby = lease(hub, "queue-1"), lease(hub, "queue-2")
    assert await leader.try_acquire()
    assert not await standby.try_acquire()
    hub.stop()
    assert not await standby.try_acquire()
    hub.buckets[subjects.LEASE].clear()
    hub.start()
    assert not await standby.try_acquire()
    assert await leader.try_acquire()
    hub.buckets[subjects.LEASE].clear()
    async with asyncio.timeout(60):
        while not await standby.try_acquire():  # noqa: ASYNC110 -- what is awaited is a time limit
            await asyncio.sleep(POLL_S)
