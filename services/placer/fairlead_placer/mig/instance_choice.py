"""Choice of the place of a request for one instance: the start on a GPU, and the GPU among several; and value of room on a
GPU for the observed work: two figures, both exact, both integers. The module changes nothing.

An instance in use is never touched. A `Change` limits changes to the rest: take an existing instance, add one, or
repartition idle ones. The legal way that strands least is chosen. Each tie-break is documented where it applies.

The **runway** of a room is the average number of further requests, each drawn by demand, that fit in a row before one
does not:

    runway = sum over k >= 1 of P(the next k requests all fit)
           = sum over sets S that fit of n! / (c1! c2! ...) * w1^c1 * w2^c2 ...

S holds c_i of profile i and n in all, and w_i is the share of profile i in the demand. The starts count as free to
choose when fit is judged, as if all requests were known at once. The runway decides the start of an instance. On an
A100 with all profiles alike, and on most mixes of fewer, no rule that sees one request at a time refuses fewer of the
streams that a better start would have granted (tests/placer/mig/test_streams.py).

**Stranded** slices are the free memory slices that a profile cannot use, averaged over the demand. The idea is FGD's
(Weng et al., "Beware of Fragmentation", USENIX ATC 2023): the figure is its F with MIG profiles for tasks. It adds up
over GPUs, and decides the GPU of a request.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from math import factorial, gcd
from typing import NamedTuple

from fairlead_placer.mig.layouts import Instance, Layout, LayoutRoom, counts_in, legal_fault, remains, room_of
from fairlead_placer.mig.models import BY_NAME, MigGeometry, Model

#: Demand is rounded to so many parts, so that a request more changes no figure, and tables made for it stay.
PARTS = 60
#: Demands whose figures are remembered at once.
DEMANDS_MAX = 64


class Demand:
    """The shares of a shape's profiles in the demand, and what rooms are worth by them."""

    def __init__(self, shape: MigGeometry, parts: tuple[int, ...]) -> None:
        assert len(parts) == len(shape.cuts) and sum(parts) > 0
        self.shape = shape
        #: In the order of the shape's cuts; only their proportions count.
        self.parts = parts
        self.total = sum(parts)
        #: The runway is counted in this part of a request.
        self.runway_unit = self.total**shape.instances_max
        self._remains = remains(shape)
        self._terms: dict[int, int] = {}
        self._runways: dict[LayoutRoom, int] = {}

    def runway(self, room: LayoutRoom) -> int:
        """More requests in a row, in units of one `runway_unit`th. KeyError for a room that no legal layout leaves."""
        known = self._runways.get(room)
        if known is None:
            known = self._runways[room] = sum(map(self._term, self._remains.sets(room)))
        return known

    def runway_milli(self, room: LayoutRoom) -> int:
        """The same in thousandths of a request, rounded down, for people. KeyError as `runway`."""
        return self.runway(room) * 1000 // self.runway_unit

    def stranded_milli(self, room: LayoutRoom) -> int:
        """Free memory slices that the average profile cannot use, in thousandths, rounded down. KeyError as `runway`."""
        free = self.shape.memory - room.mask.bit_count()
        most = self._remains.most(room)
        usable = sum(
            part * count * cut.size for part, count, cut in zip(self.parts, most, self.shape.cuts, strict=True) if part
        )
        return (free * self.total - usable) * 1000 // self.total

    def _term(self, packed: int) -> int:
        """Return the contribution of one set to the runway; the empty set contributes 0."""
        known = self._terms.get(packed)
        if known is None:
            counts = counts_in(packed, len(self.parts))
            size = sum(counts)
            known = factorial(size) * self.total ** (self.shape.instances_max - size) if size else 0
            for count, part in zip(counts, self.parts, strict=True):
                known = known // factorial(count) * part**count
            self._terms[packed] = known
        return known


def demand_of(model: Model, weights: Mapping[str, int] | None = None) -> Demand:
    """The demand for a model's profiles. `weights`: {profile: how often it was asked for}, any positive scale; other
    models' profiles are passed over.

    Where none of the model's was seen: each profile alike but those with media engines, which are asked for by few.
    ValueError for a negative weight.
    """
    seen = [0 if weights is None else weights.get(profile, 0) for profile in model.profiles]
    if min(seen) < 0:
        raise ValueError(f"weights must not be negative: {weights}")
    if not any(seen):
        return _demand(model.shape, tuple(int(not cut.media) for cut in model.shape.cuts))
    return _demand(model.shape, rounded(seen, PARTS))


