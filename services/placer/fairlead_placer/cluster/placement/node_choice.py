"""The best node of a pool for one unit: the cheapest row, in it the best set of GPUs, then the first name; and kind of a
gang's units: which nodes take how many of it, and at what cost.

Exact: a unit that fits somewhere finds a place. What a row's columns do not tell (links, NUMA nodes, memory of shares) is
looked at in the nodes of the row, and where none of them does, in the next row.

Shortfalls of a gang are reported here too.

On which nodes of a domain a gang's units go: smaller domains are filled one after the other, so that as few as can be
are touched; inside the smallest, the cheapest nodes.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat, seat_several
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, several
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.costs import Ranked
from fairlead_placer.packing.moves import NEVER
from fairlead_placer.packing.policy import Arrivals, Ints
from fairlead_schemas.wire.resources import Request

NOBODY: frozenset[str] = frozenset()


class NodeChoice(msgspec.Struct, frozen=True):
    """A node, and where in it."""

    node: ClusterNode
    ask: UnitRequest
    seat: NodeAllocation
    #: What the choice costs, in thousandths of a GPU: what becomes unusable, and what is scarce of it.
    cost: tuple[int, int]
    tasks: int = 1


def best(
    index: PoolIndex, ask: UnitRequest, work: Arrivals[Request], avoided: Collection[str] = NOBODY
) -> NodeChoice | None:
    """The best node for one unit, none of the avoided ones; None where it fits nowhere now."""
    costs, line = index.line(ask, work)
    for alike in costs.ranked(line):
        for _, _, row, choice in alike if len(alike) == 1 else _by_name(index, alike):
            found = _in_row(index, row, ask, line.move.rest(choice), avoided)
            if found is not None:
                return NodeChoice(found[0], ask, found[1], costs.parts(line, choice))
    return None


def _by_name(index: PoolIndex, alike: list[Ranked]) -> list[Ranked]:
    """Sort rows of equal cost by the name of their first node."""
    return sorted(alike, key=lambda each: min(names[0] for names in index.inhabitants[each[2]].values()))


def _in_row(
    index: PoolIndex, row: int, ask: UnitRequest, rest: int, avoided: Collection[str]
) -> tuple[ClusterNode, NodeAllocation] | None:
    first = _first(index, row, ask)
    if first and first not in avoided:
        node = index.members[first]
        found = seat(node.left, ask, rest)
        if isinstance(found, NodeAllocation):
            return node, found
    for _, names in ranked(index, row, ask):
        for name in names:
            if name != first and name not in avoided:
                node = index.members[name]
                found = seat(node.left, ask, rest)
                if isinstance(found, NodeAllocation):
                    return node, found
                if found == "free_mig":  # all of a row have the same instances to give
                    return None
    return None


def _first(index: PoolIndex, row: int, ask: UnitRequest) -> str:
    """The first name that `ranked` says; "" where it says none."""
    masks = index.inhabitants[row]
    if len(masks) == 1:
        return next(iter(masks.values()))[0]
    links = _links(index, row, ask)
    if links is None:
        return min([names[0] for names in masks.values()])
    best, first = -1, ""
    for mask, names in masks.items():
        score = links[mask] if mask in links else _learn_links(index, row, ask, links, mask)
        if score > best or (score == best >= 0 and names[0] < first):
            best, first = score, names[0]
    return first


def ranked(index: PoolIndex, row: int, ask: UnitRequest) -> list[tuple[int, list[str]]]:
    """(links given up, names) of the row's nodes by their free GPUs, best links first, then first names; those left out whose
    free GPUs are not so connected."""
    masks = index.inhabitants[row]
    if len(masks) == 1:
        return [(0, next(iter(masks.values())))]
    links = _links(index, row, ask)
    if links is None:
        return sorted(((0, names) for names in masks.values()), key=_by_link)
    found: list[tuple[int, list[str]]] = []
    for mask, names in masks.items():
        score = links.get(mask)
        if score is None:
            score = _learn_links(index, row, ask, links, mask)
        if score >= 0:
            found.append((-score, names))
    return sorted(found, key=_by_link)


def _by_link(each: tuple[int, list[str]]) -> tuple[int, str]:
    return each[0], each[1][0]


def _links(index: PoolIndex, row: int, ask: UnitRequest) -> dict[int, int] | None:
    """Return the known link scores that the ask gets from the free GPUs of such nodes; None where links do not matter."""
    if ask.gpus < 2 or not ask.whole:
        return None
    build = index.builds[index.rows.keys[row].build]
    return ask.links(build.number) if build.telling and not build.single else None  # instances are not linked


def _learn_links(index: PoolIndex, row: int, ask: UnitRequest, links: dict[int, int], mask: int) -> int:
    """The score of one mask of free GPUs; -1 where so many are not so connected."""
    build = index.builds[index.rows.keys[row].build]
    choices = build.inside.choices
    chosen = choices.choose(mask & ask.verdict(build).suits, ask.gpus, ask.inside.require)
    links[mask] = score = choices.facts(chosen)[0] if isinstance(chosen, int) else -1
    return score


class Shortfall(NamedTuple):
    """Reason that a gang has no place: how many units would fit, in all and in the best domain of the level that it
    requires. Columns do not show shares' memory and pinned CPUs: with these, fewer units may fit.
    """

    units: int
    level: str
    best: int


class TaskGroup:
    """Kind of unit: how many units are requested, and how many each node would take (by the nodes' numbers)."""

    __slots__ = ("_choices", "_nodes", "_room", "able", "ask", "cost", "costs", "least", "line", "most")

    def __init__(self, index: PoolIndex, ask: UnitRequest, work: Arrivals[Request], avoided: Collection[str]) -> None:
        self.ask = ask
        request, domains = ask.request, index.domains
        self.most, self.least = request.nodes, request.nodes_min or request.nodes
        self.costs, self.line = index.line(ask, work)
        self.cost: Ints = self.costs.by_row(self.line)
        #: {row: what is left of the GPU that a share goes to there, the cost in parts}
        self._choices: dict[int, tuple[int, tuple[int, int]]] = {}
        self._nodes = len(domains.names)
        self._room: Ints | None = None
        fits = np.zeros(len(self.cost) + 1, np.bool_)  # one more, for nodes in no row (-1)
        np.less(self.cost, NEVER, out=fits[:-1])
        able: Ints = fits.take(domains.rows[: self._nodes]).nonzero()[0]
        enough = (domains.cpu.take(able) >= request.cpu_milli) & (domains.memory.take(able) >= request.memory_mib)
        #: Nodes that take any, rising.
        self.able: Ints = able[enough]
        if request.tasks:
            self.room[self.able] = _tasks(index, ask, self.able)
        for name in avoided:
            if name in index.members:
                self.room[index.members[name].slot] = 0
        strict = ask.inside.require or ask.stands or request.exclusive or request.profile
        if strict:
            _leave_out(index, ask, self.room)
        if strict or avoided or request.tasks:
            self.able = self.room.nonzero()[0]

    @property
    def room(self) -> Ints:
        """[node's number]: units that it takes; made when asked for, as an ordinary gang does without."""
        if self._room is None:
            self._room = np.zeros(self._nodes, np.int64)
            self._room[self.able] = 1
        return self._room

    def units_on(self, numbers: Ints) -> list[int]:
        """The same of these nodes, which have room."""
        return self.room[numbers].tolist() if self.ask.request.tasks else [1] * len(numbers)

    def hold(self, number: int, units: int) -> None:
        """Limit a node to `units` of this kind: it has less room than the columns show."""
        if self._room is not None:
            self._room[number] = units
        if not units:
            self.able = self.able[self.able != number]

    def seat(self, index: PoolIndex, number: int, units: int) -> NodeChoice | None:
        """A place for so many units on the node; None where it has none."""
        node = index.members[index.domains.names[number]]
        known = self._choices.get(node.row)
        if known is None:
            known = self._choices[node.row] = self._choice(node.row)
        rest, cost = known
        if units == 1:
            ask, found = self.ask, seat(node.left, self.ask, rest)
        else:
            ask, found = several(self.ask, units), seat_several(node.left, self.ask, units)
        return NodeChoice(node, ask, found, cost, units) if isinstance(found, NodeAllocation) else None

    def _choice(self, row: int) -> tuple[int, tuple[int, int]]:
        choice = int(self.line.choice[row])
        return self.line.move.rest(choice), self.costs.parts(self.line, choice)


def _tasks(index: PoolIndex, ask: UnitRequest, able: Ints) -> Ints:
    """Return the number of tasks that each of these nodes takes, by the columns."""
    request, domains = ask.request, index.domains
    rows = domains.rows[able]
    units: Ints = np.full(len(able), request.nodes, np.int64)
    if request.profile:
        idle = [dict(key.cut).get(request.profile, 0) // ask.gpus for key in index.rows.keys]
        units = np.minimum(units, np.array(idle, np.int64)[rows])
    elif ask.gpus:
        milli = index.wanted(ask).shape.gpu_milli
        able_in = [sum(rest >= milli for rest in gpus.rests) // ask.gpus for _, _, gpus, _, _ in index.rows.each]
        units = np.minimum(units, np.array(able_in, np.int64)[rows])
    if request.cpu_milli:
        units = np.minimum(units, domains.cpu[able] // request.cpu_milli)
    if request.memory_mib:
        units = np.minimum(units, domains.memory[able] // request.memory_mib)
    return np.maximum(units, 0)


def _leave_out(index: PoolIndex, ask: UnitRequest, room: Ints) -> None:
    """Set the room to 0 for nodes that cannot take a unit: the free GPUs are not connected as required, the node is
    occupied or in another location, or no MIG instance is free.
    """
    for row in {int(index.domains.rows[number]) for number in np.flatnonzero(room)}:
        able = {name for _, names in ranked(index, row, ask) for name in names}
        for name in able.copy():
            if not isinstance(seat(index.members[name].left, ask), NodeAllocation):
                able.discard(name)
        for names in index.inhabitants[row].values():
            for name in names:
                if name not in able:
                    room[index.members[name].slot] = 0


#: After all domains.
NONE = 1 << 62


def spread(index: PoolIndex, kind: TaskGroup, able: Ints, units: int, levels: Sequence[str]) -> list[tuple[int, int]]:
    """(node, its units), of nodes that all have room. `levels`: largest first."""
    for at, level in enumerate(levels):
        if index.domains.known(level):
            of: Ints = index.domains.of[level].take(able)
            if (of != of[0]).any() or (of[0] < 0 and len(of) > 1):
                return _spread_over(index, kind, able, units, levels[at:], of)
    return cheapest(index, kind, able, units)


def _spread_over(
    index: PoolIndex, kind: TaskGroup, able: Ints, units: int, levels: Sequence[str], of: Ints
) -> list[tuple[int, int]]:
    """Spread units over whole domains of the first level, those that take most first. The last domain is the smallest that
    takes the rest; inside it the next level is used. `of` has the domain of each node, or -1.
    """
    level = levels[0]
    if int(of.min()) < 0:  # a node in none is one by itself, after all others
        of = np.where(of < 0, able + len(index.domains.domains[level]), of)
    rooms = _rooms(kind, able, of)
    domains = rooms.nonzero()[0]
    ranks = index.domains.ranks(level)[domains]
    whole, last, units = _divided(rooms[domains], ranks, units)
    found: list[tuple[int, int]] = []
    if len(whole):
        taken = np.zeros(len(rooms), np.bool_)
        taken[domains[whole]] = True
        numbers = able[taken.take(of)]
        found = list(zip(numbers.tolist(), kind.units_on(numbers), strict=True))
    return found + spread(index, kind, able[of == domains[last]], units, levels[1:])


def _rooms(kind: TaskGroup, able: Ints, of: Ints) -> Ints:
    """[domain]: units that these nodes of it take."""
    if not kind.ask.request.tasks:
        return np.bincount(of)
    return np.bincount(of, kind.room.take(able)).astype(np.int64)


def _divided(rooms: Ints, ranks: Ints, units: int) -> tuple[Ints, int, int]:
    """Return the places of the domains to take whole, of the one for the rest, and the number of units in that rest."""
    order = np.lexsort((ranks, -rooms))
    rising, full = -rooms[order], 0  # searches want them rising
    while -int(rising[full]) < units:
        units += int(rising[full])
        full += 1
    least = int(rising[rising.searchsorted(-units, "right") - 1])
    # The first of those with just as much room, of which some may have been taken whole.
    return order[:full], int(order[max(full, int(rising.searchsorted(least, "left")))]), units


def smallest(rooms: Ints, ranks: Ints, units: int) -> int:
    """Return the first of the domains with the least room among those with room for `units`."""
    order = rooms * len(ranks) + ranks[: len(rooms)]
    order[rooms < units] = NONE
    return int(order.argmin())


def cheapest(index: PoolIndex, kind: TaskGroup, able: Ints, units: int) -> list[tuple[int, int]]:
    """Nodes by cost; of tasks, as few nodes as can be."""
    rows = index.domains.rows[able]
    order = able[np.lexsort((index.domains.names_ranked()[able], index.rows.tightness[rows], kind.cost[rows]))].tolist()
    if not kind.ask.request.tasks:
        return [(number, 1) for number in order[:units]]
    found: list[tuple[int, int]] = []
    while units and order:
        enough = next((number for number in order if int(kind.room[number]) >= units), None)
        number = enough if enough is not None else max(order, key=lambda each: int(kind.room[each]))
        order.remove(number)
        part = min(units, int(kind.room[number]))
        found.append((number, part))
        units -= part
    return found
