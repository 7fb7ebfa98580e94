"""Simulated people who use every feature of a job (`Particular`), who also maintain nodes (`Operators`), or who change
the queues (`Restless`) and the jobs (`JobUpdaters`). They take the place of the plain people of `workload.py`.

Goes before any other kind of people: `class Both(Particular, Operators)`. Half of the jobs stay as plain as theirs.

What a seed draws here takes the place of the plain cordons and drains of `workload.py`. Before the world is asked
whether it recovers, all of it is undone.

People who also change the queues all the time: limits under what runs, queues that come and go, pools, budgets.

What a seed draws here adds to what `workload.py` draws. Before the world is asked whether it recovers, every limit is
lifted, so that every job that fits some nodes can end.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from fairlead_placer.cluster.capacity.node_shape import MIG_LABEL, REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.repartition_demand import is_simple
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.scheduling.node_selection import find
from fairlead_replay.sim.context import EPOCH_NS
from fairlead_replay.sim.workload import People
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
from fairlead_schemas.units.hardware import profile_milli
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import resource_requests
from fairlead_schemas.wire.commands import (
    ApplyQueues,
    CancelMaintenance,
    CancelRollout,
    DrainQueue,
    FinishRolloutNode,
    HoldQueue,
    PauseRollout,
    PlacerCommand,
    QuarantineNode,
    ReleaseQueue,
    RemoveNode,
    RequeueJob,
    ResetBreaker,
    ResumeRollout,
    ScheduleMaintenance,
    StartRollout,
    SubmitJob,
    TaintNode,
    UnquarantineNode,
    UntaintNode,
    UpdateJob,
)
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance, NodeTopology, NumaNode, PcieLevel, Request

PROFILES = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
#: Where such instances may begin, all at once.
STARTS: dict[str, tuple[int, ...]] = {"1g.5gb": (0, 1, 2, 3, 4, 5, 6), "2g.10gb": (0, 2, 4), "3g.20gb": (0, 4)}
#: A GPU that can be cut, and how many replicas others are sliced into.
A100: dict[str, Any] = {"model": "NVIDIA-A100-SXM4-40GB", "memory_mib": 40960, "compute_capability": 80}
REPLICAS = 4
TAINT, TOLERATION = "special=yes:NoSchedule", "special"


class Particular(People):
    """Everybody who sends commands, and what their nodes are."""

    def equip(self, inventory: Inventory, rng: Random) -> Inventory:
        """Racks and blocks for all; links and NUMA nodes, GPUs that can be cut or are sliced, taints for some."""
        labels = {"fairlead/rack": rng.choice(("r1", "r2")), "fairlead/block": "b1"}
        kind = rng.choice(("plain", "inside", "inside", "auto", "recut", "sliced", "tainted"))
        more: dict[str, Any] = {}
        if kind in ("inside", "auto"):
            more["inside"] = inside(len(inventory.gpus))
        if kind in ("auto", "recut"):
            labels[MIG_LABEL] = kind
            more["gpus"] = tuple(_cuttable(gpu, on=kind == "recut" and gpu.index % 2 == 0) for gpu in inventory.gpus)
        if kind == "sliced":
            labels |= {SHARING_LABEL: "time-slicing", REPLICAS_LABEL: str(REPLICAS)}
        if kind == "tainted":
            more["taints"] = (TAINT,)
        return msgspec.structs.replace(inventory, labels={**inventory.labels, **labels}, **more)

    def could_ever(self, request: Request, nodes: Sequence[Inventory]) -> bool:
        """By the placer's own judgement of nodes on which nothing runs, cut or not, where it would cut them."""
        if fits(request, nodes):
            return True
        if not is_simple(request):
            return False
        if request.profile:
            return fits(request, [_all_cut(node, request.profile) for node in nodes])
        return fits(request, [_uncut(node) for node in nodes])

    def _job(self) -> SubmitJob:
        job = super()._job()
        if self.rng.random() < 0.5:
            return job
        request = self._particular(job.request)
        found = resource_requests.faults(request)
        assert not found, f"expected a request that can be placed, found {found}"
        array = None if request.units > 1 else job.array
        return msgspec.structs.replace(job, request=request, array=array)

    def _particular(self, plain: Request) -> Request:
        rng = self.rng
        small = msgspec.structs.replace(plain, nodes=1, cpu_milli=rng.choice((500, 1000, 2000)), memory_mib=64)
        profile, parts = rng.choice(PROFILES), rng.choice((1, 1, 2))
        shapes: tuple[dict[str, Any], ...] = (
            {"gpu_milli": rng.choice((250, 400, 500)), "gpu_parts": 1, "gpu_memory_mib": rng.choice((0, 10240))},
            {"gpu_milli": parts * profile_milli(profile), "gpu_parts": parts, "profile": profile, "nodes": rng.choice((1, 1, 2))},
            {"gpu_milli": profile_milli(profile), "gpu_parts": 1, "profile": profile},
            {"gpu_milli": 250 * parts, "gpu_parts": parts, "replicas": True},
            {"gpu_milli": rng.choice((0, 1000, 1000, 2000)), "nodes": rng.choice((2, 4, 6)), "tasks": True},
            {"gpu_milli": 250, "gpu_parts": 1, "nodes": rng.choice((3, 5)), "tasks": True},
            {"gpu_milli": 1000, "nodes": rng.choice((3, 4)), "nodes_min": rng.choice((1, 2))},
            {"gpu_milli": 1000 * rng.choice((1, 2, 2)), "require": (rng.choice(("numa", "nvlink", "socket", "switch")),)},
            {"gpu_milli": 1000, "nodes": 2, "require": (rng.choice(("rack", "block")),)},
            {"gpu_milli": 1000, "nodes": rng.choice((2, 3)), "tasks": True, "require": ("node",)},
            {"gpu_milli": 2000, "prefer": ("numa", "rack"), "packing": rng.choice(("", "pack", "spread"))},
            {"gpu_milli": 1000 * rng.choice((0, 1)), "exclusive": True, "nodes": rng.choice((1, 2))},
            {"gpu_milli": 1000, "nics": 1},
            {"gpu_milli": 1000, "also": (Request(gpu_milli=rng.choice((0, 2000)), cpu_milli=1000, memory_mib=64),)},
            {"gpu_milli": 1000, "nodes": 2, "also": (Request(gpu_milli=500, gpu_parts=1, cpu_milli=500, memory_mib=64),)},
        )  # fmt: skip
        tolerations = (TOLERATION,) if rng.random() < 0.4 else ()
        return msgspec.structs.replace(small, tolerations=tolerations, **rng.choice(shapes))


