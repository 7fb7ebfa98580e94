"""Places for several units at once, all or nothing, in the smallest domain that takes them.

Domains are tried from the smallest level up. Of the domains that take all units, the one is chosen that they fill
best. Inside it, smaller domains are filled one after the other, so that as few as possible are touched. A gang of
several kinds gets all of them within one domain.

An ordinary gang has one kind of unit, each on a node of its own, two at the least. Its domain is searched among the
nodes that have room, and not among all; the result is the same. As there are two units, a node that is in no domain of
a level is never the domain to take there. Start at `choose`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from fairlead_placer.cluster.capacity.topology_domains import LEVELS, Domains
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.placement.node_choice import NOBODY, NodeChoice
from fairlead_placer.cluster.placement.task_groups import TaskGroup, cheapest, smallest, spread
from fairlead_placer.cluster.placement.unit_matching import able_of, first_beyond, held, slack, spares
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.policy import Arrivals, Ints
from fairlead_schemas.wire.resources import Request


class Shortfall(NamedTuple):
    """Reason that a gang has no place: how many units would fit, in all and in the best domain of the level that it
    requires. Columns do not show shares' memory and pinned CPUs: with these, fewer units may fit.
    """

    units: int
    level: str
    best: int


def choose(
    index: PoolIndex, request: Request, work: Arrivals[Request], avoided: Collection[str] = NOBODY
) -> list[NodeChoice] | Shortfall:
    """Places for all units (of an elastic request: as many as can be had, at least its least), in the order of ranks."""
    kinds = [TaskGroup(index, ask, work, avoided) for ask in unit_requests(request)]
    plain = is_plain(kinds)
    while True:
        found = _alone(index, kinds[0]) if plain else _together(index, kinds)
        if not isinstance(found, Misfit):
            return found
        found.kind.hold(found.number, found.units)


class Misfit(NamedTuple):
    """Node that has less room than its columns show: it takes fewer units of the kind."""

    kind: TaskGroup
    number: int
    units: int


def _alone(index: PoolIndex, kind: TaskGroup) -> list[NodeChoice] | Shortfall | Misfit:
    """Units of one kind, each on a node of its own."""
    found = nodes_for(index.domains, kind, index.domains.rising(kind.ask.level))
    if isinstance(found, Shortfall):
        return found
    able, level = found
    units = min(kind.most, len(able))
    return _seats(index, kind, spread(index, kind, able, units, index.domains.within(level)))


def _together(index: PoolIndex, kinds: Sequence[TaskGroup]) -> list[NodeChoice] | Shortfall | Misfit:
    """Units of whatever kinds, or tasks."""
    numbers = _domain(index, kinds)
    return numbers if isinstance(numbers, Shortfall) else _fill(index, kinds, numbers)


# ---------------------------------------------------------------------------- an ordinary gang


def is_plain(kinds: Sequence[TaskGroup]) -> bool:
    """Return True for an ordinary gang."""
    return len(kinds) == 1 and kinds[0].least > 1 and not kinds[0].ask.request.tasks


def nodes_for(domains: Domains, kind: TaskGroup, levels: Sequence[str]) -> tuple[Ints, str] | Shortfall:
    """The nodes with room of the domain to take, and its level: with as many units as can be, smallest level first, filled
    best. The last one of `levels` is what the gang requires."""
    able, units = kind.able, kind.most
    if kind.least < units:
        most = int(_counted(_of(domains, levels[-1], able)).max())
        units = max(kind.least, min(units, most))
    most = 0
    for level in levels if len(able) >= units else levels[-1:]:
        of = _of(domains, level, able)
        counts = _counted(of)
        most = int(counts.max())
        if most >= units:
            return (able[of == smallest(counts[1:], domains.ranks(level), units) + 1] if level else able), level
    return Shortfall(min(len(able), kind.most), levels[-1], min(most, kind.most) if levels[-1] else 0)


def _of(domains: Domains, level: str, able: Ints) -> Ints:
    """Return one more than the number of each node's domain; 0 for a node that is a domain of its own."""
    if level in ("", "node"):
        return np.zeros(len(able), np.int64) if level else np.ones(len(able), np.int64)
    return domains.of[level].take(able) + 1


def _counted(of: Ints) -> Ints:
    """Return [one more than the number of a domain]: nodes in it. At 0: the nodes in one of the single-node domains."""
    counts = np.bincount(of, minlength=1)
    counts[0] = min(int(counts[0]), 1)
    return counts


# ---------------------------------------------------------------------------- where, of any kinds


