"""World of a queue with its log on a bus, and an explainer that answers about it."""

import asyncio
from typing import Self

import msgspec

from fairlead_bus import snapshots
from fairlead_bus.log import NO_HEAD, LogHead, identity
from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.snapshots import Snapshot
from fairlead_queue.core import QueueCore
from fairlead_queue.explain.explain import explain
from fairlead_replay.explainer.service import IDLE_S, Explainer
from fairlead_schemas.queries.explainer import (
    Ask,
    AskDryRun,
    AskWhy,
    ExplainerAnswer,
    Explanation,
    decode_answer,
    encode,
)
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.commit import commit_hash, encode_commit
from tests.kit import queue_world as queues

WAIT_S = 60.0


class ExplainerWorld:
    """`async with ExplainerWorld() as world`: `world.queue` is played, `write` puts its log onto the bus, `why` asks."""

    def __init__(self, *, idle_s: float = IDLE_S, bus: type[MemoryBus] = MemoryBus) -> None:
        self.queue = queues.QueueWorld(careful=False)
        self.hub = MemoryHub()
        self._bus = self.hub.connect()
        self._heads: dict[str, LogHead] = {}
        self._idle_s = idle_s
        #: The first explainer's.
        self.bus = bus(self.hub)
        self.explainers: list[Explainer] = []
        self._running: list[asyncio.Task[int]] = []

    async def __aenter__(self) -> Self:
        await self.start(self.bus)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Every explainer ends, with code 0."""
        for explainer in self.explainers:
            await explainer.stop()
        assert await asyncio.gather(*self._running) == [0] * len(self._running)

    @property
    def explainer(self) -> Explainer:
        """The first."""
        return self.explainers[0]

    async def exit_code(self) -> int:
        """Wait for the first explainer to end by itself, and return its exit code."""
        return await asyncio.wait_for(self._running.pop(0), WAIT_S)

    async def start(self, bus: MemoryBus) -> Explainer:
        """One more explainer."""
        explainer = Explainer(bus, clock=lambda: self.queue.now, idle_s=self._idle_s)
        self.explainers.append(explainer)
        self._running.append(asyncio.create_task(explainer.run()))
        await asyncio.sleep(0)
        return explainer

    # -- the log

    @property
    def last(self) -> int:
        """The newest sequence."""
        return len(self.queue.log)

    async def write(self) -> int:
        """What the queue's world has committed since, chained as its writers would; the log's last sequence."""
        for commit in self.queue.log[sum(head.n for head in self._heads.values()) :]:
            head = self._heads.get(commit.writer, NO_HEAD)
            payload = encode_commit(msgspec.structs.replace(commit, n=head.n + 1, prev=head.hash))
            sequence = await self._bus.append(subjects.LOG, subjects.log(commit.writer), payload)
            self._heads[commit.writer] = LogHead(head.n + 1, commit_hash(payload), sequence)
        return self.last

    async def keep_snapshot(self, turn: int = 0, *, state: bytes | None = None) -> None:
        """The queue stores its state as it is now (or other bytes in its place)."""
        log_id = await identity(self._bus)
        kept = Snapshot(self.last, dict(self._heads), state or self.queue.core.snapshot())
        await snapshots.save(self._bus, "queue", kept, log_id=log_id, schema=QueueCore.schema, turn=turn)

    def folded_to(self, sequence: int) -> QueueCore:
        """A core that has folded the log up to there, and nothing else."""
        core = QueueCore()
        for place, commit in enumerate(self.queue.log[:sequence], start=1):
            core.evolve(place, commit)
        return core

    def told(self, job: str, at: int = 0) -> Explanation:
        """Return the pure function's answer for a live job."""
        state = self.folded_to(at or self.last).state
        return explain(state, state.jobs[job])

    # -- questions

    async def raw(self, payload: bytes) -> ExplainerAnswer:
        """Any bytes, and what they are answered with."""
        return decode_answer(await self._bus.request(subjects.ASK, payload, timeout_s=60))

    async def ask(self, ask: Ask) -> ExplainerAnswer:
        """One question."""
        return await self.raw(encode(ask))

    async def why(self, job: str, at: int = 0) -> ExplainerAnswer:
        """Query the reason of a job's state."""
        return await self.ask(AskWhy(job=job, at=at))

    async def dry_run(self, *commands: SubmitJob) -> ExplainerAnswer:
        """Query the outcome of these submits."""
        return await self.ask(AskDryRun(commands=commands))


def busy_morning(world: queues.QueueWorld) -> list[str]:
    """Two queues, one node, jobs that run, wait and end; the ids of those that wait."""
    world.configure("research", maximum={"gpu": 8000})
    world.node(gpus=8)
    running = [world.submit(2, queue="research") for _ in range(3)]
    world.run(*running)
    world.end(running[-1])
    waiting = [world.submit(8, queue="research") for _ in range(4)]
    return [*waiting, world.submit(8)]
