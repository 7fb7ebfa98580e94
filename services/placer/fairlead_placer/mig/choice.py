"""Choice of the place of a request for one instance: the start on a GPU, and the GPU among several. The module changes
nothing.

An instance in use is never touched. A `Change` limits changes to the rest: take an existing instance, add one, or
repartition idle ones. The legal way that strands least is chosen. Each tie-break is documented where it applies.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from fairlead_placer.mig.demand import Demand, demand_of
from fairlead_placer.mig.layouts import Instance, Layout, Room, legal_fault, room_of
from fairlead_placer.mig.models import BY_NAME, Model

#: Answers that are remembered at once: GPUs of one model and layout have the same.
GRANTS_MAX = 1 << 14

type Instances = tuple[Instance, ...]


class Change(IntEnum):
    """The most that may be done to a GPU for a request; each includes those before it."""

    TAKE = 0  # an idle instance of that very profile
    ADD = 1  # a new instance in slices that no instance has; nothing that exists goes
    RECUT = 2  # a new instance in the place of idle ones


class MigGpu(NamedTuple):
    """GPU as an input of the choice. Its layout must be legal (`legal_fault`), and the model one of `MODELS`."""

    uuid: str
    model: Model
    layout: Layout
    #: False: MIG mode is off, the GPU is whole, and its layout empty; turning it on resets the GPU.
    enabled: bool = True

    @property
    def opening(self) -> int:
        """Loss of a whole GPU by using this one: 0 already in use, 1 partitioned but idle, 2 whole."""
        if self.layout.busy:
            return 0
        return 1 if self.enabled else 2


class Grant(NamedTuple):
    """A way to serve a request, with its figures. No part of it counts as done until an agent has reported it."""

    uuid: str
    instance: Instance
    change: Change
    #: Idle instances that have to go first, by start. Empty unless `change` is RECUT.
    destroy: Instances
    #: Of the room that counts (`solid_room`), before and after: thousandths of a request, thousandths of a slice.
    runway_before_milli: int
    stranded_before_milli: int
    runway_after_milli: int
    stranded_after_milli: int

    @property
    def stranded_more_milli(self) -> int:
        """Free slices that the average profile can no longer use, in thousandths; below 0 where the rest fits better."""
        return self.stranded_after_milli - self.stranded_before_milli

    @property
    def effort(self) -> int:
        """0 for an instance that is there; more for each that has to be made or destroyed."""
        return (self.change != Change.TAKE) + 2 * len(self.destroy)


def solid_room(model: Model, layout: Layout, change: Change) -> Room:
    """Return the room that is taken under every decision: instances in use, and below RECUT the idle ones too."""
    return room_of(model, layout.busy if change == Change.RECUT else layout.instances)


def choose_start(gpu: MigGpu, profile: str, demand: Demand, change: Change) -> Grant | None:
    """Return the best way to serve the request on this GPU; None if there is none. `demand` must be of the model's shape.

    Under TAKE and ADD, an idle instance of the profile is taken before a new one is made: it can serve no other profile.
    Ties are then broken by the longest runway, by the longest runway under equal demand for all profiles (which covers
    profiles without recent requests), by the fewest destroyed instances, by an idle instance before a new one, and by the
    highest start, as the driver itself fills a GPU.
    """
    grant = _best(gpu.model.name, gpu.layout, profile, demand, change)
    return None if grant is None else grant._replace(uuid=gpu.uuid)


def choose_gpu(
    gpus: Iterable[MigGpu], profile: str, weights: dict[str, int] | None = None, change: Change = Change.RECUT
) -> Grant | None:
    """The best way to serve the request on any of the GPUs; None where there is none.

    Under TAKE and ADD an idle instance before a new one, wherever it is. Then the GPU where fewest slices are stranded
    more, by the demand; then one in use before one that is idle, and that before a whole one: so a whole GPU is opened only where
    the others would strand more; then where the runway shrinks least; then the least effort; then the first of them.
    `weights` as for `demand_of`.
    """
    demands: dict[str, Demand] = {}
    best: tuple[tuple[int, int, int, int, int], str, Grant] | None = None
    for gpu in gpus:
        demand = demands.get(gpu.model.name)
        if demand is None:
            demand = demands[gpu.model.name] = demand_of(gpu.model, weights)
        grant = _best(gpu.model.name, gpu.layout, profile, demand, change)
        if grant is None:
            continue
        key = (
            int(change < Change.RECUT and grant.change != Change.TAKE),
            grant.stranded_more_milli,
            gpu.opening,
            grant.runway_before_milli - grant.runway_after_milli,
            grant.effort,
        )
        if best is None or key < best[0]:
            best = key, gpu.uuid, grant
    return None if best is None else best[2]._replace(uuid=best[1])


@lru_cache(maxsize=GRANTS_MAX)
def _best(name: str, layout: Layout, profile: str, demand: Demand, change: Change) -> Grant | None:
    """`choose_start` without the GPU's id: GPUs of one model and layout are served alike."""
    model = BY_NAME[name]
    index = model.cut_number(profile)
    if index is None:
        return None
    alike = demand_of(model)
    busy, solid = room_of(model, layout.busy), solid_room(model, layout, change)
    best: tuple[tuple[int, int, int, int, int], Grant] | None = None
    for instance, destroy, way in _ways(model, layout, profile, change):
        after = (busy if way == Change.TAKE else solid).add(model.shape, index, instance.start)
        taken = way == Change.TAKE and change < Change.RECUT
        left = solid if taken else after
        grant = Grant("", instance, way, destroy, *_figures(demand, solid), *_figures(demand, left))
        key = int(taken), demand.runway(after), alike.runway(after), -grant.effort, instance.start
        if best is None or key > best[0]:
            best = key, grant
    return None if best is None else best[1]


def _ways(model: Model, layout: Layout, profile: str, change: Change) -> Iterator[tuple[Instance, Instances, Change]]:
    """Every legal way: the instance, what has to go for it, and the change that this is."""
    present = {instance.start for instance in layout.idle if instance.profile == profile}
    yield from ((Instance(profile, start), (), Change.TAKE) for start in sorted(present))
    if change == Change.TAKE:
        return
    for start in solid_room(model, layout, change).free_starts(model.shape, model.profiles.index(profile)):
        if start not in present:
            wanted = Instance(profile, start)
            destroy = in_the_way(model, layout, (wanted,))
            yield wanted, destroy, Change.RECUT if destroy else Change.ADD


def in_the_way(model: Model, layout: Layout, wanted: Instances) -> Instances:
    """Return the idle instances that must go so that `wanted` can be created, by start.

    These are the instances that `wanted` overlaps. If that is not enough (compute, media engines), others are added, the
    lowest staying first; none goes without need. `wanted` must be legal together with the busy instances (AssertionError if
    not).
    """
    assert not legal_fault(model, layout.busy + wanted)
    stay, gone = layout.busy + wanted, list[Instance]()
    for instance in sorted(layout.idle, key=lambda instance: instance.start):
        if legal_fault(model, (*stay, instance)):
            gone.append(instance)
        else:
            stay = (*stay, instance)
    return tuple(gone)


def _figures(demand: Demand, room: Room) -> tuple[int, int]:
    return demand.runway_milli(room), demand.stranded_milli(room)
