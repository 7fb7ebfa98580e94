"""Runs that must yield so that one job fits, and the nodes that are then kept for it. For several kinds of units at
once, the dearest candidates are spared as long as the rest will do.

Not the cheapest of all sets, but a minimal one: without any one of its runs the job would not fit.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, Offer
from fairlead_placer.cluster.placement.unit_matching import least_units, seated, units_in
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.scheduling.preemption.candidates import VictimCandidate, may_yield
from fairlead_placer.scheduling.preemption.node_search import SearchBudget
from fairlead_placer.scheduling.preemption.search import DomainGroup, VictimAnswer, VictimSearch, groups_of
from fairlead_placer.scheduling.preemption.what_if import NodeWhatIf, free_beside, what_if_nodes
from fairlead_schemas.wire.events import Victim


def search_kinds(
    asks: Sequence[UnitRequest],
    candidates: Sequence[VictimCandidate],
    rooms: Sequence[NodeWhatIf],
    free: Sequence[FreeResources],
    groups: Sequence[DomainGroup],
) -> VictimAnswer | None:
    """A minimal set, and the first domain's nodes that then take all units; None where there is none."""
    kinds = _Kinds(asks, rooms, free)
    runs = frozenset(range(len(candidates)))
    able = [group for group in groups if kinds.places(runs, [group]) is not None]
    for at in sorted(runs, key=lambda at: (-candidates[at].cost, -at)):
        if kinds.places(runs - {at}, able) is not None:
            runs -= {at}
    places = kinds.places(runs, able)
    return None if places is None else VictimAnswer(runs, places)


class _Kinds:
    """Rooms have the places up to their number, further nodes those behind."""

    def __init__(self, asks: Sequence[UnitRequest], rooms: Sequence[NodeWhatIf], free: Sequence[FreeResources]) -> None:
        self.asks, self.rooms, self.free = asks, rooms, free
        self.wanted = least_units(asks)
        self.tasks = asks[0].request.tasks
        self.here = [frozenset(tenant.at for tenant in room.tenants) for room in rooms]
        self._known: dict[tuple[int, int, frozenset[int]], int] = {}

    def places(self, gone: frozenset[int], groups: Sequence[DomainGroup]) -> list[int] | None:
        """The nodes of the first domain that takes all units when just these runs are gone."""
        for group in groups:
            found = seated(group.places, self.wanted, lambda kind, place: self._takes(kind, place, gone), self.tasks)
            if found is not None:
                return [place for own in found for place in own]
        return None

    def _takes(self, kind: int, place: int, gone: frozenset[int]) -> int:
        here = gone & self.here[place] if place < len(self.rooms) else frozenset[int]()
        key = kind, place, here
        units = self._known.get(key)
        if units is None:
            room = place < len(self.rooms)
            left = self.rooms[place].without(here) if room else self.free[place - len(self.rooms)]
            units = self._known[key] = units_in(left, self.asks[kind], self.wanted[kind])
        return units


class VictimSet(NamedTuple):
    """Runs that must yield, in the order of the request, and the nodes on which the job then fits."""

    victims: list[Victim]
    nodes: list[str]


def find_victims(state: ClusterState, offer: Offer, victims: Sequence[Victim], now_ns: int = 0) -> VictimSet | None:
    """Return the runs that must yield to an offer that fits nowhere; None if all of them together would not make room. An
    elastic job gets its least size to start with. With `now_ns` 0, windows ahead are disregarded.
    """
    candidates, beside = may_yield(state, victims), barred(state, offer.job, now_ns)
    rooms = what_if_nodes(state, offer, victims, candidates, beside)
    # The fullest first, the free before those that others leave: so they are preferred where costs are equal.
    rooms.sort(key=lambda room: (room.left.free_milli, room.node.name))
    free = sorted(free_beside(state, offer, rooms, beside), key=lambda node: (node.left.free_milli, node.name))
    found = _search(state, offer, candidates, rooms, free)
    if found is None:
        return None
    nodes = [room.node.name for room in rooms] + [node.name for node in free]
    return VictimSet([candidates[at].victim for at in sorted(found.runs)], [nodes[place] for place in found.places])


def _search(
    state: ClusterState,
    offer: Offer,
    candidates: Sequence[VictimCandidate],
    rooms: Sequence[NodeWhatIf],
    free: Sequence[ClusterNode],
) -> VictimAnswer | None:
    asks, index = unit_requests(offer.request), state.pools.of(offer.request)
    units = least_units(asks)
    groups = groups_of(index, asks[0], [*(room.node for room in rooms), *free], sum(units))
    if offer.request.also:
        return search_kinds(asks, candidates, rooms, [node.left for node in free], groups)
    held = {len(rooms) + place: units_in(node.left, asks[0], units[0]) for place, node in enumerate(free)}
    return VictimSearch(asks[0], units[0], candidates, rooms, held, groups, SearchBudget()).find()
