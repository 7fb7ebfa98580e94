"""The cheapest runs to ask when some lie on several nodes: branch and bound over who of those goes.

A run that is undecided counts at each of its nodes for a share of its cost only (a job of k units uses k nodes at most, so
shares of a k-th never count it for more than it costs). That makes nodes independent of each other: the cheapest spots for
such prices cost no more than any answer. Where their runs in full cost just as much, nothing is better below; else the
run that was counted shortest is decided upon, both ways.

The cheapest nodes together that take all units, in one domain: the smallest one among equals.

Each spot says what so many units cost there, going by itself. Where units are one to a node, the cheapest ones of a domain
are the first so many; tasks that share nodes are a knapsack, solved whole.
"""

from collections.abc import Mapping, Sequence
from math import lcm
from typing import NamedTuple

from fairlead_placer.cluster.capacity.topology_domains import LEVELS
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, several
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement.unit_matching import units_in
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.scheduling.preemption.candidates import VictimCandidate, VictimPrice
from fairlead_placer.scheduling.preemption.node_search import NodeVictims, SearchBudget, cheapest
from fairlead_placer.scheduling.preemption.what_if import NodeWhatIf
from fairlead_schemas.units.hardware import DOMAIN_LEVELS, domain_of


class UnitsOnNode(NamedTuple):
    """Units on offer at a node and their price."""

    units: int
    price: int


class DomainGroup(NamedTuple):
    """The nodes of one domain, by their places, and how small it is (0: the smallest)."""

    size: int
    name: str
    places: list[int]


class VictimAnswer(NamedTuple):
    """Runs that go (places among the candidates), and the places of the nodes that then take all units."""

    runs: frozenset[int]
    places: list[int]


class NodeSetChoice(NamedTuple):
    """Chosen nodes: the sum of their prices, and {place of a node: its units}."""

    price: int
    units: dict[int, int]


def groups_of(index: PoolIndex, ask: UnitRequest, nodes: Sequence[ClusterNode], units: int) -> list[DomainGroup]:
    """The domains that all units may lie in, the smallest first, then by name."""
    if units == 1 and not ask.level:
        return [DomainGroup(0, "", list(range(len(nodes))))]
    found: list[DomainGroup] = []
    for size, level in enumerate(_levels(index, ask)):
        members: dict[str, list[int]] = {}
        for place, node in enumerate(nodes):
            name = _domain(node, level)
            if name or not level:
                members.setdefault(name, []).append(place)
        found += [DomainGroup(size, name, members[name]) for name in sorted(members)]
    return found


def _domain(node: ClusterNode, level: str) -> str:
    if level == "node":
        return node.name
    return domain_of(node.inventory.labels, level) if level else ""


def _levels(index: PoolIndex, ask: UnitRequest) -> list[str]:
    """Return the domain levels to search, the smallest first; "" means the whole pool."""
    levels = ["node"] if ask.request.tasks else []
    levels += [level for level in LEVELS if index.domains.known(level)]
    if not ask.level:
        return [*levels, ""]
    return [level for level in levels if DOMAIN_LEVELS.index(level) <= DOMAIN_LEVELS.index(ask.level)]


def choose(
    groups: Sequence[DomainGroup], menus: Mapping[int, Sequence[UnitsOnNode]], units: int
) -> NodeSetChoice | None:
    """Return the cheapest nodes for `units`, all in one domain, or None. A node that can take no unit is not in
    `menus`. At equal price the earlier one wins."""
    best: NodeSetChoice | None = None
    for group in groups:
        able = [place for place in group.places if place in menus]
        if any(len(menus[place]) > 1 or menus[place][0].units > 1 for place in able):
            found = _fill(able, menus, units)
        else:
            found = _first(able, menus, units)
        if found is not None and (best is None or found.price < best.price):
            best = found
    return best


def _first(able: Sequence[int], menus: Mapping[int, Sequence[UnitsOnNode]], units: int) -> NodeSetChoice | None:
    if len(able) < units:
        return None
    order = sorted(able, key=lambda place: menus[place][0].price)[:units]
    return NodeSetChoice(sum(menus[place][0].price for place in order), dict.fromkeys(order, 1))


class _Filled(NamedTuple):
    """A sum of prices, the nodes used for it, and how: (place, units), and what was filled before."""

    price: int
    nodes: int
    last: tuple[int, int] | None
    before: "_Filled | None"