def rounded(weights: list[int], parts: int) -> tuple[int, ...]:
    """The weights in at most `parts` parts with the proportions kept as well as they can be (largest remainders, then the
    first); what is there keeps a part of its own, which may exceed `parts` by as much. Not all weights may be 0."""
    divisor = gcd(*weights)
    total = sum(weights)
    if total // divisor <= parts:
        return tuple(weight // divisor for weight in weights)
    whole = [weight * parts // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: (-(weights[index] * parts % total), index))
    for index in order[: parts - sum(whole)]:
        whole[index] += 1
    return tuple(max(count, int(weight > 0)) for count, weight in zip(whole, weights, strict=True))


@lru_cache(maxsize=DEMANDS_MAX)
def _demand(shape: MigGeometry, parts: tuple[int, ...]) -> Demand:
    return Demand(shape, parts)


#: Answers that are remembered at once: GPUs of one model and layout have the same.
GRANTS_MAX = 1 << 14

type Instances = tuple[Instance, ...]


class AllowedChange(IntEnum):
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


class InstanceGrant(NamedTuple):
    """A way to serve a request, with its figures. No part of it counts as done until an agent has reported it."""

    uuid: str
    instance: Instance
    change: AllowedChange
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
        return (self.change != AllowedChange.TAKE) + 2 * len(self.destroy)


def solid_room(model: Model, layout: Layout, change: AllowedChange) -> LayoutRoom:
    """Return the room that is taken under every decision: instances in use, and below RECUT the idle ones too."""
    return room_of(model, layout.busy if change == AllowedChange.RECUT else layout.instances)


def choose_start(gpu: MigGpu, profile: str, demand: Demand, change: AllowedChange) -> InstanceGrant | None:
    """Return the best way to serve the request on this GPU; None if there is none. `demand` must be of the model's shape.

    Under TAKE and ADD, an idle instance of the profile is taken before a new one is made: it can serve no other profile.
    Ties are then broken by the longest runway, by the longest runway under equal demand for all profiles (which covers
    profiles without recent requests), by the fewest destroyed instances, by an idle instance before a new one, and by the
    highest start, as the driver itself fills a GPU.
    """
    grant = _best(gpu.model.name, gpu.layout, profile, demand, change)
    return None if grant is None else grant._replace(uuid=gpu.uuid)


def choose_gpu(
    gpus: Iterable[MigGpu],
    profile: str,
    weights: dict[str, int] | None = None,
    change: AllowedChange = AllowedChange.RECUT,
) -> InstanceGrant | None:
    """The best way to serve the request on any of the GPUs; None where there is none.

    Under TAKE and ADD an idle instance before a new one, wherever it is. Then the GPU where fewest slices are stranded
    more, by the demand; then one in use before one that is idle, and that before a whole one: so a whole GPU is opened only where
    the others would strand more; then where the runway shrinks least; then the least effort; then the first of them.
    `weights` as for `demand_of`.
    """
    demands: dict[str, Demand] = {}
    best: tuple[tuple[int, int, int, int, int], str, InstanceGrant] | None = None
    for gpu in gpus:
        demand = demands.get(gpu.model.name)
        if demand is None:
            demand = demands[gpu.model.name] = demand_of(gpu.model, weights)
        grant = _best(gpu.model.name, gpu.layout, profile, demand, change)
        if grant is None:
            continue
        key = (
            int(change < AllowedChange.RECUT and grant.change != AllowedChange.TAKE),
            grant.stranded_more_milli,
            gpu.opening,
            grant.runway_before_milli - grant.runway_after_milli,
            grant.effort,
        )
        if best is None or key < best[0]:
            best = key, gpu.uuid, grant
    return None if best is None else best[2]._replace(uuid=best[1])


@lru_cache(maxsize=GRANTS_MAX)
def _best(name: str, layout: Layout, profile: str, demand: Demand, change: AllowedChange) -> InstanceGrant | None:
    """`choose_start` without the GPU's id: GPUs of one model and layout are served alike."""
    model = BY_NAME[name]
    index = model.cut_number(profile)
    if index is None:
        return None
    alike = demand_of(model)
    busy, solid = room_of(model, layout.busy), solid_room(model, layout, change)
    best: tuple[tuple[int, int, int, int, int], InstanceGrant] | None = None
    for instance, destroy, way in _ways(model, layout, profile, change):
        after = (busy if way == AllowedChange.TAKE else solid).add(model.shape, index, instance.start)
        taken = way == AllowedChange.TAKE and change < AllowedChange.RECUT
        left = solid if taken else after
        grant = InstanceGrant("", instance, way, destroy, *_figures(demand, solid), *_figures(demand, left))
        key = int(taken), demand.runway(after), alike.runway(after), -grant.effort, instance.start
        if best is None or key > best[0]:
            best = key, grant
    return None if best is None else best[1]


def _ways(
    model: Model, layout: Layout, profile: str, change: AllowedChange
) -> Iterator[tuple[Instance, Instances, AllowedChange]]:
    """Every legal way: the instance, what has to go for it, and the change that this is."""
    present = {instance.start for instance in layout.idle if instance.profile == profile}
    yield from ((Instance(profile, start), (), AllowedChange.TAKE) for start in sorted(present))
    if change == AllowedChange.TAKE:
        return
    for start in solid_room(model, layout, change).free_starts(model.shape, model.profiles.index(profile)):
        if start not in present:
            wanted = Instance(profile, start)
            destroy = in_the_way(model, layout, (wanted,))
            yield wanted, destroy, AllowedChange.RECUT if destroy else AllowedChange.ADD


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


def _figures(demand: Demand, room: LayoutRoom) -> tuple[int, int]:
    return demand.runway_milli(room), demand.stranded_milli(room)
