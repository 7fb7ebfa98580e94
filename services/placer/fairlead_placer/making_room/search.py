"""The cheapest runs to ask when some lie on several nodes: branch and bound over who of those goes.

A run that is undecided counts at each of its nodes for a share of its cost only (a job of k units uses k nodes at most, so
shares of a k-th never count it for more than it costs). That makes nodes independent of each other: the cheapest spots for
such prices cost no more than any answer. Where their runs in full cost just as much, nothing is better below; else the
run that was counted shortest is decided upon, both ways.
"""

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask, several
from fairlead_placer.capacity.seating import units_in
from fairlead_placer.making_room.buying import Bought, Patience, cheapest
from fairlead_placer.making_room.candidates import Candidate
from fairlead_placer.making_room.prices import Price
from fairlead_placer.making_room.rooms import Room
from fairlead_placer.making_room.spots import Answer, Chosen, Group, Offered, choose

#: Decisions on runs that lie on several nodes; 7 of those have 255.
BRANCHES_MAX = 1 << 8


class _Relaxed(NamedTuple):
    """A sum that no answer is below, and the spots for it, with the runs that are bought at each."""

    price: int
    chosen: Chosen
    bought: dict[int, Bought]


class Search:
    """Search for the cheapest runs and nodes. `rooms` take the places up to their number, `free` maps further places to their
    units.
    """

    def __init__(
        self, ask: Ask, units: int, candidates: Sequence[Candidate], rooms: Sequence[Room], free: dict[int, int],
        groups: Sequence[Group], patience: Patience,
    ) -> None:  # fmt: skip
        self.ask, self.units = ask, units
        self.rooms, self.groups, self.patience = rooms, groups, patience
        self.free = {place: _menu(units_) for place, units_ in free.items()}
        self.here = [frozenset(tenant.at for tenant in room.tenants) for room in rooms]
        lying = [0] * len(candidates)
        for room in rooms:
            for tenant in room.tenants:
                lying[tenant.at] += 1
        #: Most nodes at which each counts at once.
        self.shares = [max(1, min(count, units)) for count in lying]
        scale = lcm(*self.shares) if self.shares else 1
        self.costs = [scale * candidate.cost for candidate in candidates]
        self._asks = [ask if n == 1 else several(ask, n) for n in range(1, units + 1)] if ask.request.tasks else [ask]
        self._known: dict[tuple[int, frozenset[int], frozenset[int]], list[tuple[Offered, Bought]]] = {}
        self._left: dict[tuple[int, frozenset[int]], int] = {}
        self._best: tuple[int, frozenset[int]] | None = None
        self._branches = BRANCHES_MAX

    def find(self) -> Answer | None:
        """The cheapest answer that was found, minimal; None where there is none."""
        self._branch(frozenset(), frozenset())
        if self._best is None:
            return None
        runs = self._minimal(self._best[1])
        places = self._places(runs)
        assert places is not None
        return Answer(runs, places)

    def _branch(self, gone: frozenset[int], spared: frozenset[int]) -> None:
        self._branches -= 1
        self.patience.left -= len(self.rooms) + len(self.free)
        relaxed = self._relax(gone, spared)
        if relaxed is None or (self._best is not None and relaxed.price >= self._best[0]):
            return
        counted = dict.fromkeys(gone, 0)
        for place in relaxed.chosen.units:
            for at in relaxed.bought[place].runs if place in relaxed.bought else ():
                counted[at] = counted.get(at, 0) + (self.costs[at] // self.shares[at] if at not in gone else 0)
        self._note(frozenset(counted))
        short = [(counted[at] - self.costs[at], at) for at in counted if at not in gone]
        shortest = min(short, default=(0, -1))
        if shortest[0] == 0 or self._branches < 0 or self.patience.left < 0:
            return
        self._branch(gone | {shortest[1]}, spared)
        self._branch(gone, spared | {shortest[1]})

    def _note(self, runs: frozenset[int]) -> None:
        cost = sum(self.costs[at] for at in runs)
        if self._best is None or cost < self._best[0]:
            self._best = cost, runs

    def _relax(self, gone: frozenset[int], spared: frozenset[int]) -> _Relaxed | None:
        menus: dict[int, Sequence[Offered]] = dict(self.free)
        for place in range(len(self.rooms)):
            offered = self._offered(place, gone, spared)
            if offered:
                menus[place] = [each[0] for each in offered]
        chosen = choose(self.groups, menus, self.units)
        if chosen is None:
            return None
        bought: dict[int, Bought] = {}
        for place, units in chosen.units.items():
            if place < len(self.rooms):
                offered = self._offered(place, gone, spared)
                bought[place] = next(each[1] for each in offered if each[0].units >= units)
        return _Relaxed(chosen.price + sum(self.costs[at] for at in gone), chosen, bought)

    def _offered(self, place: int, gone: frozenset[int], spared: frozenset[int]) -> list[tuple[Offered, Bought]]:
        """Return the price of units in a room, for each number of units that it can take, rising."""
        here = self.here[place]
        key = (place, gone & here, spared & here)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._buy(self.rooms[place], *key)
        return found

    def _buy(
        self, room: Room, place: int, gone: frozenset[int], spared: frozenset[int]
    ) -> list[tuple[Offered, Bought]]:
        left = room.without(gone)
        prices = [
            Price(tenant.at, tenant.part, self.costs[tenant.at] // self.shares[tenant.at])
            for tenant in room.tenants
            if tenant.at not in gone and tenant.at not in spared
        ]
        found: list[tuple[Offered, Bought]] = []
        for units, ask in enumerate(self._asks, 1):
            bought = cheapest(left, ask, prices, self.patience)
            if bought is None:
                break
            found.append((Offered(units, bought.price), bought))
        return found

    # ---------------------------------------------------------------------------- minimal

    def _minimal(self, runs: frozenset[int]) -> frozenset[int]:
        """Without those that need not go, the dearest first."""
        for at in sorted(runs, key=lambda at: (-self.costs[at], -at)):
            if self._places(runs - {at}) is not None:
                runs -= {at}
        return runs

    def _places(self, runs: frozenset[int]) -> list[int] | None:
        """Return the places of the units if exactly these runs are gone; None if the units do not fit."""
        menus: dict[int, Sequence[Offered]] = dict(self.free)
        for place, room in enumerate(self.rooms):
            units = self._units(place, room, runs & self.here[place])
            if units:
                menus[place] = _menu(units)
        chosen = choose(self.groups, menus, self.units)
        return None if chosen is None else list(chosen.units)

    def _units(self, place: int, room: Room, gone: frozenset[int]) -> int:
        """Return the number of units that the room takes when these runs are gone."""
        units = self._left.get((place, gone))
        if units is None:
            units = self._left[place, gone] = units_in(room.without(gone), self.ask, self.units)
        return units


def _menu(units: int) -> list[Offered]:
    """Return a menu of all these units for free."""
    return [Offered(units, 0)]
