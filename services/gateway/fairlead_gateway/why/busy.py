"""Causes that waiting may end: what is free and where, who is there, and which nodes take no work now. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import node_state
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import pool, room
from fairlead_gateway.why.amounts import numbers, these
from fairlead_gateway.why.room import MILLI
from fairlead_gateway.why.told import NOTHING, TOGETHER, Detail, Told, unit_of
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.units.hardware import INSIDE_LEVELS
from fairlead_schemas.wire.resources import Request


def free_gpus(views: Views, row: JobRow) -> Told:
    asked = row.request
    nodes = pool.takers(views, asked, row.id)
    if asked.profile or asked.replicas:
        return NOTHING
    if asked.gpu_parts:
        return _share(asked, nodes)
    need = asked.gpu_milli // MILLI
    free = {node.id: len(room.free_gpus(node, asked)) for node in nodes}
    total, most = sum(free.values()), max(free.values(), default=0)
    if not total:  # the count of nodes already states it
        return NOTHING
    by_free = sorted((name for name in free if free[name]), key=lambda name: (-free[name], name))
    named = these([f"{name} {free[name]}" for name in by_free])
    are = "GPU is" if total == 1 else "GPUs are"
    detail: Detail = {"free_gpus": total, "most_free_gpus": most}
    if most < need:
        unit = "task" if asked.tasks else "node"
        no = f"no node has {need} together" if need > 1 else f"not for this {unit}"
        return Told(f"{total} {are} free, {no}: {named}", detail)
    fits = sum(count >= need for count in free.values())
    if fits >= asked.nodes:  # by now: it is tried again
        return NOTHING
    return Told(
        f"{total} {are} free, {need} or more on {fits} of the nodes: {named}", {**detail, "nodes_with_enough": fits}
    )


def _share(asked: Request, nodes: Iterable[NodeRow]) -> Told:
    left = [(gpu.milli, node.id) for node in nodes for gpu in room.gpus_left(node, asked, node.held).values()]
    most, on = max(left, key=lambda each: each[0], default=(0, ""))
    if not most:
        return Told("nothing is left of any GPU that would do", {"most_left_gpu_milli": 0})
    return Told(f"the most that is left of one GPU is {number('gpu', most)}, on {on}", {"most_left_gpu_milli": most})


def most_left(resource: str, left_of: Callable[[room.Room], int]) -> Callable[[Views, JobRow], Told]:
    """CPUs or memory that are short where the GPUs are free: how much the best of those nodes has left."""

    def tell(views: Views, row: JobRow) -> Told:
        rooms = {node.id: room.room(node, row.request, node.held) for node in pool.takers(views, row.request, row.id)}
        short = {name: left_of(left) for name, left in rooms.items() if _lacks(row.request, left, resource)}
        if not short:
            return NOTHING
        best = max(sorted(short), key=lambda name: short[name])
        beside = " beside the GPUs" if row.request.gpu_milli else ""
        told = f"the most that is left on one of them{beside} is {counted(resource, short[best])}, on {best}"
        return Told(told, numbers(resource, most_left=short[best]))

    return tell


def _lacks(asked: Request, left: room.Room, resource: str) -> bool:
    scarce = room.scarce(asked, [left])
    return resource in scarce and "gpu" not in scarce


def apart(views: Views, row: JobRow) -> Told:
    """Free GPUs on different NUMA nodes, or not linked."""
    asked, lying = row.request, list[str]()
    need = asked.gpu_milli // MILLI
    inside = [level for level in INSIDE_LEVELS if level in asked.require]
    for node in pool.takers(views, asked, row.id):
        free, numa = room.free_gpus(node, asked), node.inventory.inside.numa
        if len(free) >= need and need and numa:
            counts = Counter(numa[at] for at in free)
            lying.append(f"{node.id} {' + '.join(str(counts[each]) for each in sorted(counts))}")
    where = " and ".join(TOGETHER[level] for level in inside) or "with CPUs beside them"
    told = f", free on NUMA nodes: {these(lying)}" if lying else ""
    return Told(
        f"no node has {unit_of(asked)} free {where}{told}",
        {"nodes_with_enough": len(lying)},
        f"it starts when they come free together; to start sooner, only prefer it (topology.prefer: {inside[0]})"
        if inside
        else "",
    )


def not_empty(views: Views, row: JobRow) -> Told:
    nodes = pool.takers(views, row.request, row.id)
    runs = {node.id: len(node.held) for node in nodes if node.held}
    fewest = sorted(runs, key=lambda name: (runs[name], name))
    named = these([f"{name} {runs[name]} run{'' if runs[name] == 1 else 's'}" for name in fewest])
    return Told(
        f"asks for nodes to itself; {len(nodes) - len(runs)} of {len(nodes)} are empty: {named}",
        {"empty": len(nodes) - len(runs)}, "it starts when nodes have become empty; without exclusive it may share them",
    )  # fmt: skip


def in_state(*states: str, then: str) -> Callable[[Views, JobRow], Told]:
    """Return a cause that is due to the nodes' own state. It names the nodes, which of several states each is in, and the
    reason recorded for it.
    """

    def tell(views: Views, row: JobRow) -> Told:
        such = [node for node in pool.members(views, row.request) if node_state(node) in states]
        named = [
            node.id
            + (f" is {node_state(node)}" if len(states) > 1 else "")
            + (f" ({why})" if (why := _why(node)) else "")
            for node in such
        ]
        return Told(these(named), {}, then) if such else NOTHING

    return tell


def _why(node: NodeRow) -> str:
    return node.quarantine_reason if node_state(node) == "quarantined" else node.reason


def faulted(views: Views, row: JobRow) -> Told:
    """Return the nodes with faulted GPUs, and the number on each."""
    such = [node for node in pool.members(views, row.request) if node.faulted]
    named = these([f"{node.id} {len(node.faulted)} of {len(node.inventory.gpus)}" for node in such])
    told = Told(f"GPUs that are faulted: {named}", {}, "it starts when these GPUs are well again: fairlead nodes")
    return told if such else NOTHING
