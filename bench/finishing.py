"""Counts events in the log at the least cost: bytes are searched, not decoded."""

import asyncio
import time
from typing import Self

from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import Tail
from fairlead_schemas.wire import subjects

STALL_S = 60.0
SUCCEEDED, STARTED = b'"type":"JobSucceeded"', b'"type":"RunStarted"'


class EventCount:
    """Number of events of one type behind a sequence, read as far as `reach` was called for."""

    def __init__(self, tail: Tail, kind: bytes) -> None:
        self._tail, self._kind = tail, kind
        self.found = 0

    @classmethod
    async def open(cls, bus: NatsBus, kind: bytes = SUCCEEDED) -> Self:
        """Count from the present end of the log on."""
        return cls(await bus.tail(subjects.LOG, after=(await bus.state(subjects.LOG)).last), kind)

    async def reach(self, wanted: int) -> float:
        """Wait for so many events; return the time of the last (perf_counter). Raises TimeoutError on a stall."""
        while self.found < wanted:
            for stored in await asyncio.wait_for(self._tail.next(), STALL_S):
                self.found += stored.payload.count(self._kind)
        return time.perf_counter()

    async def close(self) -> None:
        """End reading."""
        await self._tail.close()
