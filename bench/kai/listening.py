"""Events that a row waits for, and the reader of the log. Commits without such an event are only searched: reading shares the machine
with what it measures."""

import asyncio
import time
from collections import deque
from typing import Protocol, Self

from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import Tail
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit
from fairlead_schemas.wire.events import (
    EventBase,
    JobCancelled,
    JobDeferred,
    JobRejected,
    JobSubmitted,
    JobUnplaceable,
    PreemptionStarted,
    RunStarted,
)

STALL_S = 20.0


class Awaited(Protocol):
    """Event that a row waits for."""

    #: Names of the types of events that say it.
    types: tuple[bytes, ...]

    def take(self, event: EventBase) -> bool:
        """Return True if this event completes it."""
        ...


class Started:
    """Wait for so many runs to have started, of anybody's jobs or of one job."""

    types: tuple[bytes, ...] = (b'"RunStarted"',)

    def __init__(self, runs: int, job: str = "") -> None:
        self.left, self.job = runs, job
        #: The job that started last.
        self.last = ""

    def take(self, event: EventBase) -> bool:
        if isinstance(event, RunStarted) and self.job in ("", event.job):
            self.left -= 1
            self.last = event.job
        return self.left == 0


class Cancelled:
    """A job is gone, and what it held is free."""

    types: tuple[bytes, ...] = (b'"JobCancelled"',)

    def __init__(self, job: str) -> None:
        self.job = job

    def take(self, event: EventBase) -> bool:
        return isinstance(event, JobCancelled) and event.job == self.job


class Refused:
    """The next job that is submitted does not start, and why."""

    types: tuple[bytes, ...] = (b'"JobSubmitted"', b'"JobRejected"', b'"JobDeferred"', b'"JobUnplaceable"')

    def __init__(self) -> None:
        self.job = ""

    def take(self, event: EventBase) -> bool:
        match event:
            case JobSubmitted(job=job):
                self.job = self.job or job
                return False
            case JobRejected():
                raise RuntimeError(f"the job was refused: {event.message}")
            case JobDeferred(job=job) | JobUnplaceable(job=job):
                return job == self.job
            case _:
                return False


class Preempting:
    """Wait for a run to be asked to yield to the next job that is submitted."""

    types: tuple[bytes, ...] = (b'"JobSubmitted"', b'"PreemptionStarted"')

    def __init__(self) -> None:
        self.job = ""

    def take(self, event: EventBase) -> bool:
        if isinstance(event, JobSubmitted):
            self.job = self.job or event.job
        return isinstance(event, PreemptionStarted) and event.beneficiary == self.job


class Ear:
    """Follows the log, commit by commit: nothing is missed between two waits, and nothing is read twice."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._unheard = deque[bytes]()

    @classmethod
    async def open(cls, bus: NatsBus) -> Self:
        """Open at the present end of the log."""
        return cls(await bus.tail(subjects.LOG, after=(await bus.state(subjects.LOG)).last))

    async def until(self, awaited: Awaited) -> float:
        """The time.perf_counter() at which it was read. Raises TimeoutError when the log does not advance."""
        while True:
            while self._unheard:
                if _tells(self._unheard.popleft(), awaited):
                    return time.perf_counter()
            self._unheard.extend(each.payload for each in await asyncio.wait_for(self._tail.next(), STALL_S))

    async def close(self) -> None:
        """Listen no more."""
        await self._tail.close()


def _tells(payload: bytes, awaited: Awaited) -> bool:
    if not any(name in payload for name in awaited.types):
        return False
    is_done = False
    for event in decode_commit(payload).events:
        is_done = awaited.take(event) or is_done
    return is_done
