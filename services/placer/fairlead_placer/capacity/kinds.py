"""Kind of a gang's units: which nodes take how many of it, and at what cost. Shortfalls of a gang are reported here
too.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from fairlead_placer.capacity.asks import Ask, several
from fairlead_placer.capacity.choosing import Choice, ranked
from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.seats import Seat, seat, seat_several
from fairlead_placer.packing.lines import NEVER
from fairlead_placer.packing.states import Ints
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.wire.resources import Request


class Shortfall(NamedTuple):
    """Reason that a gang has no place: how many units would fit, in all and in the best domain of the level that it
    requires. Columns do not show shares' memory and pinned CPUs: with these, fewer units may fit.
    """

    units: int
    level: str
    best: int


class Kind:
    """Kind of unit: how many units are requested, and how many each node would take (by the nodes' numbers)."""

    __slots__ = ("_choices", "_nodes", "_room", "able", "ask", "cost", "costs", "least", "line", "most")

    def __init__(self, index: Index, ask: Ask, work: Arrivals[Request], avoided: Collection[str]) -> None:
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

    def seat(self, index: Index, number: int, units: int) -> Choice | None:
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
        return Choice(node, ask, found, cost, units) if isinstance(found, Seat) else None

    def _choice(self, row: int) -> tuple[int, tuple[int, int]]:
        choice = int(self.line.choice[row])
        return self.line.move.rest(choice), self.costs.parts(self.line, choice)


def _tasks(index: Index, ask: Ask, able: Ints) -> Ints:
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


def _leave_out(index: Index, ask: Ask, room: Ints) -> None:
    """Set the room to 0 for nodes that cannot take a unit: the free GPUs are not connected as required, the node is
    occupied or in another location, or no MIG instance is free.
    """
    for row in {int(index.domains.rows[number]) for number in np.flatnonzero(room)}:
        able = {name for _, names in ranked(index, row, ask) for name in names}
        for name in able.copy():
            if not isinstance(seat(index.members[name].left, ask), Seat):
                able.discard(name)
        for names in index.inhabitants[row].values():
            for name in names:
                if name not in able:
                    room[index.members[name].slot] = 0
