"""Room for several kinds of units side by side, a node for each unit: columns of numbers, and nothing else.

Every kind finds room if and only if any few of them together find as many nodes as they need (Hall, 1935). Of a
single kind, a node may take several units.
"""

from collections.abc import Sequence

import numpy as np

from fairlead_placer.packing.states import Flags, Ints


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
    return [(each, held(domains, (able & each) != 0) - _together(least, each)) for each in some]


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
    return {some: int(np.count_nonzero(able & some)) - _together(least, some) for some in range(1, 1 << len(rooms))}


def _together(least: Sequence[int], some: int) -> int:
    return sum(units for at, units in enumerate(least) if some >> at & 1)
