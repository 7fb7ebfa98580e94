"""Nodes that a job does not go to again: it has failed there. Reads state, changes nothing.

A job avoids them as long as enough others could take it, busy ones included; it waits for those. Where there are none
it goes back: with nothing left to try, a retry on the same node is better than none.
"""

from fairlead_placer.capacity.asks import Ask, asks_of
from fairlead_placer.capacity.seats import never
from fairlead_placer.cutting.waiting import is_simple
from fairlead_placer.entities import Node
from fairlead_placer.state import State
from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.wire.resources import Request

NOWHERE: frozenset[str] = frozenset()


def avoided(state: State, job: str) -> frozenset[str]:
    """Nodes on which the job has failed and to which it shall not go; none when it has nowhere else to go."""
    failed = state.failed_on.get(job)
    request = state.request_of(job) if failed else None
    if not failed or request is None:
        return NOWHERE
    names = frozenset(each.node for each in failed)
    return names if _others_serve(state, request, names) else NOWHERE


def _others_serve(state: State, request: Request, failed: frozenset[str]) -> bool:
    """Return True if open nodes outside `failed`, empty, would take all units of the request, within the domain that it
    requires.
    """
    # Several of the tasks may fit on a node. How many would fit after repartitioning is unknown; the present
    # layout is sure.
    asks, cuts = asks_of(request), is_simple(request) and not request.tasks
    least = [ask.request.nodes_min or ask.request.nodes for ask in asks]
    domains: dict[str, list[tuple[int, ...]]] = {}
    for node in state.pools.of(request).members.values():
        domain = _domain(node, asks[0].level) if node.serving and node.name not in failed else ""
        if domain:
            units = tuple([0 if never(node.left, ask) else _units(node, ask, cuts=cuts) for ask in asks])
            able = domains.setdefault(domain, [])
            if any(units):
                able.append(units)
                if _take_all(able, least):
                    return True
    return False


def _domain(node: Node, level: str) -> str:
    """Return the node's domain at the level, "" if it is in none."""
    if not level:
        return "all"
    return node.name if level == "node" else domain_of(node.inventory.labels, level)


def _units(node: Node, ask: Ask, *, cuts: bool) -> int:
    """Return the units that the empty node takes, judged by amounts only: one at most, or several tasks. `cuts`: its GPUs
    would be repartitioned for them, or made whole.
    """
    build, request = node.left.build, ask.request
    if cuts:
        return 1
    gpus = _gpus(node, ask) if ask.gpus else 0
    amounts = (gpus, ask.gpus), (build.cpu_milli, request.cpu_milli), (build.memory_mib, request.memory_mib)
    units = min([has // wants for has, wants in amounts if wants], default=request.nodes)
    return units if request.tasks else min(1, units)


def _gpus(node: Node, ask: Ask) -> int:
    """GPUs (of each, one share of a job) or instances of the empty node, as its GPUs are cut now."""
    build, verdict = node.left.build, ask.verdict(node.left.build)
    if verdict.cut:
        found = (
            each.profile
            for at, gpu in enumerate(node.inventory.gpus)
            if verdict.suits >> at & 1
            for each in gpu.instances
        )
        return sum(not ask.request.profile or profile == ask.request.profile for profile in found)
    return (verdict.suits & ~build.cut).bit_count()


def _take_all(nodes: list[tuple[int, ...]], least: list[int]) -> bool:
    """Return True if each kind finds its units on nodes of its own (Hall, 1935: every subset of kinds together finds enough
    nodes).
    """
    if len(least) == 1:
        return sum(units for (units,) in nodes) >= least[0]
    for some in range(1, 1 << len(least)):
        kinds = [at for at in range(len(least)) if some >> at & 1]
        if sum(any(units[at] for at in kinds) for units in nodes) < sum(least[at] for at in kinds):
            return False
    return True
