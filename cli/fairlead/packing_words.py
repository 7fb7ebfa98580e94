"""Texts on the packing of a pool and its free resources. Pure."""

from collections.abc import Iterator

from fairlead_schemas.queries.cluster_map import DomainCapacity, PoolPacking
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.quantities import format_milli


def lines(found: PoolPacking) -> Iterator[str]:
    """The policy; what is free and how much of it is of no use; the largest jobs that could start. Of the past: as of when."""
    then = found.at is not None
    yield f"pool {found.pool}: nodes {'were' if then else 'are'} chosen by {found.policy}"
    if then:
        yield f"as of log sequence {found.sequence}, {found.at}"
    if not found.nodes:
        yield "no node is of this pool"
        return
    free, aside = format_milli(found.gpu_milli_free), format_milli(found.gpu_milli_aside)
    more = f", and {aside} on nodes that do not take everybody's work" if found.gpu_milli_aside else ""
    yield f"{_count(found.nodes, 'node')}, {_count(found.gpus, 'GPU')}: {free} free{more}"
    yield _fragmentation(found)
    one = found.largest_on_one_node
    if one is None:
        yield f"could start {'then' if then else 'now'}: nothing that needs a whole GPU"
        return
    yield f"could start {'then' if then else 'now'}, by GPUs alone:"
    yield f"  on one node: {_count(one.gpus, 'GPU')} ({one.node})"
    for level in (*DOMAIN_LABELS, "pool"):
        rooms = found.largest_gangs.get(level)
        if rooms:
            yield f"  in {'the pool' if level == 'pool' else f'one {level}'}: {', '.join(_room(level, room) for room in rooms)}"


def _fragmentation(found: PoolPacking) -> str:
    if not found.gpu_milli_free:
        return "fragmentation: nothing is free"
    if not found.requests_seen:
        return "fragmentation: not known before a job has asked for GPUs here"
    percent = 100 * found.gpu_milli_unusable // found.gpu_milli_free
    unusable = f"{format_milli(found.gpu_milli_unusable)} of the free GPUs ({percent} %)"
    return f"fragmentation: {unusable} are of no use to the usual job, of {found.requests_seen} that have come"


def _room(level: str, room: DomainCapacity) -> str:
    where = "" if level == "pool" else f" ({room.domain})"
    return f"{_count(room.nodes, 'node')} x {_count(room.gpus_per_node, 'GPU')}{where}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
