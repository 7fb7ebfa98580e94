"""Counts jobs' ends as the log tells them, at the least cost: bytes are searched, not decoded."""

import asyncio
import time

from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import subjects

STALL_S = 60.0


async def count_ends(bus: NatsBus, wanted: int, *, after: int, kind: bytes = b'"type":"JobSucceeded"') -> float:
    """Wait for so many ends behind a sequence; the time of the last (perf_counter). Raises TimeoutError on a stall."""
    tail, found = await bus.tail(subjects.LOG, after=after), 0
    while found < wanted:
        for stored in await asyncio.wait_for(tail.next(), STALL_S):
            found += stored.payload.count(kind)
    ended = time.perf_counter()
    await tail.close()
    return ended