def fits(request: Request, nodes: Sequence[Inventory]) -> bool:
    """Return True if the placer finds a place for the request on these nodes when they are empty."""
    state = ClusterState()
    for node in nodes:
        state.add_node(ClusterNode(node.hostname, "journal", "boot", node))
    return not isinstance(find(state, request), Shortfall)


def inside(gpus: int) -> NodeTopology:
    """Pairs of GPUs, linked and under one switch, each pair on a NUMA node of its own with half of the CPUs."""
    pairs = [gpu // 2 for gpu in range(gpus)]
    levels: dict[tuple[bool, bool], PcieLevel] = {(True, True): "X", (False, True): "PIX", (False, False): "SYS"}
    return NodeTopology(
        numa=tuple(pairs),
        nvlinks=tuple(tuple(2 * (a != b and pairs[a] == pairs[b]) for b in range(gpus)) for a in range(gpus)),
        pcie=tuple(tuple(levels[a == b, pairs[a] == pairs[b]] for b in range(gpus)) for a in range(gpus)),
        numa_nodes=(NumaNode(node=0, cpus="0-7", socket=0), NumaNode(node=1, cpus="8-15", socket=1)),
        nics=("mlx5_0", "mlx5_1"),
        nic_levels=tuple(tuple("PIX" if pairs[gpu] == nic else "SYS" for nic in range(2)) for gpu in range(gpus)),
    )


def _cuttable(gpu: Gpu, *, on: bool) -> Gpu:
    return msgspec.structs.replace(gpu, mig=on, **A100)


def _all_cut(node: Inventory, profile: str) -> Inventory:
    """Return the node's inventory with instances of this profile on each GPU that the placer may repartition."""
    allowed = node.labels.get(MIG_LABEL, "recut")
    able = {gpu.uuid for gpu in node.gpus if gpu.model == A100["model"] and (gpu.mig or allowed == "auto")}
    full = {
        uuid: tuple(MigInstance(uuid=f"{uuid}-{start}", profile=profile, start=start) for start in STARTS[profile])
        for uuid in able
    }
    gpus = (
        msgspec.structs.replace(gpu, mig=True, instances=full[gpu.uuid]) if gpu.uuid in full else gpu
        for gpu in node.gpus
    )
    return msgspec.structs.replace(node, gpus=tuple(gpus))


def _uncut(node: Inventory) -> Inventory:
    """Return the node's inventory without MIG, where the placer may turn it off."""
    if node.labels.get(MIG_LABEL) != "auto":
        return node
    gpus = tuple(msgspec.structs.replace(gpu, mig=False, instances=()) for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=gpus)


ROLLOUT, WINDOW = "upgrade", "cooling"
TAINTS = ("mine=yes:NoSchedule", "mine=yes:NoExecute", "old:PreferNoSchedule")


class Operators(People):
    """People who send commands, and operators who maintain the machines."""

    async def tidy(self) -> None:
        """No plan is left, and no taint."""
        await self.send("placer", [CancelRollout(id=self.new_id(), name=ROLLOUT)])
        await self.send("placer", [CancelMaintenance(id=self.new_id(), name=WINDOW)])
        await self.send("placer", [UntaintNode(id=self.new_id(), node=node, taint="mine") for node in self.nodes])
        await super().tidy()

    async def _interfere(self) -> None:
        lost = self.lost()
        if lost and self.rng.random() < 0.5:
            await self.send("placer", [RemoveNode(id=self.new_id(), node=self.rng.choice(lost))])
        elif self.rng.random() < 0.5:
            await self._node_command()
        else:
            await super()._interfere()

    async def _node_command(self) -> None:
        draw = self.rng.random()
        if draw < 0.25:
            await super()._node_command()
        elif draw < 0.5:
            await self.send("placer", [self._taint_or_quarantine()])
        else:
            await self.send("placer", [self._plan()])

    def _taint_or_quarantine(self) -> PlacerCommand:
        node, rng = self.rng.choice(self.nodes), self.rng
        kinds: tuple[PlacerCommand, ...] = (
            TaintNode(id="", node=node, taint=rng.choice(TAINTS)),
            UntaintNode(id="", node=node, taint="mine"),
            QuarantineNode(id="", node=node),
            UnquarantineNode(id="", node=node),
            ResetBreaker(id=""),
        )
        return self._named(rng.choice(kinds))

    def _plan(self) -> PlacerCommand:
        rng = self.rng
        now_ns = EPOCH_NS + int(asyncio.get_running_loop().time() * SECOND_NS)
        starts_ns = now_ns + int(rng.uniform(-2, 10) * SECOND_NS)
        kinds: tuple[PlacerCommand, ...] = (
            StartRollout(
                id="", name=ROLLOUT, every=True, budget_gpus=rng.choice((8, 16, 64)), nodes_max=rng.choice((0, 1)),
                deadline_ns=rng.choice((0, 2, 20)) * SECOND_NS, stop_long=rng.random() < 0.5,
            ),
            FinishRolloutNode(id="", name=ROLLOUT, node=rng.choice(self.nodes)),
            FinishRolloutNode(id="", name=ROLLOUT, node=rng.choice(self.nodes)),
            PauseRollout(id="", name=ROLLOUT), ResumeRollout(id="", name=ROLLOUT), CancelRollout(id="", name=ROLLOUT),
            ScheduleMaintenance(
                id="", name=WINDOW, nodes=(rng.choice(self.nodes),), starts_ns=starts_ns,
                ends_ns=starts_ns + rng.choice((2, 15)) * SECOND_NS, notice_ns=rng.choice((0, 3)) * SECOND_NS,
            ),
            CancelMaintenance(id="", name=WINDOW),
        )  # fmt: skip
        return self._named(rng.choice(kinds))

    def _named(self, command: PlacerCommand) -> PlacerCommand:
        return msgspec.structs.replace(command, id=self.new_id())


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
            reclaim=rng.choice(("any", "any", "lower_priority", "never")),
            rebalance=rng.random() < 0.3,
            lower_priority=rng.random() < 0.8,
            protect_ns=rng.choice((0, 1, 5)) * SECOND_NS,
        )
        return QueueEntry(path=path, settings=QueueSettings(preemption=preemption, **limits))

    def _pool(self, name: str) -> PoolEntry:
        rng = self.rng
        settings = PoolSettings(
            sequencer=rng.choice(("drf", "drf", "fifo", "lifo", "fairshare", "promised")), patience_ns=rng.choice((3, 20)) * SECOND_NS,
            ageing=rng.choice((None, None, Ageing(every_ns=2 * SECOND_NS, most=5))), half_life_ns=rng.choice((0, 10 * SECOND_NS)),
            past_percent=rng.choice((0, 0, 50)), prices=rng.choice(({}, {}, {MODEL: 2500})),
        )  # fmt: skip
        return PoolEntry(pool=name, settings=settings)


