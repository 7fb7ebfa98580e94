"""Which nodes give how many units of a job that gets all of them or none, so that fewest pieces must be made. Pure numbers.

A piece is a MIG instance, or a GPU that is made whole. What a node's next unit takes never becomes less with each one that it
gives: so the cheapest next unit, one after the other, is exact.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple


class Supply(NamedTuple):
    """What one node gives."""

    #: Units as it is, and at most when it is cut anew; the pieces that it has, free, for those and more.
    ready: int
    most: int
    has: int


class Share(NamedTuple):
    """A node, by its place, that is cut anew, and how many pieces it lacks for its units."""

    place: int
    missing: int


def share_out(supplies: Sequence[Supply], wanted: int, each: int) -> list[Share] | None:
    """Who is cut for so many units of `each` pieces, by place; empty where they have room as it is, None where they have none
    even so. Of equals the one that is cut already, then the one with most to give, so that few are cut; then the first."""
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
