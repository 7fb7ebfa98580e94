"""Which row of a pool costs a request least, kept per kind of request: a placement changes counts, hardly ever a cost.

Rows are evaluated once per kind of request, when it first meets them. Learning starts that anew; prices, which say how
scarce things are, are set more often and cost a multiplication.
"""

from bisect import insort
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from fairlead_placer.packing.policy import POINTS, PRICE_ONE, Policy
from fairlead_placer.packing.rows import Rows
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints, choices
from fairlead_placer.packing.typical import MOVED_PARTS, Arrivals, TypicalWork

#: More than any cost.
NEVER = int(np.iinfo(np.int64).max)
#: The typical work is looked at anew after 1, 2, 4 … arrivals, up to this many, and then after each so many.
LEARNED_EVERY = 256
#: Prices are looked at anew after so many arrivals, and stay until one of them has moved by more than so many points.
PRICED_EVERY, MOVED = 64, 100


class Wish(Protocol):
    """A kind of request, as costs are kept for it; compared by identity."""

    @property
    def shape(self) -> Shape:
        """What it asks of one node."""
        ...

    def burden(self, build: int) -> int | None:
        """Points that nodes so made cost it besides; None where it may not go to them."""
        ...


class Line:
    """What a wish costs in each row; `NEVER` where it does not fit."""

    __slots__ = ("cost", "fixed", "known", "order", "parts", "priced", "rest", "slots")

    def __init__(self, things: int) -> None:
        self.known = 0
        self.priced = -1
        self.cost: Ints = np.zeros(0, np.int64)
        self.fixed: Ints = np.zeros(0, np.int64)
        self.slots: Ints = np.zeros((0, things), np.int64)
        #: (cost, tightness, row) of the rows that it fits, rising.
        self.order: list[tuple[int, int, int]] = []
        self.parts: dict[int, tuple[int, int]] = {}
        #: What is left of the GPU that a share goes to; 0 where there is nothing to choose.
        self.rest: Ints = np.zeros(0, np.int64)


