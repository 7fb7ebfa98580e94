"""On which nodes of a domain a gang's units go: smaller domains are filled one after the other, so that as few as can be
are touched; inside the smallest, the cheapest nodes.
"""

from collections.abc import Sequence

import numpy as np

from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.kinds import Kind
from fairlead_placer.packing.states import Ints

#: After all domains.
NONE = 1 << 62


def spread(index: Index, kind: Kind, able: Ints, units: int, levels: Sequence[str]) -> list[tuple[int, int]]:
    """(node, its units), of nodes that all have room. `levels`: largest first."""
    for at, level in enumerate(levels):
        if index.domains.known(level):
            of: Ints = index.domains.of[level].take(able)
            if (of != of[0]).any() or (of[0] < 0 and len(of) > 1):
                return _spread_over(index, kind, able, units, levels[at:], of)
    return cheapest(index, kind, able, units)


def _spread_over(
    index: Index, kind: Kind, able: Ints, units: int, levels: Sequence[str], of: Ints
) -> list[tuple[int, int]]:
    """Spread units over whole domains of the first level, those that take most first. The last domain is the smallest that
    takes the rest; inside it the next level is used. `of` has the domain of each node, or -1.
    """
    level = levels[0]
    if int(of.min()) < 0:  # a node in none is one by itself, after all others
        of = np.where(of < 0, able + len(index.domains.domains[level]), of)
    rooms = _rooms(kind, able, of)
    domains = rooms.nonzero()[0]
    ranks = index.domains.ranks(level)[domains]
    whole, last, units = _divided(rooms[domains], ranks, units)
    found: list[tuple[int, int]] = []
    if len(whole):
        taken = np.zeros(len(rooms), np.bool_)
        taken[domains[whole]] = True
        numbers = able[taken.take(of)]
        found = list(zip(numbers.tolist(), kind.units_on(numbers), strict=True))
    return found + spread(index, kind, able[of == domains[last]], units, levels[1:])


def _rooms(kind: Kind, able: Ints, of: Ints) -> Ints:
    """[domain]: units that these nodes of it take."""
    if not kind.ask.request.tasks:
        return np.bincount(of)
    return np.bincount(of, kind.room.take(able)).astype(np.int64)


def _divided(rooms: Ints, ranks: Ints, units: int) -> tuple[Ints, int, int]:
    """Return the places of the domains to take whole, of the one for the rest, and the number of units in that rest."""
    order = np.lexsort((ranks, -rooms))
    rising, full = -rooms[order], 0  # searches want them rising
    while -int(rising[full]) < units:
        units += int(rising[full])
        full += 1
    least = int(rising[rising.searchsorted(-units, "right") - 1])
    # The first of those with just as much room, of which some may have been taken whole.
    return order[:full], int(order[max(full, int(rising.searchsorted(least, "left")))]), units


def smallest(rooms: Ints, ranks: Ints, units: int) -> int:
    """Return the first of the domains with the least room among those with room for `units`."""
    order = rooms * len(ranks) + ranks[: len(rooms)]
    order[rooms < units] = NONE
    return int(order.argmin())


def cheapest(index: Index, kind: Kind, able: Ints, units: int) -> list[tuple[int, int]]:
    """Nodes by cost; of tasks, as few nodes as can be."""
    rows = index.domains.rows[able]
    order = able[np.lexsort((index.domains.names_ranked()[able], index.rows.tightness[rows], kind.cost[rows]))].tolist()
    if not kind.ask.request.tasks:
        return [(number, 1) for number in order[:units]]
    found: list[tuple[int, int]] = []
    while units and order:
        enough = next((number for number in order if int(kind.room[number]) >= units), None)
        number = enough if enough is not None else max(order, key=lambda each: int(kind.room[each]))
        order.remove(number)
        part = min(units, int(kind.room[number]))
        found.append((number, part))
        units -= part
    return found
