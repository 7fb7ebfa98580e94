"""Earliest start of a job and its nodes: all of its units together, within the domain that it requires. Also the time
at which one node has room for one unit.

Of nodes with the same opening those that lack least are taken. A node that a maintenance window would take from the job
opens at the window's end, and so does a node that a window has in hand. One search goes over every run of the pool
once: that is its bound, and `scheduling/reserve.py` limits its frequency.
"""

from collections.abc import Sequence
from heapq import nsmallest
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, never, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, Reservation, pool_of
from fairlead_placer.cluster.failure_history import avoided
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.run_ends import HORIZON_NS, end_of, promised_end_ns
from fairlead_placer.cluster.timeline.upcoming_maintenance import UpcomingMaintenance, returns_ns
from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.events import Basis, Part
from fairlead_schemas.wire.resources import Request

#: After every time that is known.
NEVER_NS = 1 << 62


class NodeOpening(NamedTuple):
    """Opening of a node. The time is Unix ns (`NEVER_NS`: once the present work has ended, which may be any time), with its
    basis and (`told`) the jobs that it follows.
    """

    at_ns: int
    basis: Basis = ""
    waits_for: tuple[tuple[int, str], ...] = ()  # (when it ends, job)


class _Going(NamedTuple):
    at_ns: int
    run: PlacedRun
    part: Part
    basis: Basis


def opening(
    state: ClusterState,
    node: ClusterNode,
    ask: UnitRequest,
    now_ns: int,
    kept: Reservation | None = None,
    *,
    told: bool = False,
    before_ns: int = 0,
) -> NodeOpening | None:
    """The node's opening for a unit; None when there is none, whatever ends. One that a maintenance window has in hand is empty
    at its end. `kept`: what is kept for its job by now, whose guests without a limit stay. `told`: with the jobs that are in
    the way, which costs as much again. `before_ns`: None, too, when runs that end from then on are in the way (0: no bound).
    """
    if not node.serving:
        back_ns = returns_ns(state, node)
        return NodeOpening(max(back_ns, now_ns), "limits") if 0 < back_ns <= now_ns + HORIZON_NS else None
    free = not (node.suspect and node.held)
    if free and isinstance(seat(node.left, ask), NodeAllocation):
        return NodeOpening(max(now_ns, node.rest_ns) if node.resting else now_ns)
    build = node.left.build
    spare = len(build.gpus) - ask.gpus if ask.whole and not ask.verdict(build).cut else len(build.gpus)
    going = _going(state, node, now_ns, kept, before_ns, spare)
    if not going:
        return None
    left, gone = node.left.copy(), list[_Going]()
    for each in going:
        left.give(each.part)
        gone.append(each)
        if (free or len(gone) == len(going)) and isinstance(seat(left, ask), NodeAllocation):
            if not told:
                return NodeOpening(each.at_ns)
            needed = gone if node.suspect else _needed(left, ask, gone)
            basis = "evidence" if any(one.basis == "evidence" for one in needed) else each.basis
            return NodeOpening(each.at_ns, basis, tuple((one.at_ns, one.run.job) for one in needed))
    return None


def _going(
    state: ClusterState, node: ClusterNode, now_ns: int, kept: Reservation | None, before_ns: int, spare: int
) -> list[_Going]:
    """Return the parts that the node holds and will give back before `before_ns` (0: at any time), the soonest first. None are
    returned if those that stay hold more than `spare` whole GPUs, or stay on a suspect node, which has to be empty.
    """
    found: list[_Going] = []
    for key, rank in node.held.items():
        run = state.runs[key]
        if kept is not None and is_backfill(kept, node, run) and stays(state, run, rank, 0):
            continue
        end, part = end_of(state, run, rank, now_ns), run.parts[rank]
        at_ns = end.at_ns or NEVER_NS
        if not 0 < before_ns <= at_ns:
            found.append(_Going(at_ns, run, part, end.basis))
            continue
        if not (part.gpu_milli or part.instances):
            spare -= len(part.gpus)
        if spare < 0 or node.suspect:
            return []
    return sorted(found, key=lambda each: (each.at_ns, each.run.key))


def _needed(left: FreeResources, ask: UnitRequest, gone: list[_Going]) -> list[_Going]:
    """Return the parts without whose end there is no room, the last to end first."""
    needed = [gone[-1]]
    for each in reversed(gone[:-1]):
        left.take(each.part)
        if not isinstance(seat(left, ask), NodeAllocation):
            left.give(each.part)
            needed.append(each)
    return needed


# ---------------------------------------------------------------------------- guests of kept nodes


def is_backfill(kept: Reservation, node: ClusterNode, run: PlacedRun) -> bool:
    """True for a run that was placed on the node while it was kept for another job."""
    return node.name in kept.nodes and run.epoch > kept.since_of(node.name)


def stays(state: ClusterState, run: PlacedRun, rank: int, start_ns: int) -> bool:
    """True for a guest that may still be there at that time (0: at whatever time)."""
    if run.ended >> rank & 1 or run.is_stopping:
        return False
    end_ns = promised_end_ns(state, run)
    return not end_ns or 0 < start_ns < end_ns


