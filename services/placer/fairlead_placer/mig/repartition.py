"""Repartitioning of a GPU for the waiting work: instances to destroy, instances to create, and the benefit. The module
changes nothing.

Only idle instances go. All are destroyed before the first is created: every step then leaves part of the old layout or
part of the new one, and parts of legal layouts are legal.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from fairlead_placer.mig.instance_choice import Demand, MigGpu, demand_of, in_the_way
from fairlead_placer.mig.layouts import Instance, Layout, LayoutRoom, counts_in, layouts_of, remains, room_of, unit
from fairlead_placer.mig.models import Model

#: Requests that are looked at, from the first in turn: more than any GPU can serve many times over.
WAITING_MAX = 256


class RepartitionStep(NamedTuple):
    """A single action for an agent."""

    create: bool  # False: destroy
    instance: Instance


class RepartitionPlan(NamedTuple):
    """New layout of a GPU, with the reason in numbers."""

    uuid: str
    destroy: tuple[Instance, ...]  # idle ones, by start
    create: tuple[Instance, ...]  # by start
    #: Positions in `waiting` of requests that an idle instance serves now, and that the plan leaves to them.
    served_before: tuple[int, ...]
    #: The same after the plan, those before included.
    served_after: tuple[int, ...]
    #: When all that can be served runs: thousandths of a request, thousandths of a slice.
    runway_after_milli: int
    stranded_after_milli: int

    @property
    def steps(self) -> tuple[RepartitionStep, ...]:
        """In an order that is legal after every step."""
        return (
            *(RepartitionStep(False, gone) for gone in self.destroy),
            *(RepartitionStep(True, made) for made in self.create),
        )

    @property
    def reason(self) -> dict[str, int]:
        """Reason in numbers; thousandths as above."""
        return {
            "created": len(self.create),
            "destroyed": len(self.destroy),
            "runway_after_milli": self.runway_after_milli,
            "served_after": len(self.served_after),
            "served_before": len(self.served_before),
            "stranded_after_milli": self.stranded_after_milli,
        }


class _Kept(NamedTuple):
    """Idle instances that serve requests as they are, and new instances possible in the rest."""

    instances: tuple[Instance, ...]
    #: Positions in `waiting` of requests that get new instances, and these as a set of `layouts.py`.
    others: tuple[int, ...]
    packed: int


class _Way(NamedTuple):
    destroy: tuple[Instance, ...]
    create: tuple[Instance, ...]  # largest first
    #: Room that remains, with instances in use and instances that serve a request as they are.
    room: LayoutRoom


def plan_for(gpu: MigGpu, waiting: Sequence[str], demand: Demand | None = None) -> RepartitionPlan | None:
    """Return the plan to repartition the free part of the GPU for the waiting requests for instances, in their order. The
    result is None if the plan would serve no request beyond those that the idle instances serve as they are.

    `waiting`: profiles, the first in turn first (WAITING_MAX of them); profiles that the model does not have are skipped. A
    request that an idle instance serves keeps that instance, so a plan takes no instance away. Each other request in turn
    is served if it fits together with those before it: exactly, over every layout. Then the fewest instances are destroyed,
    then the longest runway is left by `demand` (None: all profiles alike), then by all alike, then the highest starts.
    """
    demand = demand_of(gpu.model) if demand is None else demand
    waiting = waiting[:WAITING_MAX]
    before = _served_as_is(gpu.layout, waiting)
    choices = list(_keeping(gpu, waiting, before))
    others = max((choice.others for choice in choices), key=_precedence)
    if not others:
        return None
    alike = demand_of(gpu.model)
    way = max(
        (way for choice in choices if choice.others == others for way in _ways(gpu, choice)),
        key=lambda way: (-len(way.destroy), demand.runway(way.room), alike.runway(way.room), way.create),
    )
    return RepartitionPlan(
        uuid=gpu.uuid,
        destroy=way.destroy,
        create=tuple(sorted(way.create, key=lambda made: made.start)),
        served_before=before,
        served_after=tuple(sorted(before + others)),
        runway_after_milli=demand.runway_milli(way.room),
        stranded_after_milli=demand.stranded_milli(way.room),
    )


def _served_as_is(layout: Layout, waiting: Sequence[str]) -> tuple[int, ...]:
    """Positions of those whom an idle instance serves as it is, each instance one."""
    left = Counter(instance.profile for instance in layout.idle)
    served: list[int] = []
    for position, profile in enumerate(waiting):
        if left[profile] > 0:
            left[profile] -= 1
            served.append(position)
    return tuple(served)


def _keeping(gpu: MigGpu, waiting: Sequence[str], before: tuple[int, ...]) -> Iterator[_Kept]:
    """Every choice of the idle instances that serve those of `before`, with who else could then be served."""
    needed = Counter(waiting[position] for position in before)
    alike = [sorted(idle for idle in gpu.layout.idle if idle.profile == profile) for profile in needed]
    others = sorted(set(range(len(waiting))) - set(before))
    for chosen in product(*(combinations(found, count) for found, count in zip(alike, needed.values(), strict=True))):
        instances = tuple(instance for group in chosen for instance in group)
        room = room_of(gpu.model, gpu.layout.busy + instances)
        yield _Kept(instances, *_served_anew(gpu.model, room, waiting, others))


def _served_anew(
    model: Model, room: LayoutRoom, waiting: Sequence[str], others: list[int]
) -> tuple[tuple[int, ...], int]:
    """Return the positions that fit together with those before them, and their set. Sets that fit hold their own parts, so the
    greedy choice is exact here.
    """
    sets, packed, served = remains(model.shape).sets(room), 0, list[int]()
    for position in others:
        index = model.cut_number(waiting[position])
        if index is not None and packed + unit(index) in sets:
            packed += unit(index)
            served.append(position)
    return tuple(served), packed


def _precedence(served: tuple[int, ...]) -> tuple[int, ...]:
    """Rises with who is served: the first position that differs decides, and one more is better than none."""
    return tuple(-position for position in served)


def _ways(gpu: MigGpu, kept: _Kept) -> Iterator[_Way]:
    """Yield every way to place the new instances next to the kept ones."""
    solid = gpu.layout.busy + kept.instances
    layout = Layout(solid, tuple(idle for idle in gpu.layout.idle if idle not in kept.instances))
    counts = counts_in(kept.packed, len(gpu.model.profiles))
    for created in layouts_of(gpu.model, counts, room_of(gpu.model, solid)):
        yield _Way(in_the_way(gpu.model, layout, created), created, room_of(gpu.model, solid + created))
