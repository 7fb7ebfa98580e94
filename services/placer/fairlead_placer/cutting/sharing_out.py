"""Split of a job's units over nodes, all or none, so that the fewest pieces must be made. Pure numbers.

A piece is a MIG instance, or a GPU that is made whole. The cost of a node's next unit never falls with the units that
the node already gives. Taking the cheapest next unit repeatedly is therefore exact.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple


class Supply(NamedTuple):
    """Units and pieces that one node can give."""

    #: Units as it is, units at most when it is repartitioned, and the free pieces that it has for both.
    ready: int
    most: int
    has: int


class Share(NamedTuple):
    """A node, by its place, to be repartitioned, and the number of pieces that it lacks for its units."""

    place: int
    missing: int


def share_out(supplies: Sequence[Supply], wanted: int, each: int) -> list[Share] | None:
    """Return the nodes to repartition for `wanted` units of `each` pieces, by place.

    The list is empty if the nodes have room as they are. The result is None if they have no room even when repartitioned.
    Ties go to a node that is already repartitioned, then to the node with the most to give, so that few nodes are
    repartitioned, then to the first.
    """
    short = wanted - sum(supply.ready for supply in supplies)
    # (pieces that the next unit lacks, more units with their sign turned, place); of one that is cut, less than of any other
    heads = [
        (_lacks(one, one.ready + 1, each), one.ready - one.most, place)
        for place, one in enumerate(supplies) if one.most > one.ready
    ]  # fmt: skip
    heapify(heads)
    units: dict[int, int] = {}
    while short > 0 and heads:
        *_, place = heads[0]
        supply = supplies[place]
        units[place] = units.get(place, supply.ready) + 1
        short -= 1
        if units[place] < supply.most:
            heapreplace(heads, (each, -wanted, place))
        else:
            heappop(heads)
    if short > 0:
        return None
    return [Share(place, _lacks(supplies[place], units[place], each)) for place in sorted(units)]


def _lacks(supply: Supply, units: int, each: int) -> int:
    return units * each - supply.has