def is_sound(state: ClusterState, kept: Reservation, node: ClusterNode, ask: UnitRequest) -> bool:
    """Return True if the kept node has room for a unit at the start, together with the guests that may still be there."""
    left: FreeResources | None = None
    for key, rank in node.held.items():
        run = state.runs[key]
        if left is None and is_backfill(kept, node, run) and stays(state, run, rank, kept.start_ns):
            left = node.left.copy()
    if left is None:  # all who are there go
        return True
    for key, rank in node.held.items():
        run = state.runs[key]
        if not (is_backfill(kept, node, run) and stays(state, run, rank, kept.start_ns)):
            left.give(run.parts[rank])
    return isinstance(seat(left, ask), NodeAllocation)


#: Least time from now until a predicted start.
LEAST_NS = 30 * SECOND_NS
#: Jobs that are named as being waited for.
WAITS_MAX = 8
NO_OPENING = NodeOpening(NEVER_NS)


class EarliestStart(NamedTuple):
    """Nodes, when they have room for all units (Unix ns, 0: not known), by what, and after which jobs."""

    nodes: tuple[str, ...]
    start_ns: int = 0
    basis: Basis = ""
    waits_for: tuple[str, ...] = ()


class _Picked(NamedTuple):
    node: ClusterNode
    ask: UnitRequest
    opening: NodeOpening
    units: int = 1


def earliest(state: ClusterState, request: Request, job: str, now_ns: int, before_ns: int = 0) -> EarliestStart | None:
    """The best start for an offer; None when too few nodes could ever take a unit of it each. `before_ns` spares the search
    for starts from then on (0: no bound): the result is then that of no bound, any later start, or None.
    """
    kept, beside = state.reservations.get(job), avoided(state, job)
    best: tuple[int, list[tuple[int, ...]], tuple[str, ...]] | None = None
    found: list[_Picked] = []
    for group in _domains(state, request):
        nodes = [node for node in group if node.name not in beside]
        picked = _pick(state, request, job, nodes, kept, now_ns, before_ns)
        if picked is None:
            continue
        names = tuple(sorted(each.node.name for each in picked))
        key = _opens_ns(picked), _lacks(picked, request), names
        if best is None or key < best:
            best, found = key, picked
    if best is None:
        return None
    told = [
        each._replace(opening=opening(state, each.node, each.ask, now_ns, kept, told=True) or NO_OPENING)
        for each in found
    ]
    return _start(state, job, told, now_ns, known=not request.tasks)


def start_on(state: ClusterState, request: Request, job: str, names: Sequence[str], now_ns: int) -> EarliestStart:
    """Return the start at which these nodes have room. For several kinds of units, and for tasks, the start is not known."""
    kept, asks = state.reservations.get(job), unit_requests(request)
    if request.also or request.tasks:
        return EarliestStart(tuple(sorted(names)))
    found: list[_Picked] = []
    for name in names:
        node = state.nodes[name]
        at = opening(state, node, asks[0], now_ns, kept, told=True)
        found.append(_Picked(node, asks[0], at or NO_OPENING))
    return _start(state, job, found, now_ns)


def _start(
    state: ClusterState, job: str, picked: Sequence[_Picked], now_ns: int, *, known: bool = True
) -> EarliestStart:
    """Return the start on the picked nodes. For tasks it is not known: an opening is that of the first task, and the last of a
    node may come later.
    """
    names = tuple(sorted(each.node.name for each in picked))
    at_ns = _opens_ns(picked)
    ends: dict[str, int] = {}
    for each in picked:
        for end_ns, other in each.opening.waits_for:
            ends[other] = max(end_ns, ends.get(other, 0))
    waits_for = tuple(sorted(ends, key=lambda other: (-ends[other], other))[:WAITS_MAX])
    if at_ns >= NEVER_NS or not known:
        return EarliestStart(names, waits_for=waits_for)
    guessed = any(each.opening.basis == "evidence" for each in picked)
    start_ns = UpcomingMaintenance(state).clear_ns(job, names, max(at_ns, now_ns + LEAST_NS))
    return EarliestStart(names, start_ns, "evidence" if guessed else "limits", waits_for)


def _opens_ns(picked: Sequence[_Picked]) -> int:
    return max(each.opening.at_ns for each in picked)


def _domains(state: ClusterState, request: Request) -> list[list[ClusterNode]]:
    """Nodes of the request's pool by the domain in which all units must lie; without one, all of them."""
    nodes, level = state.pools.of(request).members, unit_requests(request)[0].level
    if not level:
        return [list(nodes.values())]
    if level == "node":
        return [[nodes[name]] for name in sorted(nodes)]
    groups: dict[str, list[ClusterNode]] = {}
    for node in nodes.values():
        domain = domain_of(node.inventory.labels, level)
        if domain:
            groups.setdefault(domain, []).append(node)
    return [groups[domain] for domain in sorted(groups)]


