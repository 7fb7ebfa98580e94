"""Layouts: which instances are on a GPU, whether they may be there together, and what room they leave.

A subset of a legal layout is legal, whatever its order: so instances may be destroyed in any order, and those of a legal
layout created in any order.

Sets of profiles that still fit, for every room that instances can leave on a shape.

The table is computed once per shape, for all rooms at once, then looked up. A set is written as one integer, `DIGIT`
bits for the count of each cut of the shape, cut 0 lowest. Adding one of cut i is therefore adding `1 << (DIGIT * i)`.
The empty set is always in.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from fairlead_placer.mig.models import MigGeometry, Model


class Instance(NamedTuple):
    """A GPU instance: its profile, and its first memory slice."""

    profile: str
    start: int


class Layout(NamedTuple):
    """A GPU's instances by whether they are in use. Each in any order; `legal_fault` says whether they may stand together."""

    busy: tuple[Instance, ...] = ()
    idle: tuple[Instance, ...] = ()

    @property
    def instances(self) -> tuple[Instance, ...]:
        """All of them."""
        return self.busy + self.idle


class LayoutRoom(NamedTuple):
    """Resources that instances have taken of a shape: all facts that decide about additions."""

    mask: int = 0  # memory slices, bit 0 is slice 0
    compute: int = 0  # compute slices
    media: bool = False  # the one instance with media engines is there

    def free_starts(self, shape: MigGeometry, index: int) -> tuple[int, ...]:
        """Return the possible starts of one more of the shape's cut `index`, rising."""
        cut = shape.cuts[index]
        if self.compute + cut.compute > shape.compute or (cut.media and self.media):
            return ()
        return tuple(start for start in cut.starts if not cut.mask(start) & self.mask)

    def add(self, shape: MigGeometry, index: int, start: int) -> "LayoutRoom":
        """The room with one more of cut `index` at `start`, one of `free_starts`."""
        cut = shape.cuts[index]
        assert not cut.mask(start) & self.mask
        return LayoutRoom(self.mask | cut.mask(start), self.compute + cut.compute, self.media or cut.media)


def room_of(model: Model, instances: Iterable[Instance]) -> LayoutRoom:
    """Return the room that the instances take. They must be legal together (`legal_fault`): AssertionError or ValueError if
    not.
    """
    room = LayoutRoom()
    for profile, start in instances:
        room = room.add(model.shape, model.profiles.index(profile), start)
    return room


def legal_fault(model: Model, instances: Iterable[Instance]) -> str:
    """Return the reason the instances may not be on one GPU together, "" if they may.

    The rules are those of NVIDIA's MIG user guide: each instance at a start of its profile, no memory slice twice, compute
    slices within the GPU's, no profile more often than its maximum, at most one instance with media engines.
    """
    room, counts = LayoutRoom(), dict[str, int]()
    for profile, start in instances:
        index = model.cut_number(profile)
        if index is None:
            return f"{model.name} has no profile {profile}"
        cut = model.shape.cuts[index]
        counts[profile] = counts.get(profile, 0) + 1
        if start not in cut.starts:
            return f"{profile} may start at {', '.join(map(str, cut.starts))}, not at {start}"
        if counts[profile] > cut.count_max:
            return f"more than {cut.count_max} of {profile}"
        if cut.mask(start) & room.mask:
            return f"{profile} at {start} overlaps another instance"
        if room.compute + cut.compute > model.shape.compute:
            return f"more than {model.shape.compute} compute slices"
        if cut.media and room.media:
            return "more than one instance with media engines"
        room = room.add(model.shape, index, start)
    return ""


def layouts_of(model: Model, counts: tuple[int, ...], room: LayoutRoom | None = None) -> Iterator[tuple[Instance, ...]]:
    """Every way to lay so many instances of each profile ({index: count} as a tuple, in the order of `model.profiles`) into
    what the room leaves: each set of starts once, largest cuts first, highest starts first. None where they do not fit."""
    wanted = [index for index, count in enumerate(counts) for _ in range(count)]
    wanted.sort(key=lambda index: (-model.shape.cuts[index].size, index))
    return _lay(model, wanted, LayoutRoom() if room is None else room, model.shape.memory)


def _lay(model: Model, wanted: list[int], room: LayoutRoom, below: int) -> Iterator[tuple[Instance, ...]]:
    """`below`: the next one starts below it, so that equal instances are not counted in two orders."""
    if not wanted:
        yield ()
        return
    index, rest = wanted[0], wanted[1:]
    for start in reversed(room.free_starts(model.shape, index)):
        if start < below:
            then = start if rest and rest[0] == index else model.shape.memory
            for others in _lay(model, rest, room.add(model.shape, index, start), then):
                yield (Instance(model.profiles[index], start), *others)


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

    def __init__(self, shape: MigGeometry) -> None:
        assert shape.instances_max < 1 << DIGIT
        self.shape = shape
        self._sets: dict[LayoutRoom, frozenset[int]] = {}
        self._most: dict[LayoutRoom, tuple[int, ...]] = {}
        self._fill(LayoutRoom())

    @property
    def rooms(self) -> int:
        """Number of rooms in the table."""
        return len(self._sets)

    def sets(self, room: LayoutRoom) -> frozenset[int]:
        """Every set that could be added, packed. KeyError for a room that no legal layout leaves."""
        return self._sets[room]

    def most(self, room: LayoutRoom) -> tuple[int, ...]:
        """For each cut of the shape, how many of it alone could be added. KeyError as `sets`."""
        return self._most[room]

    def _fill(self, room: LayoutRoom) -> frozenset[int]:
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
def remains(shape: MigGeometry) -> Remains:
    """The table, made at the first call for the shape (there are few shapes)."""
    return Remains(shape)
