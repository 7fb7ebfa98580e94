"""Best fit over nodes: which nodes an attempt gets, and which of their GPUs. Reads state, changes nothing.

Fewest GPUs left first, then least CPU left, then the name. A job without GPUs goes to nodes without GPUs, then
to those with the fewest free. A gang takes its nodes in the same order, all or none, never one twice.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from fairlead_placer.capacity import Index, gpu_suits, gpus_of, level_of
from fairlead_placer.entities import Node
from fairlead_placer.nodes.taints import is_last_choice, tolerates, tolerations_of
from fairlead_schemas.events import Part
from fairlead_schemas.resources import Request

#: Up to so many matching nodes, looking at each is cheaper than walking the buckets past all the others.
FEW_NODES = 64


def choose(index: Index, request: Request, avoided: frozenset[str] = frozenset()) -> list[Node] | None:
    """The nodes of its pool for the request, in order of fit, without those to be avoided; None when it does not fit
    now."""
    nodes = fitting(index, request)
    if avoided:
        nodes = (node for node in nodes if node.name not in avoided)
    if request.nodes == 1:
        node = next(nodes, None)
        return None if node is None else [node]
    chosen = list(islice(nodes, request.nodes))
    return chosen if len(chosen) == request.nodes else None


def choose_kept(
    index: Index, kept: list[Node], request: Request, avoided: frozenset[str] = frozenset()
) -> list[Node] | None:
    """The same for a job that these nodes are kept for: on them as far as they have room now, else on others. None,
    too, where they have none at all: then its turn is that of its class."""
    own = sorted((node for node in kept if has_room(node, request)), key=_tightness)[: request.nodes]
    if len(own) == request.nodes or not own:
        return own or None
    others = choose(index, msgspec.structs.replace(request, nodes=request.nodes - len(own)), avoided)
    return None if others is None else own + others


def fitting(index: Index, request: Request) -> Iterator[Node]:
    """Nodes that take work and have room for one part, in order of fit."""
    matching = index.matching(request)
    if matching is not None and len(matching) <= FEW_NODES:
        nodes = (index.members[name] for name in matching)
        found = iter(sorted((node for node in nodes if fits(node, request)), key=_tightness))
    else:
        found = _walk(index, request, matching)
    return chain(found, _tainted(index, request, matching)) if index.aside else found


def _tainted(index: Index, request: Request, matching: set[str] | None) -> Iterator[Node]:
    """Nodes whose taints the request tolerates, or that are its last choice only."""
    tolerations = tolerations_of(request)
    nodes = (node for node in index.aside.values() if node.taints and node.open and not node.keeper)
    willing = (node for node in nodes if tolerates(node.taints, tolerations) and has_room(node, request))
    suiting = [node for node in willing if matching is None or node.name in matching]
    yield from sorted(suiting, key=lambda node: (is_last_choice(node.taints, tolerations), _tightness(node)))


def _walk(index: Index, request: Request, matching: set[str] | None) -> Iterator[Node]:
    memory, least = request.memory_mib, (request.cpu_milli,)
    for bucket in islice(index.buckets, level_of(request), None):
        if not bucket:
            continue
        for entry in islice(bucket, bisect_left(bucket, least), None):
            node = entry[2]
            if node.memory_free_mib < memory:
                continue
            if matching is None or (node.name in matching and _enough_gpus(node, request)):
                yield node


def _tightness(node: Node) -> tuple[int, int, str]:
    return (node.gpus_free if node.inventory.gpus else -1, node.cpu_free_milli, node.name)


def fits(node: Node, request: Request) -> bool:
    """True when a node that suits the request has room for one part of it now."""
    return node.entry is not None and has_room(node, request)


def has_room(node: Node, request: Request) -> bool:
    """The same, whether the node takes work or not."""
    return (
        node.gpus_free >= gpus_of(request)
        and node.cpu_free_milli >= request.cpu_milli
        and node.memory_free_mib >= request.memory_mib
        and _enough_gpus(node, request)
    )


def _enough_gpus(node: Node, request: Request) -> bool:
    if node.uniform or not (request.gpu_memory_mib or request.compute_capability):
        return True
    return suitable_gpus_free(node, request) >= gpus_of(request)


def suitable_gpus_free(node: Node, request: Request) -> int:
    """Free GPUs of the node that are large and new enough."""
    return sum(
        gpu.uuid not in node.holders and gpu.uuid not in node.faulted and gpu_suits(gpu, request)
        for gpu in node.inventory.gpus
    )


def part_on(node: Node, request: Request) -> Part:
    """The part of the node that the request gets: its first suitable free GPUs, in the node's own order."""
    wanted = gpus_of(request)
    gpus: tuple[str, ...] = ()
    if wanted:
        taken = {**node.holders, **node.faulted} if node.faulted else node.holders
        if node.uniform:
            free = (gpu.uuid for gpu in node.inventory.gpus if gpu.uuid not in taken)
        else:
            free = (gpu.uuid for gpu in node.inventory.gpus if gpu.uuid not in taken and gpu_suits(gpu, request))
        gpus = tuple(islice(free, wanted))
    return Part(node=node.name, gpus=gpus, cpu_milli=request.cpu_milli, memory_mib=request.memory_mib)


def score_of(chosen: list[Node], request: Request) -> dict[str, int]:
    """What the choice leaves on the chosen nodes together: fewest GPUs, then least CPU, was the aim."""
    return {
        "cpu_left_milli": sum(node.cpu_free_milli for node in chosen) - request.nodes * request.cpu_milli,
        "gpus_left": sum(node.gpus_free for node in chosen) - request.nodes * gpus_of(request),
    }
