"""A made log of plain job lives: valid, chained, and as long as asked for.

Each job lives through JobSubmitted, JobOffered, JobPlaced, RunStarted, RunEnded and JobSucceeded; a
commit carries the same step of `per_commit` jobs. Finished jobs are retired as the queue does it.
"""

import asyncio
from collections import deque
from collections.abc import Iterator

import msgspec

from fairlead_bus.log import NO_HEAD, LogHead
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import VERSION, Commit, commit_hash, encode_commit
from fairlead_schemas.wire.events import (
    EventBase,
    JobOffered,
    JobPlaced,
    JobsRetired,
    JobSubmitted,
    JobSucceeded,
    NodeJoined,
    Part,
    QueueConfigured,
    RunEnded,
    RunStarted,
)
from fairlead_schemas.wire.resources import Gpu, Inventory, Request

NODES, GPUS = 500, 8
KEPT, CHUNK = 10_000, 1_000
SPEC = msgspec.Raw(b'{"command":["true"],"resources":{"cpu":"1","memory":"1Gi","nvidia.com/gpu":1}}')
REQUEST = Request(gpu_milli=1000, cpu_milli=1000, memory_mib=1024)

Step = tuple[str, list[EventBase]]


def opening() -> Iterator[Step]:
    """The default queue and the nodes."""
    yield "queue", [QueueConfigured(cause="clock", path="default")]
    for node in range(NODES):
        gpus = tuple(
            Gpu(uuid=uuid(node, index), index=index, model="NVIDIA A100-SXM4-80GB", memory_mib=81920)
            for index in range(GPUS)
        )
        inventory = Inventory(gpus=gpus, cpu_milli=256_000, memory_mib=2**20, runtime="hollow", simulated=True)
        yield (
            "placer",
            [NodeJoined(cause=f"report:n{node}:1", node=f"n{node}", incarnation="i", boot_id="b", inventory=inventory)],
        )


def uuid(node: int, index: int) -> str:
    """A made GPU's name."""
    return f"GPU-{node:08x}-0000-4000-8000-{index:012x}"


def lives(first: int, count: int, per_commit: int) -> Iterator[Step]:
    """Jobs `first` … `first + count - 1`; the finished ones beyond 10,000 leave by the thousand."""
    finished: deque[str] = deque()
    for start in range(first, first + count, per_commit):
        jobs = [str(job) for job in range(start, min(start + per_commit, first + count))]
        yield from steps(jobs)
        finished.extend(jobs)
        while len(finished) > KEPT + CHUNK:
            yield "queue", [JobsRetired(cause="clock", jobs=tuple(finished.popleft() for _ in range(CHUNK)))]


def steps(jobs: list[str]) -> Iterator[Step]:
    """The six commits of these jobs' lives."""
    place = {job: divmod(at % (NODES * GPUS), GPUS) for at, job in enumerate(jobs)}
    yield (
        "queue",
        [
            JobSubmitted(
                cause=f"cmd:{job}", job=job, name="true", queue="default", user="bench", request=REQUEST, spec=SPEC
            )
            for job in jobs
        ],
    )
    yield "queue", [JobOffered(cause="clock", job=job, attempt=1, rank=int(job)) for job in jobs]
    yield "placer", [placed(job, *place[job]) for job in jobs]
    yield "placer", [RunStarted(cause="clock", job=job, attempt=1) for job in jobs]
    yield (
        "placer",
        [
            RunEnded(cause="clock", job=job, attempt=1, outcome="exited", exit_code=0, released=(f"n{place[job][0]}",))
            for job in jobs
        ],
    )
    yield "queue", [JobSucceeded(cause="clock", job=job, attempt=1) for job in jobs]


def placed(job: str, node: int, gpu: int) -> JobPlaced:
    """Place one job on one GPU."""
    part = Part(node=f"n{node}", gpus=(uuid(node, gpu),), cpu_milli=1000, memory_mib=1024)
    return JobPlaced(cause="clock", job=job, attempt=1, parts=(part,), master_address="127.0.0.1", master_port=20000)


class LogMaker:
    """Chains steps into commits and appends them to a live log."""

    def __init__(self, bus: NatsBus) -> None:
        self.bus = bus
        self.heads: dict[str, LogHead] = {}
        self.sequence = 0
        self.events = 0

    async def append(self, steps_: Iterator[Step]) -> None:
        """Write every step as one commit; up to 64 unacknowledged at a time, in order."""
        waiting: deque[asyncio.Task[int]] = deque()
        for writer, events in steps_:
            payload = self.commit(writer, events)
            waiting.append(asyncio.create_task(self.bus.append(subjects.LOG, subjects.log(writer), payload)))
            if len(waiting) >= 64:
                await waiting.popleft()
        for task in waiting:
            await task

    def commit(self, writer: str, events: list[EventBase]) -> bytes:
        """The next commit of a writer."""
        head = self.heads.get(writer, NO_HEAD)
        self.sequence += 1
        payload = encode_commit(
            Commit(
                v=VERSION,
                writer=writer,
                n=head.n + 1,
                basis=self.sequence - 1,
                at_ns=1_700_000_000 * SECOND_NS + self.sequence,
                cursors={},
                prev=head.hash,
                events=events,  # type: ignore[arg-type] -- steps hold one writer's types
            )
        )
        self.heads[writer] = LogHead(head.n + 1, commit_hash(payload), self.sequence)
        self.events += len(events)
        return payload
