"""A leader's lease: keeps two replicas from duelling. It is never the fence; the log's server is.

The holder's name decides: a process that comes back under the same name takes its own lease over
at once, another one waits until the lease has run out.
"""

import asyncio

from fairlead_bus.port import Bus, OutcomeUnknown, StaleWriter, Unavailable
from fairlead_schemas import subjects

TTL_S = 3
RENEW_S = 1.0
POLL_S = 0.25


class Lease:
    """One service's lease."""

    def __init__(self, bus: Bus, service: str, holder: str) -> None:
        self.bus, self.service, self.holder = bus, service, holder.encode()
        self.revision = 0

    async def try_acquire(self) -> bool:
        """True when the lease is ours; else ask again after POLL_S."""
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
            if entry is not None and entry.value != self.holder:
                return False
            self.revision = await self.bus.put(
                subjects.LEASE, self.service, self.holder, expected=entry.revision if entry else 0, ttl_s=TTL_S
            )
        except (StaleWriter, Unavailable, OutcomeUnknown):
            return False  # what is unknown shows at the next look: the holder's name decides
        return True

    async def keep(self) -> None:
        """Renew for ever. Returns when another holder has the lease: step down."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                self.revision = await self.bus.put(
                    subjects.LEASE, self.service, self.holder, expected=self.revision, ttl_s=TTL_S
                )
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
        return entry is not None and entry.value != self.holder

    async def release(self) -> None:
        """Give it back, so that a successor need not wait."""
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
            if entry is not None and entry.value == self.holder:
                await self.bus.delete(subjects.LEASE, self.service)
        except (Unavailable, OutcomeUnknown):
            pass