class Costs:
    """One policy over the rows of one pool."""

    def __init__(self, policy: Policy, rows: Rows) -> None:
        self.policy, self.rows = policy, rows
        self.work = TypicalWork()
        self._generation = -1
        self._version = 0
        self._prices: Ints = np.zeros(0, np.int64)
        self._looked_at = self._priced_at = self._learned_free = 0
        self._learned: Mapping[Any, int] = {}

    def follow[Kind](self, work: Arrivals[Kind], typical: Callable[[Arrivals[Kind]], TypicalWork]) -> None:
        """Take up what has arrived since: prices often, learning where the work or what is free has become another."""
        arrived = work.arrived
        if self._generation != self.rows.generation:
            self._learn(work, typical(work))
        elif arrived >= self._looked_at:
            free = self.rows.free_milli
            away = abs(free - self._learned_free) * MOVED_PARTS > self._learned_free
            if away or work.has_moved(self._learned):
                self._learn(work, typical(work))
            self._looked_at = arrived + min(LEARNED_EVERY, max(1, arrived))
        if arrived - self._priced_at >= PRICED_EVERY:
            self._price(arrived)

    def _learn[Kind](self, seen: Arrivals[Kind], work: TypicalWork) -> None:
        """Look at the pool and the work anew: all costs are void."""
        self.work, self._learned, self._learned_free = work, dict(seen.weights), self.rows.free_milli
        self._generation = self.rows.generation
        self._looked_at = seen.arrived + min(LEARNED_EVERY, max(1, seen.arrived))
        self.policy.learn(self.rows, work)
        self._lines: dict[Wish, Line] = {}
        held = self.policy.held(self.rows.states)
        self._fixed, self._slots = held.fixed, held.slots
        self._price(work.arrived)

    def _price(self, arrived: int) -> None:
        self._priced_at = arrived
        self._hold()
        slots = self.rows.counts @ self._slots
        prices = self.policy.prices(self.rows, self.work, slots) * POINTS // PRICE_ONE
        if len(prices) != len(self._prices) or np.abs(prices - self._prices).max(initial=0) > MOVED:
            self._prices = prices
            self._version += 1

    def _hold(self) -> None:
        """What the states of new rows cost."""
        known = len(self._fixed)
        if known < self.rows.rows:
            held = self.policy.held(self.rows.states.rows(np.arange(known, self.rows.rows)))
            self._fixed = np.concatenate([self._fixed, held.fixed])
            self._slots = np.concatenate([self._slots, held.slots])

    def line(self, wish: Wish) -> Line:
        """What the wish costs in every row now, empty ones included."""
        line = self._lines.get(wish)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines.clear()
            line = self._lines[wish] = Line(self._slots.shape[1])
        if line.known < self.rows.rows:
            self._meet(line, wish)
        if line.priced != self._version:
            self._reprice(line)
        return line

    def _reprice(self, line: Line) -> None:
        line.priced = self._version
        line.parts.clear()
        line.cost = np.where(line.fixed == NEVER, NEVER, line.fixed + line.slots @ self._prices)
        fits = np.flatnonzero(line.cost != NEVER)
        cost, tight = line.cost[fits], self.rows.tightness[fits]
        order = np.lexsort((fits, tight, cost))
        line.order = list(zip(cost[order].tolist(), tight[order].tolist(), fits[order].tolist(), strict=True))

    def _meet(self, line: Line, wish: Wish) -> None:
        """Evaluate the rows that the wish has not met: the best choice in each."""
        self._hold()
        first, last = line.known, self.rows.rows
        fixed = np.full(last - first, NEVER, np.int64)
        rest = np.zeros(last - first, np.int64)
        slots = np.zeros((last - first, self._slots.shape[1]), np.int64)
        burden = self._burden(wish, first)
        able = np.flatnonzero(burden != NEVER)
        at, rests, after = choices(self.rows.states.rows(able + first), wish.shape, self.rows.mask(wish.shape))
        if len(at):
            row = able[at]
            held = self.policy.held(after)
            change = (held.fixed if self.policy.absolute else held.fixed - self._fixed[row + first]) + burden[row]
            given = self._slots[row + first] - held.slots
            best = _cheapest(row, change + given @ self._prices, rests)
            fixed[row[best]], rest[row[best]], slots[row[best]] = change[best], rests[best], given[best]
        line.fixed = np.concatenate([line.fixed, fixed])
        line.rest = np.concatenate([line.rest, rest])
        line.slots = np.concatenate([line.slots, slots])
        line.known = last
        if line.priced == self._version and last - first < FEW:
            cost = np.where(fixed == NEVER, NEVER, fixed + slots @ self._prices)
            line.cost = np.concatenate([line.cost, cost])
            for row in np.flatnonzero(cost != NEVER).tolist():
                insort(line.order, (int(cost[row]), int(self.rows.tightness[first + row]), first + row))
        else:
            line.priced = -1

    def _burden(self, wish: Wish, first: int) -> Ints:
        builds, where = np.unique(self.rows.builds[first:], return_inverse=True)
        burdens = [wish.burden(int(build)) for build in builds]
        return np.array([NEVER if each is None else each for each in burdens], np.int64)[where]

    def parts(self, line: Line, row: int) -> tuple[int, int]:
        """The cost of the row in thousandths of a GPU: what becomes unusable, and what is scarce of it."""
        found = line.parts.get(row)
        if found is None:
            fixed = int(line.fixed[row])
            found = line.parts[row] = (fixed // POINTS, (int(line.cost[row]) - fixed) // POINTS)
        return found


#: So many new rows are put in order one by one.
FEW = 64
#: Kinds of requests that costs are kept for.
LINES_MAX = 1024


def _cheapest(row: Ints, cost: Ints, rests: Ints) -> Ints:
    """Of the choices of each row the cheapest, then the fullest GPU: their places."""
    order = np.lexsort((rests, cost, row))
    first = np.ones(len(order), np.bool_)
    first[1:] = row[order][1:] != row[order][:-1]
    return order[first]
