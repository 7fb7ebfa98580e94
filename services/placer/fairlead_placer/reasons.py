"""Why a request fits nowhere now: one dominant cause per node of its pool, counted. The decision's own output.

A node's cause is the first that holds, in the order of `CAUSES`: what waiting cannot mend stands before what
it can. Nodes that would take a part are counted as fitting (a gang wants more of them).
"""

from bisect import bisect_left
from typing import NamedTuple

from fairlead_placer.capacity import Index, gpu_suits, gpus_of, level_of, selector_suits
from fairlead_placer.entities import CORDONED, Node, pool_of
from fairlead_placer.fit import suitable_gpus_free
from fairlead_placer.nodes.avoiding import avoided
from fairlead_placer.nodes.taints import tolerates, tolerations_of
from fairlead_placer.state import State
from fairlead_schemas.resources import Request

CAUSES: dict[str, str] = {
    "lost": "the node is lost",
    "cordoned": "the node is cordoned",
    "draining": "the node is draining or drained",
    "quarantined": "the node is in quarantine",
    "suspect": "the node is suspect and has the one run that it may have",
    "taint": "the node has a taint that the job does not tolerate",
    "selector": "the node lacks a label of the selector",
    "gpu_memory": "too few of the node's GPUs have the memory",
    "compute_capability": "too few of the node's GPUs have the compute capability",
    "gpus": "the node has too few GPUs in all",
    "gpu_faulted": "too many of the node's GPUs are faulted",
    "avoided": "the node is one that the job has failed on",
    "reserved": "the node is kept for another job",
    "free_gpus": "too few GPUs are free",
    "free_cpu": "too little CPU is free",
    "free_memory": "too little memory is free",
}


class Refusal(NamedTuple):
    """The answer for a request that fits nowhere, in the terms of JobUnplaceable."""

    reasons: dict[str, int]
    nodes: int
    fitting: int
    gpu_milli_free: int
    gpu_milli_total: int


def cause_of(node: Node, request: Request, job: str) -> str:
    """What keeps the node from taking a part of the job, "" when nothing does."""
    if not node.open:
        return _closed(node)
    if node.taints and not tolerates(node.taints, tolerations_of(request)):
        return "taint"
    inventory, gpus = node.inventory, gpus_of(request)
    if not selector_suits(inventory.labels, request.selector):
        return "selector"
    if gpus and len(inventory.gpus) >= gpus:
        if sum(gpu.memory_mib >= request.gpu_memory_mib for gpu in inventory.gpus) < gpus:
            return "gpu_memory"
        if sum(gpu_suits(gpu, request) for gpu in inventory.gpus) < gpus:
            return "compute_capability"
    if len(inventory.gpus) < gpus:
        return "gpus"
    if node.faulted and sum(gpu.uuid not in node.faulted and gpu_suits(gpu, request) for gpu in inventory.gpus) < gpus:
        return "gpu_faulted"
    if node.keeper not in ("", job):
        return "reserved"
    if node.gpus_free < gpus or (not node.uniform and suitable_gpus_free(node, request) < gpus):
        return "free_gpus"
    return _amounts(node, request)


def _closed(node: Node) -> str:
    if node.lost:
        return "lost"
    if not node.on_duty:
        return "cordoned" if node.duty == CORDONED else "draining"
    return "quarantined" if node.quarantined else "suspect"


def _amounts(node: Node, request: Request) -> str:
    if node.cpu_free_milli < request.cpu_milli:
        return "free_cpu"
    return "free_memory" if node.memory_free_mib < request.memory_mib else ""


def refusal(state: State, request: Request, job: str) -> Refusal:
    """The causes counted over all nodes of the request's pool, and what is free on those that take work of the job."""
    index = state.pools.of(request)
    plain = index.matching(request) is None
    counts = _count_plain(index, request, job) if plain else _count_each(index, request, job)
    if plain:
        _recount_faulted(counts, state, request, job)
    for name in avoided(state, job):
        node = state.nodes[name]
        if node.pool == pool_of(request) and not cause_of(node, request, job):
            counts[""] -= 1
            counts["avoided"] = counts.get("avoided", 0) + 1
    fitting = counts.pop("", 0)
    return Refusal(
        reasons={cause: counts[cause] for cause in CAUSES if counts.get(cause)},
        nodes=len(index.members), fitting=fitting,
        gpu_milli_free=1000 * _gpus_free(index, request, job),
        gpu_milli_total=1000 * _gpus_total(index),
    )  # fmt: skip


def _recount_faulted(counts: dict[str, int], state: State, request: Request, job: str) -> None:
    """By buckets alone, faulted GPUs count as used ones."""
    for node in map(state.nodes.__getitem__, state.ailing):
        if node.entry is not None and node.pool == pool_of(request) and cause_of(node, request, job) == "gpu_faulted":
            counts["free_gpus"] -= 1
            counts["gpu_faulted"] = counts.get("gpu_faulted", 0) + 1


def _gpus_free(index: Index, request: Request, job: str) -> int:
    tolerations = tolerations_of(request)
    aside = [node for node in index.aside.values() if node.open and node.keeper in ("", job)]
    willing = sum(node.gpus_free for node in aside if tolerates(node.taints, tolerations))
    return willing + sum((level - 1) * len(bucket) for level, bucket in enumerate(index.buckets) if level)


def _gpus_total(index: Index) -> int:
    taking = sum(size * count for size, count in enumerate(index.sizes))
    return taking + sum(len(node.inventory.gpus) for node in index.aside.values())


def _count_each(index: Index, request: Request, job: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in index.members.values():
        cause = cause_of(node, request, job)
        counts[cause] = counts.get(cause, 0) + 1
    return counts


def _count_plain(index: Index, request: Request, job: str) -> dict[str, int]:
    """The same for a request without constraints, from the buckets: on a full cluster few nodes are looked at."""
    gpus, level = gpus_of(request), level_of(request)
    too_small = sum(index.sizes[:gpus])
    counts = {"gpus": too_small, "free_gpus": sum(len(bucket) for bucket in index.buckets[:level]) - too_small}
    for bucket in index.buckets[level:]:
        poor = bisect_left(bucket, (request.cpu_milli,))
        counts["free_cpu"] = counts.get("free_cpu", 0) + poor
        for _, _, node in bucket[poor:]:
            cause = "" if node.memory_free_mib >= request.memory_mib else "free_memory"
            counts[cause] = counts.get(cause, 0) + 1
    for node in index.aside.values():
        cause = cause_of(node, request, job)
        counts[cause] = counts.get(cause, 0) + 1
    return counts
