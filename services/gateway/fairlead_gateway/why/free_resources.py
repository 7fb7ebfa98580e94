"""Free resources of the nodes of a job's pool by the views, and how many units of a request fit into them. Pure.

Amounts alone: a share of a GPU needs one GPU with that much left, not that much of all GPUs together. Where it
matters which GPUs they are, how they are linked or which other work is there, amounts decide nothing (`is_judged`).
The placer alone decides which job is placed where. The state of each GPU and node is computed in `views/cluster_map.py`.
Start at `JobPool`.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from fairlead_gateway.views.cluster_map import barring_taints, is_open, is_whole_gpu, pool_of
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import held_sum
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.selectors import suits
from fairlead_schemas.units.taints import tolerated
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request


class FreeGpu(NamedTuple):
    """Free part of one GPU: thousandths, the memory that its shares have not been given, and all of its memory."""

    milli: int
    memory_mib: int
    whole_mib: int


class NodeFreeResources(NamedTuple):
    """Free part of one node: {place of a GPU in the inventory: its free part}, milli-CPU and MiB. GPUs that are faulted, in MIG
    mode, too small or too old for the request are left out.
    """

    gpus: dict[int, FreeGpu]
    cpu_milli: int
    memory_mib: int

    @property
    def whole_gpus(self) -> list[int]:
        """Places of the GPUs that are free as a whole."""
        return [at for at, gpu in self.gpus.items() if gpu.milli == WHOLE_MILLI]


def free_on_node(row: NodeRow, request: Request, held: Mapping[str, Part]) -> NodeFreeResources:
    """Return what the node has left when these parts are taken off."""
    milli, memory_mib = dict[str, int](), dict[str, int]()
    for part in held.values():
        for uuid in part.gpus:
            milli[uuid] = milli.get(uuid, 0) + (part.gpu_milli or WHOLE_MILLI)
            memory_mib[uuid] = memory_mib.get(uuid, 0) + part.gpu_memory_mib
    gpus = {
        at: FreeGpu(
            max(0, WHOLE_MILLI - milli.get(gpu.uuid, 0)), gpu.memory_mib - memory_mib.get(gpu.uuid, 0), gpu.memory_mib
        )
        for at, gpu in enumerate(row.inventory.gpus)
        if is_whole_gpu(row, gpu)
        and gpu.memory_mib >= request.gpu_memory_mib
        and gpu.compute_capability >= request.compute_capability
    }
    held_cpu_milli, held_mib = held_sum(held)
    return NodeFreeResources(gpus, row.inventory.cpu_milli - held_cpu_milli, row.inventory.memory_mib - held_mib)


def untolerated_taints(row: NodeRow, request: Request) -> list[str]:
    """Return the node's taints that keep the job from starting there."""
    return [taint.text for taint in barring_taints(row) if not tolerated(request.tolerations, *taint)]


class JobPool:
    """The pool of a request as of the views. Its nodes and their free resources are computed once, when they are needed."""

    def __init__(self, views: Views, request: Request, job: str = "") -> None:
        self._views, self._job = views, job
        self.request = request
        #: The placer's newest refusal of a job with this request.
        self.refusal = views.waiting.refusals.get(request)
        self.is_known = bool(views.nodes.rows)
        #: All nodes that may take it, in words.
        self.name = f"pool {request.pool}" if request.pool else "the cluster"

    @cached_property
    def nodes(self) -> list[NodeRow]:
        """Every node of the pool, by name."""
        pool, rows = self.request.pool or DEFAULT_POOL, self._views.nodes.rows.values()
        return sorted((row for row in rows if pool_of(row) == pool), key=lambda row: row.id)

    @cached_property
    def eligible(self) -> list[NodeRow]:
        """Nodes that take work of the job, judged by state, selectors, taints and reservations only."""
        kept = self._views.waiting.kept_nodes(self._job)
        return [
            row
            for row in self.nodes
            if is_open(row)
            and row.id not in kept
            and suits(row.labels, self.request.selector)
            and not untolerated_taints(row, self.request)
        ]

    @cached_property
    def free(self) -> dict[str, NodeFreeResources]:
        """{eligible node: what it has left}"""
        return {row.id: free_on_node(row, self.request, row.held) for row in self.eligible}

    @cached_property
    def empty(self) -> list[NodeFreeResources]:
        """Free resources of each node that matches the selector, if nothing ran there."""
        able = (row for row in self.nodes if suits(row.labels, self.request.selector))
        return [free_on_node(row, self.request, {}) for row in able]

    def has_room(self, gpu_milli: int | None = None, *, if_empty: bool = False) -> bool:
        """Return True if nodes have room for the request, or for it with other GPUs of each unit, or if no node is known."""
        request = self.request if gpu_milli is None else replace(self.request, gpu_milli=gpu_milli)
        return not self.is_known or fits(request, self.empty if if_empty else self.free.values())


def is_judged(request: Request) -> bool:
    """Return True if the amounts that nodes have left decide whether the request fits."""
    cut = request.profile or request.replicas
    return not (cut or request.also or request.exclusive or request.require or request.nics)


def units_min(request: Request) -> int:
    """Return the units of all kinds without which it does not start."""
    return (request.nodes_min or request.nodes) + sum(kind.nodes for kind in request.also)


def fits(request: Request, rooms: Iterable[NodeFreeResources]) -> bool:
    """Return True if this room takes enough units of the request, or if amounts cannot decide that."""
    return not is_judged(request) or fitting(request, rooms) >= units_min(request)


def fitting(request: Request, rooms: Iterable[NodeFreeResources]) -> int:
    """Return the units that the nodes take: each one, or as many tasks as fit."""
    found = 0
    for left in rooms:
        amounts = _amounts(left, request).values()
        if all(free >= amount for free, amount in amounts):
            tasks = min((free // amount for free, amount in amounts if amount), default=request.nodes)
            found += tasks if request.tasks else 1
    return found


def scarce_resources(request: Request, rooms: Iterable[NodeFreeResources]) -> set[str]:
    """Return the resources of which some node has too little left for a unit."""
    return {resource for left in rooms for resource, (free, amount) in _amounts(left, request).items() if free < amount}


def _amounts(left: NodeFreeResources, request: Request) -> dict[str, tuple[int, int]]:
    """{resource: (what is left for a unit, what it asks for)}: GPUs that would do, milli-CPU, MiB. A share of a GPU has its
    part of the memory, too, or what it names.
    """
    milli = -(-request.gpu_milli // request.gpu_parts) if request.gpu_parts else WHOLE_MILLI
    gpus = sum(
        gpu.milli >= milli and gpu.memory_mib >= (request.gpu_memory_mib or gpu.whole_mib * milli // WHOLE_MILLI)
        for gpu in left.gpus.values()
    )
    return {
        "gpu": (gpus, request.gpu_parts or request.gpu_milli // WHOLE_MILLI),
        "cpu": (left.cpu_milli, request.cpu_milli),
        "memory": (left.memory_mib, request.memory_mib),
    }
