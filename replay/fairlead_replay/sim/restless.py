"""People who also change the queues all the time: limits under what runs, queues that come and go, pools, budgets.

What a seed draws here adds to what `workload.py` draws. Before the world is asked whether it recovers, every limit is
lifted, so that every job that fits some nodes can end.
"""

from random import Random
from typing import Any

import msgspec

from fairlead_replay.sim.workload import SECOND_NS, People
from fairlead_schemas.queuefile.settings import (
    MODEL_LABEL,
    POOL_LABEL,
    Ageing,
    Budget,
    PoolEntry,
    PoolSettings,
    Preemption,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from fairlead_schemas.wire.commands import ApplyQueues, SubmitJob

MODEL = "sim"
SIDE = "side"
#: Queues by pool; every one may come and go.
PATHS = ("free", "lab/small", "lab/wide", "shared", "org/team/a", "org/team/b", "org/c")
ABOVE = ("lab", "org", "org/team")
SIDE_PATHS = ("aside/a", "aside/b")
LIMITS: tuple[dict[str, Any], ...] = (
    {}, {"maximum": {"gpu": 3000}}, {"maximum": {"gpu": 6000}}, {"maximum": {"cpu": 7000}}, {"maximum": {"gpu": 0}},
    {"guaranteed": {"gpu": 2000}}, {"guaranteed": {"gpu": 4000}}, {"guaranteed": {"gpu": 2000, "cpu": 2000}},
    {"guaranteed": {"gpu": 2000}, "lending": {"gpu": 0}}, {"guaranteed": {"gpu": 4000}, "lending": {"gpu": 1000}},
    {"guaranteed": {"gpu": 2000}, "borrowing": {"gpu": 2000}}, {"borrowing": {"gpu": 3000}}, {"maximum": {f"gpu:{MODEL}": 2000}},
    {"budget": Budget(gpu_milli_s=40_000, period="day")}, {"budget": Budget(gpu_milli_s=40_000, period="day", when_spent="demote")},
    {"weight": 3, "priority": 5}, {"priority": -5},
)  # fmt: skip
#: Only for queues that have none below them.
USERS: tuple[dict[str, Any], ...] = ({"users": {"*": {"gpu": 2000}}}, {"users": {"a": {"gpu": 1000}}})


class Restless(People):
    """People who send commands, and administrators of the queues."""

    async def configure(self) -> None:
        """All queues, then limits as they come; what does not agree with the others is refused."""
        await self._open_all(self._pool("default"), self._pool(SIDE))
        for path in (*PATHS, *SIDE_PATHS):
            await self._apply(queues=(self._queue(path),))

    async def tidy(self) -> None:
        """Every limit goes, then what is tidied otherwise."""
        calm = PoolSettings(patience_ns=20 * SECOND_NS)
        await self._open_all(*(PoolEntry(pool=pool, settings=calm) for pool in ("default", SIDE)))
        await super().tidy()

    async def _open_all(self, *pools: PoolEntry) -> None:
        """Every queue is there, without a limit."""
        queues = [QueueEntry(path="aside", settings=QueueSettings(pool=SIDE))]
        queues += [QueueEntry(path=path, settings=QueueSettings()) for path in (*ABOVE, *PATHS, *SIDE_PATHS)]
        await self._apply(pools=pools, queues=tuple(queues))

    def labels(self, rng: Random) -> dict[str, str]:
        """Some nodes are in the other pool; all name their model."""
        return {MODEL_LABEL: MODEL} | ({POOL_LABEL: SIDE} if rng.random() < 0.25 else {})

    async def _interfere(self) -> None:
        rng, draw = self.rng, self.rng.random()
        if draw < 0.6:
            await super()._interfere()
        elif draw < 0.85:
            entries = [self._queue(self._any_path()) for _ in range(rng.choice((1, 1, 2, 4)))]
            await self._apply(
                queues=tuple({entry.path: entry for entry in entries}.values()), reclaim=rng.random() < 0.5
            )
        elif draw < 0.93:
            removal = QueueRemoval(path=self._any_path(), move_to=rng.choice(("", *PATHS, *SIDE_PATHS)))
            await self._apply(remove=(removal,), reclaim=rng.random() < 0.3)
        else:
            await self._apply(pools=(self._pool(rng.choice(("default", "default", SIDE))),))

    async def _apply(self, **change: Any) -> None:
        await self.send("queue", [ApplyQueues(id=self.new_id(), user="boss", **change)])

    def _any_path(self) -> str:
        return self.rng.choice((*PATHS, *PATHS, *SIDE_PATHS, *ABOVE))

    def _leaf(self) -> str:
        return self.rng.choice((*PATHS, *PATHS, *SIDE_PATHS))

    def _job(self) -> SubmitJob:
        job = super()._job()
        request = (
            msgspec.structs.replace(job.request, selector=(f"{MODEL_LABEL}={MODEL}",))
            if self.rng.random() < 0.7
            else job.request
        )
        return msgspec.structs.replace(job, request=request)

    def _queue(self, path: str) -> QueueEntry:
        rng = self.rng
        limits: dict[str, Any] = {}
        for _ in range(rng.choice((0, 1, 1, 2))):
            limits |= rng.choice(LIMITS)
        if path in (*PATHS, *SIDE_PATHS) and rng.random() < 0.2:
            limits |= rng.choice(USERS)
        if set(limits.get("lending", {})) - set(limits.get("guaranteed", {})):
            del limits["lending"]
        preemption = Preemption(
            reclaim=rng.choice(("any", "any", "lower_priority", "never")), rebalance=rng.random() < 0.3,
            lower_priority=rng.random() < 0.8, protect_ns=rng.choice((0, 1, 5)) * SECOND_NS,
        )  # fmt: skip
        return QueueEntry(path=path, settings=QueueSettings(preemption=preemption, **limits))

    def _pool(self, name: str) -> PoolEntry:
        rng = self.rng
        settings = PoolSettings(
            sequencer=rng.choice(("drf", "drf", "fifo", "lifo", "fairshare", "promised")), patience_ns=rng.choice((3, 20)) * SECOND_NS,
            ageing=rng.choice((None, None, Ageing(every_ns=2 * SECOND_NS, most=5))), half_life_ns=rng.choice((0, 10 * SECOND_NS)),
            past_percent=rng.choice((0, 0, 50)), prices=rng.choice(({}, {}, {MODEL: 2500})),
        )  # fmt: skip
        return PoolEntry(pool=name, settings=settings)
