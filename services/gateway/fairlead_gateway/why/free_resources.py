"""Room that a node has left by the views, and how many units of a request fit into it. Pure.

Amounts alone: a share of a GPU needs one GPU with that much left, not that much of all GPUs together. Where it
matters which GPUs they are, how they are linked or which other work is there, amounts say nothing (`is_judged`),
and only the placer knows.

The nodes of a job's pool as the views have them: which there are, and which take its work. Pure.

Only for sentences about what the placer has refused already: who is placed where the placer alone decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead_gateway.views.cluster_map import barring_taints, is_open, is_whole_gpu
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, MODEL_LABEL, POOL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of
from fairlead_schemas.units.selectors import suits
from fairlead_schemas.units.taints import tolerated
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request

MILLI = 1000


class FreeGpu(NamedTuple):
    """Free part of one GPU: thousandths, the memory that its shares have not been given, and all of its memory."""

    milli: int
    memory_mib: int
    whole_mib: int


class NodeFreeResources(NamedTuple):
    """Free part of one node; only its healthy GPUs that suit the request are included."""

    gpus: tuple[FreeGpu, ...]
    cpu_milli: int
    memory_mib: int


def free_on_node(row: NodeRow, request: Request, held: Mapping[str, Part]) -> NodeFreeResources:
    """Return what the node has left when these parts are taken off."""
    cpu_milli = row.inventory.cpu_milli - sum(part.cpu_milli for part in held.values())
    memory_mib = row.inventory.memory_mib - sum(part.memory_mib for part in held.values())
    left = free_gpu_shares(row, request, held)
    return NodeFreeResources(tuple(left[at] for at in sorted(left)), cpu_milli, memory_mib)


def free_gpu_shares(row: NodeRow, request: Request, held: Mapping[str, Part]) -> dict[int, FreeGpu]:
    """{place of a GPU in the inventory: what is left of it}, without those that are faulted, in MIG mode, too small or too
    old."""
    milli, memory_mib = dict[str, int](), dict[str, int]()
    for part in held.values():
        for uuid in part.gpus:
            milli[uuid] = milli.get(uuid, 0) + (part.gpu_milli or MILLI)
            memory_mib[uuid] = memory_mib.get(uuid, 0) + part.gpu_memory_mib
    return {
        at: FreeGpu(
            max(0, MILLI - milli.get(gpu.uuid, 0)), gpu.memory_mib - memory_mib.get(gpu.uuid, 0), gpu.memory_mib
        )
        for at, gpu in enumerate(row.inventory.gpus)
        if is_whole_gpu(row, gpu)
        and gpu.memory_mib >= request.gpu_memory_mib
        and gpu.compute_capability >= request.compute_capability
    }


def free_gpus(row: NodeRow, request: Request) -> list[int]:
    """Places of the GPUs that are free as a whole and would do."""
    return [at for at, left in free_gpu_shares(row, request, row.held).items() if left.milli == MILLI]


def is_judged(request: Request) -> bool:
    """Return True if the amounts that nodes have left decide whether the request fits."""
    cut = request.profile or request.replicas
    return not (cut or request.also or request.exclusive or request.require or request.nics)


def units_min(request: Request) -> int:
    """Units of all kinds without which it does not start."""
    return (request.nodes_min or request.nodes) + sum(kind.nodes for kind in request.also)


def fits(request: Request, rooms: Iterable[NodeFreeResources]) -> bool:
    """Return True if this room takes enough units of the request, or if amounts cannot decide that."""
    return not is_judged(request) or fitting(request, rooms) >= units_min(request)


def fitting(request: Request, rooms: Iterable[NodeFreeResources]) -> int:
    """Units that the nodes take: each one, or as many tasks as fit."""
    return sum(_units(each, request) for each in rooms)


def scarce_resources(request: Request, rooms: Iterable[NodeFreeResources]) -> set[str]:
    """The resources of which some node has too little left for a unit."""
    return {resource for left in rooms for resource, (free, amount) in _amounts(left, request).items() if free < amount}


def _units(left: NodeFreeResources, request: Request) -> int:
    amounts = _amounts(left, request).values()
    if not all(free >= amount for free, amount in amounts):
        return 0
    return min((free // amount for free, amount in amounts if amount), default=request.nodes) if request.tasks else 1


def _amounts(left: NodeFreeResources, request: Request) -> dict[str, tuple[int, int]]:
    """{resource: (what is left for a unit, what it asks for)}: GPUs that would do, milli-CPU, MiB."""
    return {
        "gpu": (_gpus_that_do(left, request), request.gpu_parts or request.gpu_milli // MILLI),
        "cpu": (left.cpu_milli, request.cpu_milli),
        "memory": (left.memory_mib, request.memory_mib),
    }


def _gpus_that_do(left: NodeFreeResources, request: Request) -> int:
    """GPUs with as much left as the unit asks for of each: a share has its part of the memory, too, or what it names."""
    milli = -(-request.gpu_milli // request.gpu_parts) if request.gpu_parts else MILLI
    return sum(
        gpu.milli >= milli and gpu.memory_mib >= (request.gpu_memory_mib or gpu.whole_mib * milli // MILLI)
        for gpu in left.gpus
    )


def pool_nodes(views: Views, request: Request) -> list[NodeRow]:
    """Every node of the pool, by name."""
    pool = request.pool or DEFAULT_POOL
    rows = (row for row in views.nodes.rows.values() if (row.inventory.labels.get(POOL_LABEL) or DEFAULT_POOL) == pool)
    return sorted(rows, key=lambda row: row.id)


def eligible_nodes(views: Views, request: Request, job: str) -> list[NodeRow]:
    """Return the nodes that take work of this job, judged by state, selectors, taints and reservations only."""
    kept = views.waiting.kept_nodes(job)
    return [
        row
        for row in pool_nodes(views, request)
        if is_open(row)
        and row.id not in kept
        and suits(row.inventory.labels, request.selector)
        and not untolerated_taints(row, request)
    ]


def untolerated_taints(row: NodeRow, request: Request) -> list[str]:
    """The node's taints that keep the job from starting there."""
    return [taint.text for taint in barring_taints(row) if not tolerated(request.tolerations, *taint)]


def largest_domain(views: Views, request: Request, level: str) -> int:
    """Nodes of the largest domain of the level; 0 where no label names one."""
    domains = (
        (domain_of(node.inventory.labels, level) for node in pool_nodes(views, request))
        if level in DOMAIN_LABELS
        else ()
    )
    return max(Counter(domain for domain in domains if domain).values(), default=0)


def gpu_model(row: NodeRow) -> str:
    """Return the model of the node's GPUs, "" without GPUs."""
    gpus = row.inventory.gpus
    return (row.inventory.labels.get(MODEL_LABEL) or gpus[0].model) if gpus else ""


def nvlinked_gpus(row: NodeRow) -> int:
    """Return the size of the node's largest group of GPUs that NVLink connects, directly or through each other."""
    links, best, seen = row.inventory.inside.nvlinks, 0, set[int]()
    for first in range(len(links)):
        group, todo = set[int](), [first]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                group.add(at)
                todo += [other for other, count in enumerate(links[at]) if count]
        best = max(best, len(group))
    return best
