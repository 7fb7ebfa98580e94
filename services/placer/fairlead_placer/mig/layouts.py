"""Layouts: which instances are on a GPU, whether they may be there together, and what room they leave.

A subset of a legal layout is legal, whatever its order: so instances may be destroyed in any order, and those of a legal
layout created in any order.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairlead_placer.mig.models import Model
from fairlead_placer.mig.shapes import Shape


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


class Room(NamedTuple):
    """Resources that instances have taken of a shape: all facts that decide about additions."""

    mask: int = 0  # memory slices, bit 0 is slice 0
    compute: int = 0  # compute slices
    media: bool = False  # the one instance with media engines is there

    def free_starts(self, shape: Shape, index: int) -> tuple[int, ...]:
        """Return the possible starts of one more of the shape's cut `index`, rising."""
        cut = shape.cuts[index]
        if self.compute + cut.compute > shape.compute or (cut.media and self.media):
            return ()
        return tuple(start for start in cut.starts if not cut.mask(start) & self.mask)

    def add(self, shape: Shape, index: int, start: int) -> "Room":
        """The room with one more of cut `index` at `start`, one of `free_starts`."""
        cut = shape.cuts[index]
        assert not cut.mask(start) & self.mask
        return Room(self.mask | cut.mask(start), self.compute + cut.compute, self.media or cut.media)


def room_of(model: Model, instances: Iterable[Instance]) -> Room:
    """Return the room that the instances take. They must be legal together (`legal_fault`): AssertionError or ValueError if
    not.
    """
    room = Room()
    for profile, start in instances:
        room = room.add(model.shape, model.profiles.index(profile), start)
    return room


def legal_fault(model: Model, instances: Iterable[Instance]) -> str:
    """Return the reason the instances may not be on one GPU together, "" if they may.

    The rules are those of NVIDIA's MIG user guide: each instance at a start of its profile, no memory slice twice, compute
    slices within the GPU's, no profile more often than its maximum, at most one instance with media engines.
    """
    room, counts = Room(), dict[str, int]()
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


def layouts_of(model: Model, counts: tuple[int, ...], room: Room | None = None) -> Iterator[tuple[Instance, ...]]:
    """Every way to lay so many instances of each profile ({index: count} as a tuple, in the order of `model.profiles`) into
    what the room leaves: each set of starts once, largest cuts first, highest starts first. None where they do not fit."""
    wanted = [index for index, count in enumerate(counts) for _ in range(count)]
    wanted.sort(key=lambda index: (-model.shape.cuts[index].size, index))
    return _lay(model, wanted, Room() if room is None else room, model.shape.memory)


def _lay(model: Model, wanted: list[int], room: Room, below: int) -> Iterator[tuple[Instance, ...]]:
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
