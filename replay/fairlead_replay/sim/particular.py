"""People who ask for everything that a job may ask for, on nodes that can give it: shares, MIG instances, replicas, tasks,
elastic gangs, topology, tolerations, several kinds of units, whole nodes.

Goes before any other kind of people: `class Both(Particular, Operators)`. Half of the jobs stay as plain as theirs.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from fairlead_placer.capacity.builds import MIG_LABEL, REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.capacity.gangs import Shortfall
from fairlead_placer.cutting.waiting import is_simple
from fairlead_placer.entities import Node
from fairlead_placer.placing import find
from fairlead_placer.state import State
from fairlead_replay.sim.workload import People
from fairlead_schemas.units.hardware import profile_milli
from fairlead_schemas.wire import resource_requests
from fairlead_schemas.wire.commands import SubmitJob
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
        wishes: tuple[dict[str, Any], ...] = (
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
        return msgspec.structs.replace(small, tolerations=tolerations, **rng.choice(wishes))


def fits(request: Request, nodes: Sequence[Inventory]) -> bool:
    """Return True if the placer finds a place for the request on these nodes when they are empty."""
    state = State()
    for node in nodes:
        state.add_node(Node(node.hostname, "journal", "boot", node))
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
