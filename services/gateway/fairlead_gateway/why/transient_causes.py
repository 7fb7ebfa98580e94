"""Causes that waiting may end: what is free and where, who is there, and which nodes take no work now. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import node_state
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import free_resources
from fairlead_gateway.why.free_resources import MILLI
from fairlead_gateway.why.sentences import NO_CAUSE, TOGETHER, CauseMessage, Detail, name_list, numbers, unit_of
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.units.hardware import INSIDE_LEVELS
from fairlead_schemas.wire.resources import Request


def free_gpus(views: Views, row: JobRow) -> CauseMessage:
    asked = row.request
    nodes = free_resources.eligible_nodes(views, asked, row.id)
    if asked.profile or asked.replicas:
        return NO_CAUSE
    if asked.gpu_parts:
        return _share(asked, nodes)
    need = asked.gpu_milli // MILLI
    free = {node.id: len(free_resources.free_gpus(node, asked)) for node in nodes}
    total, most = sum(free.values()), max(free.values(), default=0)
    if not total:  # the count of nodes already states it
        return NO_CAUSE
    by_free = sorted((name for name in free if free[name]), key=lambda name: (-free[name], name))
    named = name_list([f"{name} {free[name]}" for name in by_free])
    are = "GPU is" if total == 1 else "GPUs are"
    detail: Detail = {"free_gpus": total, "most_free_gpus": most}
    if most < need:
        unit = "task" if asked.tasks else "node"
        no = f"no node has {need} together" if need > 1 else f"not for this {unit}"
        return CauseMessage(f"{total} {are} free, {no}: {named}", detail)
    fits = sum(count >= need for count in free.values())
    if fits >= asked.nodes:  # by now: it is tried again
        return NO_CAUSE
    return CauseMessage(
        f"{total} {are} free, {need} or more on {fits} of the nodes: {named}", {**detail, "nodes_with_enough": fits}
    )


def _share(asked: Request, nodes: Iterable[NodeRow]) -> CauseMessage:
    left = [
        (gpu.milli, node.id)
        for node in nodes
        for gpu in free_resources.free_gpu_shares(node, asked, node.held).values()
    ]
    most, on = max(left, key=lambda each: each[0], default=(0, ""))
    if not most:
        return CauseMessage("nothing is left of any GPU that would do", {"most_left_gpu_milli": 0})
    return CauseMessage(
        f"the most that is left of one GPU is {number('gpu', most)}, on {on}", {"most_left_gpu_milli": most}
    )


def most_left(
    resource: str, left_of: Callable[[free_resources.NodeFreeResources], int]
) -> Callable[[Views, JobRow], CauseMessage]:
    """CPUs or memory that are short where the GPUs are free: how much the best of those nodes has left."""

    def tell(views: Views, row: JobRow) -> CauseMessage:
        rooms = {
            node.id: free_resources.free_on_node(node, row.request, node.held)
            for node in free_resources.eligible_nodes(views, row.request, row.id)
        }
        short = {name: left_of(left) for name, left in rooms.items() if _lacks(row.request, left, resource)}
        if not short:
            return NO_CAUSE
        best = max(sorted(short), key=lambda name: short[name])
        beside = " with free GPUs" if row.request.gpu_milli else ""
        told = f"the most that is left on one of them{beside} is {counted(resource, short[best])}, on {best}"
        return CauseMessage(told, numbers(resource, most_left=short[best]))

    return tell


def _lacks(asked: Request, left: free_resources.NodeFreeResources, resource: str) -> bool:
    scarce = free_resources.scarce_resources(asked, [left])
    return resource in scarce and "gpu" not in scarce


def apart(views: Views, row: JobRow) -> CauseMessage:
    """Free GPUs on different NUMA nodes, or not linked."""
    asked, lying = row.request, list[str]()
    need = asked.gpu_milli // MILLI
    inside = [level for level in INSIDE_LEVELS if level in asked.require]
    for node in free_resources.eligible_nodes(views, asked, row.id):
        free, numa = free_resources.free_gpus(node, asked), node.inventory.inside.numa
        if len(free) >= need and need and numa:
            counts = Counter(numa[at] for at in free)
            lying.append(f"{node.id} {' + '.join(str(counts[each]) for each in sorted(counts))}")
    where = " and ".join(TOGETHER[level] for level in inside) or "with CPUs close to them"
    told = f", free on NUMA nodes: {name_list(lying)}" if lying else ""
    return CauseMessage(
        f"no node has {unit_of(asked)} free {where}{told}",
        {"nodes_with_enough": len(lying)},
        f"it starts when they come free together; to start sooner, only prefer it (topology.prefer: {inside[0]})"
        if inside
        else "",
    )


def not_empty(views: Views, row: JobRow) -> CauseMessage:
    nodes = free_resources.eligible_nodes(views, row.request, row.id)
    runs = {node.id: len(node.held) for node in nodes if node.held}
    fewest = sorted(runs, key=lambda name: (runs[name], name))
    named = name_list([f"{name} {runs[name]} run{'' if runs[name] == 1 else 's'}" for name in fewest])
    return CauseMessage(
        f"asks for nodes to itself; {len(nodes) - len(runs)} of {len(nodes)} are empty: {named}",
        {"empty": len(nodes) - len(runs)},
        "it starts when nodes have become empty; without exclusive it may share them",
    )


def in_state(*states: str, then: str) -> Callable[[Views, JobRow], CauseMessage]:
    """Return a cause that is due to the nodes' own state. It names the nodes, which of several states each is in, and the
    reason recorded for it.
    """

    def tell(views: Views, row: JobRow) -> CauseMessage:
        such = [node for node in free_resources.pool_nodes(views, row.request) if node_state(node) in states]
        named = [
            node.id
            + (f" is {node_state(node)}" if len(states) > 1 else "")
            + (f" ({why})" if (why := _why(node)) else "")
            for node in such
        ]
        return CauseMessage(name_list(named), {}, then) if such else NO_CAUSE

    return tell


def _why(node: NodeRow) -> str:
    return node.quarantine_reason if node_state(node) == "quarantined" else node.reason


def faulted(views: Views, row: JobRow) -> CauseMessage:
    """Return the nodes with faulted GPUs, and the number on each."""
    such = [node for node in free_resources.pool_nodes(views, row.request) if node.faulted]
    named = name_list([f"{node.id} {len(node.faulted)} of {len(node.inventory.gpus)}" for node in such])
    told = CauseMessage(
        f"GPUs that are faulted: {named}", {}, "it starts when these GPUs are well again: fairlead nodes"
    )
    return told if such else NO_CAUSE
