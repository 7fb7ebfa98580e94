"""Earliest start of a job and its nodes: all of its units together, within the domain that it requires.

Of nodes with the same opening those that lack least are taken. A node that a maintenance window would take from the job
opens at the window's end, and so does a node that a window has in hand. One search goes over every run of the pool
once: that is its bound, and `reservations.py` limits its frequency.
"""

from collections.abc import Sequence
from heapq import nsmallest
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask, asks_of
from fairlead_placer.capacity.seats import never
from fairlead_placer.entities import Node, Reservation, pool_of
from fairlead_placer.nodes.ahead import Ahead, returns_ns
from fairlead_placer.nodes.avoiding import avoided
from fairlead_placer.state import State
from fairlead_placer.timeline.openings import NEVER_NS, Opening, opening
from fairlead_placer.timeline.spans import SECOND_NS
from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.wire.events import Basis
from fairlead_schemas.wire.resources import Request

#: Least time from now until a predicted start.
LEAST_NS = 30 * SECOND_NS
#: Jobs that are named as being waited for.
WAITS_MAX = 8
NO_OPENING = Opening(NEVER_NS)


class Start(NamedTuple):
    """Nodes, when they have room for all units (Unix ns, 0: not known), by what, and after which jobs."""

    nodes: tuple[str, ...]
    start_ns: int = 0
    basis: Basis = ""
    waits_for: tuple[str, ...] = ()


class _Picked(NamedTuple):
    node: Node
    ask: Ask
    opening: Opening
    units: int = 1


def earliest(state: State, request: Request, job: str, now_ns: int) -> Start | None:
    """The best start for an offer; None when too few nodes could ever take a unit of it each."""
    kept, beside = state.reservations.get(job), avoided(state, job)
    best: tuple[int, list[tuple[int, ...]], tuple[str, ...]] | None = None
    found: list[_Picked] = []
    for group in _domains(state, request):
        nodes = [node for node in group if node.name not in beside]
        picked = _pick(state, request, job, nodes, kept, now_ns)
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


def start_on(state: State, request: Request, job: str, names: Sequence[str], now_ns: int) -> Start:
    """Return the start at which these nodes have room. For several kinds of units, and for tasks, the start is not known."""
    kept, asks = state.reservations.get(job), asks_of(request)
    if request.also or request.tasks:
        return Start(tuple(sorted(names)))
    found: list[_Picked] = []
    for name in names:
        node = state.nodes[name]
        at = opening(state, node, asks[0], now_ns, kept, told=True)
        found.append(_Picked(node, asks[0], at or NO_OPENING))
    return _start(state, job, found, now_ns)


def _start(state: State, job: str, picked: Sequence[_Picked], now_ns: int, *, known: bool = True) -> Start:
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
        return Start(names, waits_for=waits_for)
    guessed = any(each.opening.basis == "evidence" for each in picked)
    start_ns = Ahead(state).clear_ns(job, names, max(at_ns, now_ns + LEAST_NS))
    return Start(names, start_ns, "evidence" if guessed else "limits", waits_for)


def _opens_ns(picked: Sequence[_Picked]) -> int:
    return max(each.opening.at_ns for each in picked)


def _domains(state: State, request: Request) -> list[list[Node]]:
    """Nodes of the request's pool by the domain in which all units must lie; without one, all of them."""
    nodes, level = state.pools.of(request).members, asks_of(request)[0].level
    if not level:
        return [list(nodes.values())]
    if level == "node":
        return [[nodes[name]] for name in sorted(nodes)]
    groups: dict[str, list[Node]] = {}
    for node in nodes.values():
        domain = domain_of(node.inventory.labels, level)
        if domain:
            groups.setdefault(domain, []).append(node)
    return [groups[domain] for domain in sorted(groups)]


def _pick(
    state: State, request: Request, job: str, nodes: list[Node], kept: Reservation | None, now_ns: int
) -> list[_Picked] | None:
    """Return the nodes that open first. If the start would not be known even so, nodes in a maintenance window are excluded."""
    asks, ahead = asks_of(request), Ahead(state)
    able = [_able(state, ask, job, nodes, kept, now_ns) for ask in asks]
    picked = _clear(asks, able, ahead, job, now_ns)
    away = picked is not None and any(not each.node.serving for each in picked)
    if picked is None or not away or (not request.tasks and _opens_ns(picked) < NEVER_NS):
        return picked
    able = [[each for each in some if each.node.serving] for some in able]
    return _clear(asks, able, ahead, job, now_ns)


def _clear(
    asks: Sequence[Ask], able: Sequence[list[_Picked]], ahead: Ahead, job: str, now_ns: int
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
    state: State, ask: Ask, job: str, nodes: list[Node], kept: Reservation | None, now_ns: int
) -> list[_Picked]:  # fmt: skip
    """The nodes that open for a unit at some time."""
    found: list[_Picked] = []
    for node in nodes:
        if serves(state, node, ask.request, job):
            at = opening(state, node, ask, now_ns, kept)
            if at is not None:
                found.append(_Picked(node, ask, at, _units(node, ask) if ask.request.tasks else 1))
    return found


def _cleared(ahead: Ahead, job: str, each: _Picked, since_ns: int) -> _Picked:
    at_ns = ahead.clear_ns(job, (each.node.name,), max(each.opening.at_ns, since_ns))
    return each._replace(opening=each.opening._replace(at_ns=at_ns))


def _first(asks: Sequence[Ask], able: Sequence[list[_Picked]]) -> list[_Picked] | None:
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


def _units(node: Node, ask: Ask) -> int:
    """Return the number of tasks that the empty node takes, judged by amounts only."""
    build, request = node.left.build, ask.request
    amounts = (
        (len(build.gpus), ask.gpus), (build.cpu_milli, request.cpu_milli), (build.memory_mib, request.memory_mib)
    )  # fmt: skip
    return min([has // wants for has, wants in amounts if wants], default=request.nodes)


def _lacks(picked: Sequence[_Picked], request: Request) -> list[tuple[int, ...]]:
    """Return the sums of the lacking resources, without the names."""
    found = [lack(each.node, request)[:4] for each in picked]
    return [tuple(sum(each[at] for each in found) for at in range(4))]


# ---------------------------------------------------------------------------- one node


def serves(state: State, node: Node, request: Request, job: str) -> bool:
    """Return True if the node, empty, would take a unit of the job, by now or when a window returns it, and is kept for no
    other job.
    """
    if node.keeper not in ("", job) or node.pool != pool_of(request):
        return False
    if not node.serving and not returns_ns(state, node):
        return False
    ask = asks_of(request)[0]
    return not never(node.left, ask)


def lack(node: Node, request: Request) -> tuple[int, int, int, int, str]:
    """Return the amounts that must still come free on the node (GPUs, milli-CPU, MiB), the number of live ranks there, and its
    name.
    """
    ask, left = asks_of(request)[0], node.left
    suits = ask.verdict(left.build).suits
    free = (left.free & suits).bit_count() if ask.whole else sum(milli >= ask.milli for milli in left.milli)
    return (
        max(0, ask.gpus - free),
        max(0, request.cpu_milli - left.cpu_milli),
        max(0, request.memory_mib - left.memory_mib),
        node.live,
        node.name,
    )