def _pick(
    state: ClusterState,
    request: Request,
    job: str,
    nodes: list[ClusterNode],
    kept: Reservation | None,
    now_ns: int,
    before_ns: int,
) -> list[_Picked] | None:
    """Return the nodes that become free first.

    If one of them is out of service, and the job has tasks or would have no known start there, choose among the nodes in service only.
    """
    asks, ahead = unit_requests(request), UpcomingMaintenance(state)
    able = [_able(state, ask, job, nodes, kept, now_ns, before_ns) for ask in asks]
    picked = _clear(asks, able, ahead, job, now_ns)
    away = picked is not None and any(not each.node.serving for each in picked)
    if picked is None or not away or (not request.tasks and _opens_ns(picked) < NEVER_NS):
        return picked
    able = [[each for each in some if each.node.serving] for some in able]
    return _clear(asks, able, ahead, job, now_ns)


def _clear(
    asks: Sequence[UnitRequest], able: Sequence[list[_Picked]], ahead: UpcomingMaintenance, job: str, now_ns: int
) -> list[_Picked] | None:
    """Return the nodes that open first with no window ahead. If they open one after the other, a window may come between: then
    all are examined again from the last one's opening.
    """
    since_ns = now_ns
    while True:
        clear = [[_cleared(ahead, job, each, since_ns) for each in some] for some in able] if ahead.windows else able
        picked = _first(asks, clear)
        if picked is None or not ahead.windows:
            return picked
        at_ns = _opens_ns(picked)
        if at_ns >= NEVER_NS or ahead.clear_ns(job, [each.node.name for each in picked], at_ns) == at_ns:
            return picked
        since_ns = at_ns


def _able(
    state: ClusterState,
    ask: UnitRequest,
    job: str,
    nodes: list[ClusterNode],
    kept: Reservation | None,
    now_ns: int,
    before_ns: int,
) -> list[_Picked]:
    """The nodes that open for a unit at some time, without those that open too late to matter."""
    found: list[_Picked] = []
    for node in nodes:
        if serves(state, node, ask.request, job):
            at = opening(state, node, ask, now_ns, kept, before_ns=before_ns)
            if at is not None:
                found.append(_Picked(node, ask, at, _units(node, ask) if ask.request.tasks else 1))
    return found


def _cleared(ahead: UpcomingMaintenance, job: str, each: _Picked, since_ns: int) -> _Picked:
    at_ns = ahead.clear_ns(job, (each.node.name,), max(each.opening.at_ns, since_ns))
    return each._replace(opening=each.opening._replace(at_ns=at_ns))


def _first(asks: Sequence[UnitRequest], able: Sequence[list[_Picked]]) -> list[_Picked] | None:
    picked: list[_Picked] = []
    for ask, some in zip(asks, able, strict=True):
        wanted, taken = ask.request.nodes_min or ask.request.nodes, {each.node.name for each in picked}
        free = [each for each in some if each.node.name not in taken] if taken else some
        for each in nsmallest(wanted, free, key=lambda each: (each.opening.at_ns, lack(each.node, ask.request))):
            if wanted > 0:
                picked.append(each)
                wanted -= each.units
        if wanted > 0:
            return None
    return picked


def _units(node: ClusterNode, ask: UnitRequest) -> int:
    """Return the number of tasks that the empty node takes, judged by amounts only."""
    build, request = node.left.build, ask.request
    amounts = (
        (len(build.gpus), ask.gpus),
        (build.cpu_milli, request.cpu_milli),
        (build.memory_mib, request.memory_mib),
    )
    return min([has // wants for has, wants in amounts if wants], default=request.nodes)


def _lacks(picked: Sequence[_Picked], request: Request) -> list[tuple[int, ...]]:
    """Return the sums of the lacking resources, without the names."""
    found = [lack(each.node, request)[:4] for each in picked]
    return [tuple(sum(each[at] for each in found) for at in range(4))]


# ---------------------------------------------------------------------------- one node


def serves(state: ClusterState, node: ClusterNode, request: Request, job: str) -> bool:
    """Return True if the node, empty, would take a unit of the job, by now or when a window returns it, and is kept for no
    other job.
    """
    if node.keeper not in ("", job) or node.pool != pool_of(request):
        return False
    if not node.serving and not returns_ns(state, node):
        return False
    ask = unit_requests(request)[0]
    return not never(node.left, ask)


def lack(node: ClusterNode, request: Request) -> tuple[int, int, int, int, str]:
    """Return the amounts that must still come free on the node (GPUs, milli-CPU, MiB), the number of live ranks there, and its
    name.
    """
    ask, left = unit_requests(request)[0], node.left
    suits = ask.verdict(left.build).suits
    free = (left.free & suits).bit_count() if ask.whole else sum(milli >= ask.milli for milli in left.milli)
    return (
        max(0, ask.gpus - free),
        max(0, request.cpu_milli - left.cpu_milli),
        max(0, request.memory_mib - left.memory_mib),
        node.live,
        node.name,
    )