def _fill(able: Sequence[int], menus: Mapping[int, Sequence[UnitsOnNode]], units: int) -> NodeSetChoice | None:
    """Least price, then fewest nodes, for each number of units up to all of them, one node after the other."""
    best: dict[int, _Filled] = {0: _Filled(0, 0, None, None)}
    for place in able:
        for taken, filled in sorted(best.items(), reverse=True):
            for offered in menus[place]:
                total = min(units, taken + offered.units)
                price, nodes = filled.price + offered.price, filled.nodes + 1
                if taken < units and (total not in best or (price, nodes) < best[total][:2]):
                    best[total] = _Filled(price, nodes, (place, total - taken), filled)
    filled = best.get(units)
    if filled is None:
        return None
    price, chosen = filled.price, dict[int, int]()
    while filled is not None and filled.last is not None:
        chosen[filled.last[0]] = filled.last[1]
        filled = filled.before
    return NodeSetChoice(price, chosen)


#: Decisions on runs that lie on several nodes; 7 of those have 255.
BRANCHES_MAX = 1 << 8


class _Relaxed(NamedTuple):
    """A sum that no answer is below, and the spots for it, with the runs that are bought at each."""

    price: int
    chosen: NodeSetChoice
    bought: dict[int, NodeVictims]


class VictimSearch:
    """Search for the cheapest runs and nodes. `rooms` take the places up to their number, `free` maps further places to their
    units.
    """

    def __init__(
        self,
        ask: UnitRequest,
        units: int,
        candidates: Sequence[VictimCandidate],
        rooms: Sequence[NodeWhatIf],
        free: dict[int, int],
        groups: Sequence[DomainGroup],
        patience: SearchBudget,
    ) -> None:
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
        self._known: dict[tuple[int, frozenset[int], frozenset[int]], list[tuple[UnitsOnNode, NodeVictims]]] = {}
        self._left: dict[tuple[int, frozenset[int]], int] = {}
        self._best: tuple[int, frozenset[int]] | None = None
        self._branches = BRANCHES_MAX

    def find(self) -> VictimAnswer | None:
        """The cheapest answer that was found, minimal; None where there is none."""
        self._branch(frozenset(), frozenset())
        if self._best is None:
            return None
        runs = self._minimal(self._best[1])
        places = self._places(runs)
        assert places is not None
        return VictimAnswer(runs, places)

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
        menus: dict[int, Sequence[UnitsOnNode]] = dict(self.free)
        for place in range(len(self.rooms)):
            offered = self._offered(place, gone, spared)
            if offered:
                menus[place] = [each[0] for each in offered]
        chosen = choose(self.groups, menus, self.units)
        if chosen is None:
            return None
        bought: dict[int, NodeVictims] = {}
        for place, units in chosen.units.items():
            if place < len(self.rooms):
                offered = self._offered(place, gone, spared)
                bought[place] = next(each[1] for each in offered if each[0].units >= units)
        return _Relaxed(chosen.price + sum(self.costs[at] for at in gone), chosen, bought)

    def _offered(
        self, place: int, gone: frozenset[int], spared: frozenset[int]
    ) -> list[tuple[UnitsOnNode, NodeVictims]]:
        """Return the price of units in a room, for each number of units that it can take, rising."""
        here = self.here[place]
        key = (place, gone & here, spared & here)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._buy(self.rooms[place], *key)
        return found

    def _buy(
        self, room: NodeWhatIf, place: int, gone: frozenset[int], spared: frozenset[int]
    ) -> list[tuple[UnitsOnNode, NodeVictims]]:
        left = room.without(gone)
        prices = [
            VictimPrice(tenant.at, tenant.part, self.costs[tenant.at] // self.shares[tenant.at])
            for tenant in room.tenants
            if tenant.at not in gone and tenant.at not in spared
        ]
        found: list[tuple[UnitsOnNode, NodeVictims]] = []
        for units, ask in enumerate(self._asks, 1):
            bought = cheapest(left, ask, prices, self.patience)
            if bought is None:
                break
            found.append((UnitsOnNode(units, bought.price), bought))
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
        menus: dict[int, Sequence[UnitsOnNode]] = dict(self.free)
        for place, room in enumerate(self.rooms):
            units = self._units(place, room, runs & self.here[place])
            if units:
                menus[place] = _menu(units)
        chosen = choose(self.groups, menus, self.units)
        return None if chosen is None else list(chosen.units)

    def _units(self, place: int, room: NodeWhatIf, gone: frozenset[int]) -> int:
        """Return the number of units that the room takes when these runs are gone."""
        units = self._left.get((place, gone))
        if units is None:
            units = self._left[place, gone] = units_in(room.without(gone), self.ask, self.units)
        return units


def _menu(units: int) -> list[UnitsOnNode]:
    """Return a menu of all these units for free."""
    return [UnitsOnNode(units, 0)]