def _domain(index: PoolIndex, kinds: Sequence[TaskGroup]) -> Ints | Shortfall:
    """Numbers of the nodes of the domain to take: with as many units as can be, smallest level first, filled best."""
    request, level = kinds[0].ask.request, kinds[0].ask.level
    domains = _domains(index, level, len(kinds[0].room))
    rooms, least = [kind.room for kind in kinds], [kind.least for kind in kinds]
    most = int(first_beyond(spares(rooms, least, domains)).max(initial=-1))
    if most < 0:
        return _shortfall(kinds, level, domains)
    beyond = min(most, kinds[0].most - kinds[0].least)  # no other kind is elastic
    alone = ("node",) if request.tasks and level != "node" else ()
    for each in (*alone, *index.domains.rising(level)):
        domains = _domains(index, each, len(kinds[0].room))
        found = spares(rooms, least, domains)
        able = np.flatnonzero(first_beyond(found) >= beyond)
        if len(able):
            left = found[-1][1][able]
            return np.flatnonzero(domains == _first(index, each, able[left == left.min()]))
    raise AssertionError("the last level is the one that takes them")


def _domains(index: PoolIndex, level: str, nodes: int) -> Ints:
    """[node's number]: its domain; a node that is in none is one by itself, after all others."""
    if level in ("", "node"):
        return np.arange(nodes) if level else np.zeros(nodes, np.int64)
    of = index.domains.of[level][:nodes]
    return np.where(of < 0, np.arange(nodes) + len(index.domains.domains[level]), of)


def _first(index: PoolIndex, level: str, domains: Ints) -> int:
    """The one with the first name."""
    if not level:
        return 0
    ranks = index.domains.names_ranked() if level == "node" else index.domains.ranks(level)
    return int(domains[ranks[domains].argmin()])


def _shortfall(kinds: Sequence[TaskGroup], level: str, domains: Ints) -> Shortfall:
    units = sum(min(int(kind.room.sum()), kind.most) for kind in kinds)
    if not level or not len(domains):
        return Shortfall(units, level, 0)
    best: Ints = np.sum([np.minimum(held(domains, kind.room), kind.most) for kind in kinds], axis=0)
    if len(kinds) > 1:  # a node takes one unit of one kind
        best = np.minimum(best, held(domains, able_of([kind.room for kind in kinds]) != 0))
    return Shortfall(units, level, int(best.max()))


# ---------------------------------------------------------------------------- on which nodes


def _fill(index: PoolIndex, kinds: Sequence[TaskGroup], numbers: Ints) -> list[NodeChoice] | Misfit:
    """Seats on these nodes."""
    chosen: list[NodeChoice] = []
    for at, kind in enumerate(kinds):
        able, others = numbers[kind.room[numbers] > 0], kinds[at + 1 :]
        units = min(kind.most, int(kind.room[able].sum()))
        picked = spread(index, kind, able, units, LEVELS[::-1])
        if others and min(_slack(others, _without(numbers, [number for number, _ in picked])).values()) < 0:
            picked = [(number, 1) for number in _leaving_room(index, kind, able, others, numbers)]
        found = _seats(index, kind, picked)
        if isinstance(found, Misfit):
            return found
        chosen += found
        if others:
            numbers = _without(numbers, [choice.node.slot for choice in found])
    return chosen


def _seats(index: PoolIndex, kind: TaskGroup, picked: Sequence[tuple[int, int]]) -> list[NodeChoice] | Misfit:
    """Return the choices for units of one kind, in the order of ranks; a Misfit where a node takes fewer units than
    picked.
    """
    found: list[NodeChoice] = []
    for number, units in picked:
        seated = kind.seat(index, number, units)
        if seated is None:
            return Misfit(kind, number, units - 1)
        found.append(seated)
    found.sort(key=_name_of)
    return found


def _without(numbers: Ints, taken: Sequence[int]) -> Ints:
    return numbers[~np.isin(numbers, np.array(taken, np.int64))]


def _slack(others: Sequence[TaskGroup], numbers: Ints) -> dict[int, int]:
    return slack([kind.room[numbers] for kind in others], [kind.least for kind in others])


def _leaving_room(
    index: PoolIndex, kind: TaskGroup, able: Ints, others: Sequence[TaskGroup], numbers: Ints
) -> list[int]:
    """The cheapest nodes with which all other kinds still find room. As all find room on `numbers`, there are enough:
    a node that is taken is one less to take, and what must be left to others never becomes less."""
    left, bits = _slack(others, numbers), able_of([other.room for other in others])
    found: list[int] = []
    for number, _ in cheapest(index, kind, able, len(able)):
        touched = [some for some in left if some & int(bits[number])]
        if len(found) < kind.most and all(left[some] > 0 for some in touched):
            found.append(number)
            for some in touched:
                left[some] -= 1
    assert len(found) >= kind.least, f"expected {kind.least} nodes that others can do without, found {len(found)}"
    return found


def _name_of(choice: NodeChoice) -> str:
    return choice.node.name
