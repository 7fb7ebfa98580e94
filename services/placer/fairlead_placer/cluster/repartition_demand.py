"""Jobs that wait for room which repartitioned GPUs could give: open offers without a place, in their order.

Only jobs with one kind of unit and no required GPU links are considered. A job with a plan in progress waits for that
plan.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import OfferClass
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire.resources import Request

#: Offers that are looked at, the first in the order.
WAITING_OFFERS_MAX = 256


class WaitingOffer(NamedTuple):
    """An offer without a place."""

    job: str
    cause: str
    group: OfferClass
    ask: UnitRequest

    @property
    def request(self) -> Request:
        """Request of the offer's class."""
        return self.group.request


def may_gain(state: ClusterState, request: Request) -> bool:
    """Return True if the request could be served by repartitioning GPUs, or by making one whole."""
    index = state.pools.of(request)
    if not index.repartitions or not is_simple(request):
        return False
    return bool(request.profile) or (index.switches and not request.replicas)


def is_simple(request: Request) -> bool:
    """Return True if GPUs are repartitioned for such requests: plans ignore links and allow one kind of units."""
    return request.gpu_milli > 0 and not request.also and not unit_requests(request)[0].inside.require


def waiting_offers(state: ClusterState) -> list[WaitingOffer]:
    """Return the waiting offers that could gain, in the order of the offers, at most WANTS_MAX."""
    heads: list[tuple[int, str, OfferClass]] = []
    for group in state.classes.values():
        if may_gain(state, group.request):
            heads += [(rank, job, group) for rank, job in group.offers[:WAITING_OFFERS_MAX]]
    served = {job for plan in state.layouts.values() for job in plan.jobs}
    heads.sort(key=lambda head: head[:2])
    return [
        WaitingOffer(job, state.offers[job].cause, group, unit_requests(group.request)[0])
        for _, job, group in heads[:WAITING_OFFERS_MAX]
        if job not in served
    ]


def demand_seen(state: ClusterState, request: Request) -> dict[str, int]:
    """{profile: how often instances of it were asked for} in the request's pool, as learned from the log."""
    found = Counter[str]()
    for each, weight in state.work_of(request).weights.items():
        for kind in each.kinds:
            if kind.profile:
                found[kind.profile] += weight * kind.nodes * kind.gpu_parts
    return dict(found)


def of_pool(found: list[WaitingOffer], want: WaitingOffer) -> Iterator[WaitingOffer]:
    """The want, and those after it that wait for single instances in the same pool."""
    yield want
    after = found.index(want) + 1
    for each in found[after:]:
        request = each.request
        if request.pool == want.request.pool and request.profile and request.nodes == 1 and request.gpu_parts == 1:
            yield each
