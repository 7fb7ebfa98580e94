"""The hole for one job: who must yield, in the order of the queue, and which nodes are then kept for it."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.capacity.asks import asks_of
from fairlead_placer.capacity.seating import least_units, units_in
from fairlead_placer.entities import Node, Offer
from fairlead_placer.making_room.buying import Patience
from fairlead_placer.making_room.candidates import Candidate, may_yield
from fairlead_placer.making_room.kinds import search_kinds
from fairlead_placer.making_room.rooms import Room, free_beside, rooms_for
from fairlead_placer.making_room.search import Search
from fairlead_placer.making_room.spots import Answer, groups_of
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State
from fairlead_schemas.wire.events import Victim


class Hole(NamedTuple):
    """Runs that must yield, in the order of the request, and the nodes on which the job then fits."""

    victims: list[Victim]
    nodes: list[str]


def find(state: State, offer: Offer, victims: Sequence[Victim], now_ns: int = 0) -> Hole | None:
    """Return the runs that must yield to an offer that fits nowhere; None if all of them together would not make room. An
    elastic job gets its least size to start with. With `now_ns` 0, windows ahead are disregarded.
    """
    candidates, beside = may_yield(state, victims), barred(state, offer.job, now_ns)
    rooms = rooms_for(state, offer, victims, candidates, beside)
    # The fullest first, the free before those that others leave: so they are preferred where costs are equal.
    rooms.sort(key=lambda room: (room.left.free_milli, room.node.name))
    free = sorted(free_beside(state, offer, rooms, beside), key=lambda node: (node.left.free_milli, node.name))
    found = _search(state, offer, candidates, rooms, free)
    if found is None:
        return None
    nodes = [room.node.name for room in rooms] + [node.name for node in free]
    return Hole([candidates[at].victim for at in sorted(found.runs)], [nodes[place] for place in found.places])


def _search(
    state: State, offer: Offer, candidates: Sequence[Candidate], rooms: Sequence[Room], free: Sequence[Node]
) -> Answer | None:
    asks, index = asks_of(offer.request), state.pools.of(offer.request)
    units = least_units(asks)
    groups = groups_of(index, asks[0], [*(room.node for room in rooms), *free], sum(units))
    if offer.request.also:
        return search_kinds(asks, candidates, rooms, [node.left for node in free], groups)
    held = {len(rooms) + place: units_in(node.left, asks[0], units[0]) for place, node in enumerate(free)}
    return Search(asks[0], units[0], candidates, rooms, held, groups, Patience()).find()
