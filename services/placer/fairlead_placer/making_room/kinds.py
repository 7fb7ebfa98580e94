"""A hole for several kinds of units at once: from all candidates, the dearest are spared as long as the rest will do.

Not the cheapest of all sets, but a minimal one: without any one of its runs the job would not fit.
"""

from collections.abc import Sequence

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.seating import least_units, seated, units_in
from fairlead_placer.making_room.candidates import Candidate
from fairlead_placer.making_room.rooms import Room
from fairlead_placer.making_room.spots import Answer, Group


def search_kinds(
    asks: Sequence[Ask], candidates: Sequence[Candidate], rooms: Sequence[Room], free: Sequence[Left],
    groups: Sequence[Group],
) -> Answer | None:  # fmt: skip
    """A minimal set, and the first domain's nodes that then take all units; None where there is none."""
    kinds = _Kinds(asks, rooms, free)
    runs = frozenset(range(len(candidates)))
    able = [group for group in groups if kinds.places(runs, [group]) is not None]
    for at in sorted(runs, key=lambda at: (-candidates[at].cost, -at)):
        if kinds.places(runs - {at}, able) is not None:
            runs -= {at}
    places = kinds.places(runs, able)
    return None if places is None else Answer(runs, places)


class _Kinds:
    """Rooms have the places up to their number, further nodes those behind."""

    def __init__(self, asks: Sequence[Ask], rooms: Sequence[Room], free: Sequence[Left]) -> None:
        self.asks, self.rooms, self.free = asks, rooms, free
        self.wanted = least_units(asks)
        self.tasks = asks[0].request.tasks
        self.here = [frozenset(tenant.at for tenant in room.tenants) for room in rooms]
        self._known: dict[tuple[int, int, frozenset[int]], int] = {}

    def places(self, gone: frozenset[int], groups: Sequence[Group]) -> list[int] | None:
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
