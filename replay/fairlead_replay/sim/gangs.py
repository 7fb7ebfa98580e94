"""Check of gangs (I6), by the events alone: a placement has all requested units, or at least the stated minimum, and each
unit has all that it needs.
"""

from collections.abc import Iterator, Mapping, Sequence

from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.wire.events import JobPlaced, Part
from fairlead_schemas.wire.resources import Inventory, Request


def whole(event: JobPlaced, request: Request, pools: Mapping[str, str]) -> str:
    """Return the fault of a placement; "" without one. `pools`: {node: its pool}."""
    others = sum(kind.nodes for kind in request.also)
    got, least = event.units - others, request.nodes_min or request.nodes
    if not least <= got <= request.nodes:
        asked = f"{request.nodes_min} to {request.nodes}" if request.nodes_min else str(request.nodes)
        return f"I6: job {event.job} asks for {asked} units, placed with {got}"
    if not request.tasks and len(event.parts) != event.units:
        return f"I6: job {event.job} asks for nodes, got parts that share one: {event.parts}"
    for part, kind in zip(event.parts, kinds_of(request, event), strict=True):
        if not _suffices(part, kind, exclusive=request.exclusive):
            return f"I6: job {event.job} asks for {kind}, got {part} on {part.node}"
        if pools[part.node] != (request.pool or DEFAULT_POOL):
            return f"job {event.job} is of pool {request.pool!r}, placed on {part.node} of {pools[part.node]}"
    return ""


def kinds_of(request: Request, event: JobPlaced) -> Iterator[Request]:
    """Yield the kind of each part: parts of a kind follow those of the kinds before it."""
    kinds = list(request.without(request.units - event.units if request.nodes_min else 0).kinds)
    left = kinds[0].nodes
    for part in event.parts:
        while not left and len(kinds) > 1:
            kinds.pop(0)
            left = kinds[0].nodes
        yield kinds[0]
        left -= part.tasks


def _suffices(part: Part, kind: Request, *, exclusive: bool) -> bool:
    """A part has what its units ask for, and no more unless the node is theirs alone."""
    cpu_milli, memory_mib = kind.cpu_milli * part.tasks, kind.memory_mib * part.tasks
    if exclusive:
        enough = part.cpu_milli >= cpu_milli and part.memory_mib >= memory_mib
    else:
        enough = (part.cpu_milli, part.memory_mib) == (cpu_milli, memory_mib)
    if kind.gpu_parts:  # parts of different units may lie on one GPU
        return enough and 0 < len(part.gpus) <= kind.gpu_parts * part.tasks
    return enough and len(part.gpus) * 1000 == kind.gpu_milli * part.tasks


def could_ever(request: Request, nodes: Sequence[Inventory]) -> bool:
    """Return True if empty nodes would have enough GPUs for the request; several kinds are checked separately."""
    return all(
        sum(_room(kind, node, tasks=request.tasks) for node in nodes) >= (kind.nodes_min or kind.nodes)
        for kind in request.kinds
    )


def _room(kind: Request, node: Inventory, *, tasks: bool) -> int:
    milli = len(node.gpus) * 1000
    if not tasks:
        return int(milli >= kind.gpu_milli)
    return milli // kind.gpu_milli if kind.gpu_milli else kind.nodes
