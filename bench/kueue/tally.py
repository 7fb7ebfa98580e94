"""Tally of a played load from its log: when the last job ended, how long jobs waited, how many runs yielded.

While the load runs, commits are kept as bytes and only searched; decoding comes afterwards, since reading shares the
machine with what it measures.
"""

import asyncio
import time

from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Commit, decode_commit
from fairlead_schemas.wire.events import JobRequeued, JobSubmitted, RunStarted

STALL_S = 60.0
_SUCCEEDED, _FAILED = b'"type":"JobSucceeded"', b'"type":"JobFailed"'


class Tally:
    """Counts commits. A job waits from its submit until its first start, both as the log dates them."""

    def __init__(self) -> None:
        self.ended = 0.0  # time.perf_counter() when the last job's end was read
        self.preempted = 0
        #: {CPUs asked for: [seconds waited]}
        self.waits_s: dict[int, list[float]] = {}
        self._waiting: dict[str, tuple[int, int]] = {}

    def mean_wait_s(self, cpus: int) -> float:
        """Return the mean wait of all jobs that asked for so many CPUs and have started; 0 if none has."""
        waits = self.waits_s.get(cpus, [])
        return sum(waits) / len(waits) if waits else 0.0

    def take(self, commit: Commit) -> None:
        """Count one commit."""
        for event in commit.events:
            match event:
                case JobSubmitted(job=job, request=request):
                    self._waiting[job] = request.cpu_milli // 1000, commit.at_ns
                case RunStarted(job=job) if job in self._waiting:
                    cpus, since_ns = self._waiting.pop(job)
                    self.waits_s.setdefault(cpus, []).append((commit.at_ns - since_ns) / 1e9)
                case JobRequeued(reason="preempted"):
                    self.preempted += 1
                case _:
                    pass


async def read(bus: NatsBus, *, after: int, jobs: int) -> Tally:
    """Follow the log behind a sequence until so many jobs have succeeded. Raises RuntimeError when one fails,
    TimeoutError when the log does not advance."""
    tally, kept, found = Tally(), list[bytes](), 0
    tail = await bus.tail(subjects.LOG, after=after)
    while found < jobs:
        for stored in await asyncio.wait_for(tail.next(), STALL_S):
            if _FAILED in stored.payload:
                raise RuntimeError(f"a job failed: {stored.payload.decode()[:1000]}")
            found += stored.payload.count(_SUCCEEDED)
            kept.append(stored.payload)
    tally.ended = time.perf_counter()
    await tail.close()
    for payload in kept:
        tally.take(decode_commit(payload))
    return tally
