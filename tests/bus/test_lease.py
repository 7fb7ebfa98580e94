"""Acquisition of leases: at once from a process that is certain to be dead, from any other after it expired while the bus was
there."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead_bus.lease import ANSWER_S, POLL_S, RENEW_S, TTL_S, LeaderLease, LeaseHolder, decode_holder
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire import subjects
from tests.kit.eventually import eventually

ELSEWHERE = "another machine or container"


@pytest.fixture
def dead_pid() -> int:
    """The id of a process that has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


def test_a_process_succeeds_only_a_process_that_is_certain_to_be_dead(dead_pid: int) -> None:
    """Its id counts here, and no such process lives. Nothing is known of another container, or of an earlier version."""
    me = LeaseHolder.here("queue-1")
    other = replace(me, word="another")
    assert me.succeeds(me)
    assert not me.succeeds(replace(me, name="queue-2"))
    assert me.succeeds(replace(other, name="queue-2", pid=dead_pid))
    assert me.succeeds(other), "its process id is ours now"
    assert not me.succeeds(replace(other, pid=os.getppid()))
    assert not me.succeeds(replace(other, pid=dead_pid, space=ELSEWHERE))
    assert not me.succeeds(LeaseHolder("queue-1", me.host, dead_pid))


def test_a_process_that_was_not_waited_for_is_dead() -> None:
    """A killed service whose parent does not look keeps its id and no standby waiting."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    me = LeaseHolder.here("queue-1")
    eventually(lambda: me.succeeds(replace(me, word="another", pid=process.pid)))
    process.wait(60)


def test_a_lease_of_an_earlier_version_can_be_read() -> None:
    """It names no word: nobody takes it over before it has run out, and bytes that are no lease name nobody."""
    held = decode_holder(b'{"name":"queue-1","host":"h","pid":7}')
    assert held == LeaseHolder("queue-1", "h", 7)
    assert held is not None and not LeaseHolder.here("queue-1").succeeds(held)
    assert decode_holder(b"queue-1") is None
    assert decode_holder(b"\xff") is None


def lease(hub: MemoryHub, name: str, **holder: Any) -> LeaderLease:
    """A lease of the queue on a client of its own, of a process of this name."""
    made = LeaderLease(hub.connect(), "queue", name)
    made.holder = replace(made.holder, **holder)
    return made


async def test_two_processes_of_one_name_do_not_duel() -> None:
    """As two containers of one service have it: the second waits, and the first keeps its lease."""
    hub = MemoryHub()
    first, second = lease(hub, "queue-1"), lease(hub, "queue-1", word="another", space=ELSEWHERE)
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
    assert await lease(hub, "queue-1", pid=dead_pid, word="dead").try_acquire()
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


def test_a_lost_renewal_is_repeated_while_the_lease_lasts() -> None:
    """One message without an answer, wherever it falls, leaves time for two more."""
    assert RENEW_S + 2 * ANSWER_S < TTL_S
