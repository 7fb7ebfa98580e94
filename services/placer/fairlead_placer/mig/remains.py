"""Sets of profiles that still fit, for every room that instances can leave on a shape.

The table is computed once per shape, for all rooms at once, then looked up. A set is written as one integer, `DIGIT`
bits for the count of each cut of the shape, cut 0 lowest. Adding one of cut i is therefore adding `1 << (DIGIT * i)`.
The empty set is always in.
"""

from functools import cache

from fairlead_placer.mig.layouts import Room
from fairlead_placer.mig.shapes import Shape

#: Bits per count: no GPU holds more than 15 instances of a profile.
DIGIT = 4


def unit(index: int) -> int:
    """The set of one instance of cut `index`."""
    return 1 << (DIGIT * index)


def counts_in(packed: int, length: int) -> tuple[int, ...]:
    """Return the count of each of `length` cuts in the set."""
    return tuple(packed >> (DIGIT * index) & ((1 << DIGIT) - 1) for index in range(length))


class Remains:
    """The table of one shape."""

    def __init__(self, shape: Shape) -> None:
        assert shape.instances_max < 1 << DIGIT
        self.shape = shape
        self._sets: dict[Room, frozenset[int]] = {}
        self._most: dict[Room, tuple[int, ...]] = {}
        self._fill(Room())

    @property
    def rooms(self) -> int:
        """Number of rooms in the table."""
        return len(self._sets)

    def sets(self, room: Room) -> frozenset[int]:
        """Every set that could be added, packed. KeyError for a room that no legal layout leaves."""
        return self._sets[room]

    def most(self, room: Room) -> tuple[int, ...]:
        """For each cut of the shape, how many of it alone could be added. KeyError as `sets`."""
        return self._most[room]

    def _fill(self, room: Room) -> frozenset[int]:
        known = self._sets.get(room)
        if known is not None:
            return known
        found = {0}
        for index in range(len(self.shape.cuts)):
            one = unit(index)
            for start in room.free_starts(self.shape, index):
                found.update(one + others for others in self._fill(room.add(self.shape, index, start)))
        sets = self._sets[room] = frozenset(found)
        self._most[room] = tuple(self._alone(sets, index) for index in range(len(self.shape.cuts)))
        return sets

    def _alone(self, sets: frozenset[int], index: int) -> int:
        count = 0
        while (count + 1) * unit(index) in sets:
            count += 1
        return count


@cache
def remains(shape: Shape) -> Remains:
    """The table, made at the first call for the shape (there are few shapes)."""
    return Remains(shape)
