"""Room that a node has left by the views, and how many units of a request fit into it. Pure.

Amounts alone: a share of a GPU needs one GPU with that much left, not that much of all GPUs together. Where it
matters which GPUs they are, how they are linked or which other work is there, amounts say nothing (`is_judged`),
and only the placer knows.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead_gateway.views.gpustates import is_whole
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request

MILLI = 1000


class GpuLeft(NamedTuple):
    """Free part of one GPU: thousandths, the memory that its shares have not been given, and all of its memory."""

    milli: int
    memory_mib: int
    whole_mib: int


class Room(NamedTuple):
    """Free part of one node; only its healthy GPUs that suit the request are included."""

    gpus: tuple[GpuLeft, ...]
    cpu_milli: int
    memory_mib: int


def room(row: NodeRow, request: Request, held: Mapping[str, Part]) -> Room:
    """Return what the node has left when these parts are taken off."""
    cpu_milli = row.inventory.cpu_milli - sum(part.cpu_milli for part in held.values())
    memory_mib = row.inventory.memory_mib - sum(part.memory_mib for part in held.values())
    left = gpus_left(row, request, held)
    return Room(tuple(left[at] for at in sorted(left)), cpu_milli, memory_mib)


def gpus_left(row: NodeRow, request: Request, held: Mapping[str, Part]) -> dict[int, GpuLeft]:
    """{place of a GPU in the inventory: what is left of it}, without those that are faulted, in MIG mode, too small or too
    old."""
    milli, memory_mib = dict[str, int](), dict[str, int]()
    for part in held.values():
        for uuid in part.gpus:
            milli[uuid] = milli.get(uuid, 0) + (part.gpu_milli or MILLI)
            memory_mib[uuid] = memory_mib.get(uuid, 0) + part.gpu_memory_mib
    return {
        at: GpuLeft(max(0, MILLI - milli.get(gpu.uuid, 0)), gpu.memory_mib - memory_mib.get(gpu.uuid, 0), gpu.memory_mib)
        for at, gpu in enumerate(row.inventory.gpus)
        if is_whole(row, gpu) and gpu.memory_mib >= request.gpu_memory_mib
        and gpu.compute_capability >= request.compute_capability
    }  # fmt: skip


def free_gpus(row: NodeRow, request: Request) -> list[int]:
    """Places of the GPUs that are free as a whole and would do."""
    return [at for at, left in gpus_left(row, request, row.held).items() if left.milli == MILLI]


def is_judged(request: Request) -> bool:
    """Return True if the amounts that nodes have left decide whether the request fits."""
    cut = request.profile or request.replicas
    return not (cut or request.also or request.exclusive or request.require or request.nics)


def least(request: Request) -> int:
    """Units of all kinds without which it does not start."""
    return (request.nodes_min or request.nodes) + sum(kind.nodes for kind in request.also)


def fits(request: Request, rooms: Iterable[Room]) -> bool:
    """Return True if this room takes enough units of the request, or if amounts cannot decide that."""
    return not is_judged(request) or fitting(request, rooms) >= least(request)


def fitting(request: Request, rooms: Iterable[Room]) -> int:
    """Units that the nodes take: each one, or as many tasks as fit."""
    return sum(_units(each, request) for each in rooms)


def scarce(request: Request, rooms: Iterable[Room]) -> set[str]:
    """The resources of which some node has too little left for a unit."""
    return {
        resource for left in rooms for resource, (free, amount) in _amounts(left, request).items() if free < amount
    }  # fmt: skip


def _units(left: Room, request: Request) -> int:
    amounts = _amounts(left, request).values()
    if not all(free >= amount for free, amount in amounts):
        return 0
    return min((free // amount for free, amount in amounts if amount), default=request.nodes) if request.tasks else 1


def _amounts(left: Room, request: Request) -> dict[str, tuple[int, int]]:
    """{resource: (what is left for a unit, what it asks for)}: GPUs that would do, milli-CPU, MiB."""
    return {
        "gpu": (_gpus_that_do(left, request), request.gpu_parts or request.gpu_milli // MILLI),
        "cpu": (left.cpu_milli, request.cpu_milli), "memory": (left.memory_mib, request.memory_mib),
    }  # fmt: skip


def _gpus_that_do(left: Room, request: Request) -> int:
    """GPUs with as much left as the unit asks for of each: a share has its part of the memory, too, or what it names."""
    milli = -(-request.gpu_milli // request.gpu_parts) if request.gpu_parts else MILLI
    return sum(
        gpu.milli >= milli and gpu.memory_mib >= (request.gpu_memory_mib or gpu.whole_mib * milli // MILLI)
        for gpu in left.gpus
    )
