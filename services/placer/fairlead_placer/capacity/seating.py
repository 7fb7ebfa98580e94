"""Units of one or several kinds onto given nodes, all or nothing: no choice among domains, no costs.

A node takes units of one kind. Units that are one to a node are matched (augmenting paths), so they find a place wherever
there is one; tasks go kind by kind to the nodes that take most.
"""

from collections.abc import Callable, Sequence

from fairlead_placer.capacity.asks import Ask, several
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.seats import Seat, seat

#: (kind, place of a node) -> how many units of the kind the node takes.
type Takes = Callable[[int, int], int]


def fits(left: Left, ask: Ask) -> bool:
    """True when a unit has a seat there now."""
    return isinstance(seat(left, ask), Seat)


def units_in(left: Left, ask: Ask, most: int) -> int:
    """Return how many units the node takes at once: 0 or 1, or as many tasks as fit, `most` at most."""
    if not ask.request.tasks:
        return int(fits(left, ask))
    units = 0
    while units < most and fits(left, several(ask, units + 1)):
        units += 1
    return units


def least_units(asks: Sequence[Ask]) -> list[int]:
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
