"""The cheapest nodes together that take all units, in one domain: the smallest one among equals.

Each spot says what so many units cost there, going by itself. Where units are one to a node, the cheapest ones of a domain
are the first so many; tasks that share nodes are a knapsack, solved whole.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.domains import LEVELS
from fairlead_placer.capacity.index import Index
from fairlead_placer.entities import Node
from fairlead_schemas.units.hardware import DOMAIN_LEVELS, domain_of


class Offered(NamedTuple):
    """Units on offer at a node and their price."""

    units: int
    price: int


class Group(NamedTuple):
    """The nodes of one domain, by their places, and how small it is (0: the smallest)."""

    size: int
    name: str
    places: list[int]


class Answer(NamedTuple):
    """Runs that go (places among the candidates), and the places of the nodes that then take all units."""

    runs: frozenset[int]
    places: list[int]


class Chosen(NamedTuple):
    """The sum of the prices, and {place of a node: its units}."""

    price: int
    units: dict[int, int]


def groups_of(index: Index, ask: Ask, nodes: Sequence[Node], units: int) -> list[Group]:
    """The domains that all units may lie in, the smallest first, then by name."""
    if units == 1 and not ask.level:
        return [Group(0, "", list(range(len(nodes))))]
    found: list[Group] = []
    for size, level in enumerate(_levels(index, ask)):
        members: dict[str, list[int]] = {}
        for place, node in enumerate(nodes):
            name = _domain(node, level)
            if name or not level:
                members.setdefault(name, []).append(place)
        found += [Group(size, name, members[name]) for name in sorted(members)]
    return found


def _domain(node: Node, level: str) -> str:
    if level == "node":
        return node.name
    return domain_of(node.inventory.labels, level) if level else ""


def _levels(index: Index, ask: Ask) -> list[str]:
    """Return the domain levels to search, the smallest first; "" means the whole pool."""
    levels = ["node"] if ask.request.tasks else []
    levels += [level for level in LEVELS if index.domains.known(level)]
    if not ask.level:
        return [*levels, ""]
    return [level for level in levels if DOMAIN_LEVELS.index(level) <= DOMAIN_LEVELS.index(ask.level)]


def choose(groups: Sequence[Group], menus: Mapping[int, Sequence[Offered]], units: int) -> Chosen | None:
    """The cheapest places for so many units; None where no domain takes them. `menus` leaves out who takes none; the
    first places are preferred among equals."""
    best: Chosen | None = None
    for group in groups:
        able = [place for place in group.places if place in menus]
        if any(len(menus[place]) > 1 or menus[place][0].units > 1 for place in able):
            found = _fill(able, menus, units)
        else:
            found = _first(able, menus, units)
        if found is not None and (best is None or found.price < best.price):
            best = found
    return best


def _first(able: Sequence[int], menus: Mapping[int, Sequence[Offered]], units: int) -> Chosen | None:
    if len(able) < units:
        return None
    order = sorted(able, key=lambda place: menus[place][0].price)[:units]
    return Chosen(sum(menus[place][0].price for place in order), dict.fromkeys(order, 1))


class _Filled(NamedTuple):
    """A sum of prices, the nodes used for it, and how: (place, units), and what was filled before."""

    price: int
    nodes: int
    last: tuple[int, int] | None
    before: "_Filled | None"


def _fill(able: Sequence[int], menus: Mapping[int, Sequence[Offered]], units: int) -> Chosen | None:
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
    return Chosen(price, chosen)
