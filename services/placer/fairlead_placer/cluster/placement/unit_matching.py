"""Room for several kinds of units side by side: counted by domain, and matched to given nodes. No costs, and no choice
among domains.

A node takes units of one kind. Every kind finds room if and only if any few of them together find as many nodes as
they need (Hall, 1935). Of a single kind, a node may take several units. Units that are one to a node are matched
(augmenting paths), so they find a place wherever there is one; tasks go kind by kind to the nodes that take most.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, several
from fairlead_placer.packing.policy import Flags, Ints

# ---------------------------------------------------------------------------- by domain


def held(domains: Ints, room: Ints | Flags) -> Ints:
    """[domain]: units that its nodes take. `domains` has each node's domain."""
    found: Ints = np.bincount(domains, room).astype(np.int64)
    return found


def able_of(rooms: Sequence[Ints]) -> Ints:
    """[node]: the kinds of which it takes a unit, as bits."""
    found: Ints = np.sum([(room > 0).astype(np.int64) << at for at, room in enumerate(rooms)], axis=0)
    return found


def spares(rooms: Sequence[Ints], least: Sequence[int], domains: Ints) -> list[tuple[int, Ints]]:
    """(some of the kinds, as bits; [domain]: units that it takes of them beyond their least). Below 0: too few. The last
    one is of all kinds."""
    if len(rooms) == 1:
        return [(1, held(domains, rooms[0]) - least[0])]
    able = able_of(rooms)
    some = range(1, 1 << len(rooms))
    return [(each, held(domains, (able & each) != 0) - _least_of(least, each)) for each in some]


def first_beyond(found: Sequence[tuple[int, Ints]]) -> Ints:
    """Return [domain]: units beyond its least that the first kind gets, when all others get theirs; below 0 where some
    kind finds no room.
    """
    room: Ints = np.min([spare for _, spare in found], axis=0)
    first: Ints = np.min([spare for some, spare in found if some & 1], axis=0)
    return np.where(room < 0, room, first)


def slack(rooms: Sequence[Ints], least: Sequence[int]) -> dict[int, int]:
    """{some of the kinds, as bits: nodes that they can do without}."""
    able = able_of(rooms)
    return {some: int(np.count_nonzero(able & some)) - _least_of(least, some) for some in range(1, 1 << len(rooms))}


def _least_of(least: Sequence[int], some: int) -> int:
    return sum(units for at, units in enumerate(least) if some >> at & 1)


# ---------------------------------------------------------------------------- onto given nodes

#: (kind, place of a node) -> how many units of the kind the node takes.
type Takes = Callable[[int, int], int]


def fits(left: FreeResources, ask: UnitRequest) -> bool:
    """True when a unit has a seat there now."""
    return isinstance(seat(left, ask), NodeAllocation)


def units_in(left: FreeResources, ask: UnitRequest, most: int) -> int:
    """Return how many units the node takes at once: 0 or 1, or as many tasks as fit, `most` at most."""
    if not ask.request.tasks:
        return int(fits(left, ask))
    units = 0
    while units < most and fits(left, several(ask, units + 1)):
        units += 1
    return units


def least_units(asks: Sequence[UnitRequest]) -> list[int]:
    """Return the fewest units of each kind that a job starts with."""
    return [ask.request.nodes_min or ask.request.nodes for ask in asks]


def seated(places: Sequence[int], wanted: Sequence[int], takes: Takes, tasks: bool) -> list[dict[int, int]] | None:
    """For each kind {place of a node: its units}, so many as wanted in all; None where they do not fit."""
    if tasks:
        return _tasks(places, wanted, takes)
    able = [[place for place in places if takes(kind, place)] for kind in range(len(wanted))]
    taken: dict[int, int] = {}
    for kind, units in enumerate(wanted):
        for _ in range(units):
            if not _match(kind, able, taken, {kind}):
                return None
    return [{place: 1 for place in sorted(taken) if taken[place] == kind} for kind in range(len(wanted))]


def _match(kind: int, able: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Give one more node to the kind; kinds that were not tried yet may have to move."""
    free = next((place for place in able[kind] if place not in taken), None)
    if free is not None:
        taken[free] = kind
        return True
    for place in able[kind]:
        other = taken[place]
        if other not in tried:
            tried.add(other)
            if _match(other, able, taken, tried):
                taken[place] = kind
                return True
    return False


def _tasks(places: Sequence[int], wanted: Sequence[int], takes: Takes) -> list[dict[int, int]] | None:
    taken: set[int] = set()
    found: list[dict[int, int]] = []
    for kind, missing in enumerate(wanted):
        units = missing
        room = {place: takes(kind, place) for place in places if place not in taken}
        own: dict[int, int] = {}
        while units > 0:
            enough = [place for place, count in room.items() if count >= units]
            place = min(enough, key=room.__getitem__) if enough else max(room, key=room.__getitem__, default=-1)
            if place < 0 or not room[place]:
                return None
            own[place] = min(units, room.pop(place))
            units -= own[place]
        taken.update(own)
        found.append(own)
    return found