class QueueClosers(Restless):
    """Administrators who also hold, drain and release queues; and people who submit some jobs held. Their draws add to those of
    `Restless`.
    """

    async def _interfere(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            kind = rng.choice((HoldQueue, DrainQueue, ReleaseQueue, ReleaseQueue))
            await self.send("queue", [kind(id=self.new_id(), user="boss", path=self._any_path())])
        else:
            await super()._interfere()

    async def tidy(self) -> None:
        """Every queue is released first."""
        for path in (*ABOVE, *PATHS, "aside", *SIDE_PATHS):
            await self.send("queue", [ReleaseQueue(id=self.new_id(), user="boss", path=path)])
        await super().tidy()

    def _job(self) -> SubmitJob:
        return msgspec.structs.replace(super()._job(), held=self.rng.random() < 0.2)


class JobUpdaters(Restless):
    """People who also requeue jobs, and change the priorities and time limits of those that wait or run. Their draws add to those of
    `Restless`.
    """

    async def _interfere(self) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            await self._update()
        elif draw < 0.35:
            jobs = list(self.jobs())
            job = self.rng.choice(jobs) if jobs else "999999"
            await self.send("queue", [RequeueJob(id=self.new_id(), user="a", job=job)])
        else:
            await super()._interfere()

    async def _update(self) -> None:
        rng, jobs = self.rng, list(self.jobs())
        limit_s = rng.choice((None, 0, 1, 3, 60))
        changed = UpdateJob(
            id=self.new_id(),
            user="a",
            job=rng.choice(jobs) if jobs else "999999",
            priority=rng.choice((None, 10, 90, 1000)),
            total_ns=None if limit_s is None else limit_s * SECOND_NS,
            extends=rng.random() < 0.5,
        )
        await self.send("queue", [changed])
