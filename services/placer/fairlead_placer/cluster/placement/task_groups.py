"""One kind of a gang's units: which nodes take how many of it, at what cost, and on which of them the units go.

Smaller domains are filled one after the other, so that as few as possible are touched. Inside the smallest, the cheapest
nodes are taken. `gangs.py` chooses the domain.
"""

from collections.abc import Collection, Sequence

import numpy as np

from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat, seat_several
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, several
from fairlead_placer.cluster.placement.node_choice import NodeChoice, ranked
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.moves import NEVER
from fairlead_placer.packing.policy import Arrivals, Ints
from fairlead_schemas.wire.resources import Request


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
