"""Leader's lease: prevents two replicas from leading at once. The fence is the log's server, never the lease.

A holder is one process: its name, its host, its process id. A process that restarts under the same name on the same
host takes over the lease of its dead predecessor at once; any other process waits until the lease has run out. Two live
processes that share one name by mistake wait too: otherwise each would take the lease from the other without end.
"""

import asyncio
import os
import socket

import msgspec

from fairlead_bus.port import Bus, OutcomeUnknown, StaleWriter, Unavailable
from fairlead_schemas.wire import subjects

TTL_S = 3
RENEW_S = 1.0
POLL_S = 0.25
#: A renewal is given up after this long and tried again: less than the lease lasts.
ANSWER_S = 2.0


class LeaseHolder(msgspec.Struct, frozen=True):
    """The process that has the lease."""

    name: str
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)

    def succeeds(self, other: "LeaseHolder") -> bool:
        """True where the other one is a predecessor of this process that is certain to be dead, or this process itself."""
        if (self.name, self.host) != (other.name, other.host):
            return False
        return self.pid == other.pid or not _lives(other.pid)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


class LeaderLease:
    """Lease of one service."""

    def __init__(self, bus: Bus, service: str, holder: str) -> None:
        self.bus, self.service, self.holder = bus, service, LeaseHolder(holder)
        self.revision = 0
        self._held = False
        self._away = False
        #: The loop's time before which an absent lease is not taken.
        self._not_before = 0.0

    async def try_acquire(self) -> bool:
        """True when the lease is ours; else ask again after POLL_S.

        A lease that ran out while the bus was away says nothing about its holder, who could not renew it: after such a
        time another process waits for as long as a lease lasts.
        """
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
        except Unavailable:
            self._away = True
            return False
        now = asyncio.get_running_loop().time()
        if self._away:
            self._away, self._not_before = False, now + TTL_S
        if entry is None and now < self._not_before and not self._held:
            return False
        if entry is not None and not self._may_take(entry.value):
            return False
        try:
            await self._put(entry.revision if entry else 0)
        except (StaleWriter, Unavailable, OutcomeUnknown):
            return False  # what is unknown shows at the next look: the holder decides
        self._held = True
        return True

    async def _put(self, expected: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self.revision = await self.bus.put(
                    subjects.LEASE, self.service, msgspec.json.encode(self.holder), expected=expected, ttl_s=TTL_S
                )
        except TimeoutError:
            raise OutcomeUnknown(f"the lease of {self.service}: no answer within {ANSWER_S:g} s") from None

    def _may_take(self, value: bytes) -> bool:
        """True for an own lease, and for that of a predecessor."""
        try:
            return self.holder.succeeds(msgspec.json.decode(value, type=LeaseHolder))
        except msgspec.MsgspecError:
            return False  # written by another version, which put a name only

    async def keep(self) -> None:
        """Renew the lease without end. Returns when another holder has the lease: the caller then steps down."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._put(self.revision)
            except StaleWriter:
                if not await self.try_acquire() and await self._taken():
                    return
            except (Unavailable, OutcomeUnknown):
                continue  # a renewal that was stored after all makes the next one stale, and that one looks again

    async def _taken(self) -> bool:
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
        except Unavailable:
            return False
        return entry is not None and not self._may_take(entry.value)

    async def release(self) -> None:
        """Give it back, so that a successor need not wait."""
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
            if entry is not None and self._may_take(entry.value):
                await self.bus.delete(subjects.LEASE, self.service)
        except (Unavailable, OutcomeUnknown):
            pass
