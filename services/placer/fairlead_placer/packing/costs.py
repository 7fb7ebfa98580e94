"""Cheapest row of a pool for a request: the cost of a choice is the cost of its state after, minus that before.

Costs are kept per state, not per request: new prices are multiplied with the states once, and a request only looks up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from fairlead_placer.packing.moves import NEVER, UNSEEN, CostRequest, Moves, RowCosts, StateLosses
from fairlead_placer.packing.policy import (
    MOVED_PARTS,
    POINTS,
    PRICE_ONE,
    Arrivals,
    Ints,
    Policy,
    StateCosts,
    TypicalWork,
)
from fairlead_placer.packing.rows import VACANT, Rows

#: The typical work is recomputed after 1, 2, 4 … arrivals, up to this many, and then at this interval.
LEARNED_EVERY = 256
#: Prices are recomputed after this many arrivals, plus one per NODES_PER_ARRIVAL nodes.
PRICED_EVERY, NODES_PER_ARRIVAL = 25, 32
#: New states are worked out one by one where they are so few, or else all at once.
FEW = 12
#: Kinds of requests that are remembered, and rows of all of them together (two numbers each).
LINES_MAX, CELLS_MAX = 4096, 1 << 22
#: Groups of rows that are looked for one by one, before all are put in order.
SOUGHT = 24
#: What has not changed when it was asked for so often is put in order, if there are no more rows than these: the empty ones
#: among many would have to be passed over each time.
UNORDERED, ORDERED_MAX = 8, 96
#: (cost, tightness, row, choice)
type Ranked = tuple[int, int, int, int]


class Costs:
    """Policy applied to the rows of one pool."""

    def __init__(self, policy: Policy, rows: Rows, moves: Moves) -> None:
        self.policy, self.rows, self._moves = policy, rows, moves
        self.work = TypicalWork()
        #: That of the rows which was looked at; and from how many arrivals on there is something to `follow`.
        self.generation, self.due = -1, 0
        #: Grows whenever a state may cost something else than before.
        self._version = 0
        self._states = StateLosses()
        self._looked_at = self._price_at = self._learned_free = 0
        self._learned: Mapping[Any, int] = {}
        self._lines: dict[CostRequest, RowCosts] = {}

    # -- what states cost: their losses, less the room in them for which there is a price

    def follow[Kind](self, work: Arrivals[Kind], typical: Callable[[Arrivals[Kind]], TypicalWork]) -> None:
        """Take up what has arrived since: prices often, learning where the work or what is free has become another. Called where
        arrivals are `due`, or the rows are of another generation."""
        arrived = work.arrived
        if self.generation != self.rows.generation:
            self._lines = {}
            self._learn(work, typical(work))
        elif arrived >= self._looked_at:
            free = self.rows.free_milli
            away = abs(free - self._learned_free) * MOVED_PARTS > self._learned_free
            if away or work.has_moved(self._learned):
                self._learn(work, typical(work))
            self._looked_at = arrived + min(LEARNED_EVERY, max(1, arrived))
        if arrived >= self._price_at:
            self._price(arrived)
        self.due = min(self._looked_at, self._price_at)

    def _learn[Kind](self, seen: Arrivals[Kind], work: TypicalWork) -> None:
        """Learn the pool and the work again and recompute all states."""
        self.work, self._learned, self._learned_free = work, dict(seen.weights), self.rows.free_milli
        self.generation = self.rows.generation
        self._looked_at = seen.arrived + min(LEARNED_EVERY, max(1, seen.arrived))
        self.policy.learn(self.rows, work)
        self._states.start(self.policy.held(self.rows.lattice.states()))
        self._price(work.arrived)

    def _price(self, arrived: int) -> None:
        self._price_at = arrived + PRICED_EVERY + self.rows.nodes // NODES_PER_ARRIVAL
        self._hold()
        slots = self.rows.counts @ self._states.slots[self.rows.numbers]
        prices = self.policy.prices(self.rows, self.work, slots) * POINTS // PRICE_ONE
        if self._states.price(prices):
            self._version += 1

    def _hold(self) -> None:
        """Price the new states."""
        lattice, known = self.rows.lattice, self._states.length
        new = len(lattice) - known
        if 0 < new <= FEW:
            each = [self.policy.held_by(state) for state in lattice.each[known:]]
            fixed, slots = np.array([one for one, _ in each], np.int64), np.array([some for _, some in each], np.int64)
            self._states.add(StateCosts(fixed, slots))
        elif new:
            self._states.add(self.policy.held(lattice.states(known)))

    # -- what choices cost

    def line(self, wish: CostRequest) -> RowCosts:
        """Return the line of the request kind, up to date with all rows."""
        line = self._lines.get(wish)
        if line is None:
            if len(self._lines) >= min(LINES_MAX, CELLS_MAX // max(1, self.rows.rows)):
                self._lines.clear()
            line = self._lines[wish] = RowCosts(wish, self._moves.of(wish.shape))
        line.follow(self.rows)
        if line.version != self._version:
            line.version, line.priced = self._version, 0
            line.parts.clear()
            self._price_line(line)
        return line

    def _price_line(self, line: RowCosts) -> None:
        """Note what choices cost that it has not priced yet."""
        move, first = line.move, line.priced
        if first == move.length:
            return
        self._hold()
        cost = self._states.cost[move.after[first:]]
        if not self.policy.absolute:
            cost -= self._states.cost[move.before[first:]]
        if self.policy.steps:
            cost = np.searchsorted(self.policy.steps, cost)
        if line.burdens is not None:
            cost += line.burdens[move.builds[first:]]
        line.note(cost)

    def _look(self, line: RowCosts, rows: Ints) -> None:
        """Learn what these rows cost, which it has not seen."""
        line.cost[rows] = VACANT
        numbers: list[int] = rows.tolist()
        line.move.meet(numbers)
        self._price_line(line)

    def _seen(self, line: RowCosts, rows: Ints) -> Ints:
        """Return the costs of these rows; rows that were not priced yet are priced first."""
        cost = line.cost.take(rows)
        if len(cost) and cost[cost.argmin()] == UNSEEN:
            self._look(line, rows[cost == UNSEEN])
            cost = line.cost.take(rows)
        return cost

    def by_row(self, line: RowCosts) -> Ints:
        """[row]: the cost of the cheapest choice there; NEVER or more where there is none, or no node."""
        found, live = np.full(self.rows.rows, VACANT, np.int64), self.rows.live
        found[live] = self._seen(line, live)
        return found

    def ranked(self, line: RowCosts) -> Iterator[list[Ranked]]:
        """Rows with their cheapest choices, the cheapest first, of these the tightest; alike ones together. Nodes are in all
        of them."""
        stamp = (self._version, self.rows.rows)
        if line.stamp != stamp:
            line.stamp, line.order, line.asked = stamp, None, 0
        line.asked += 1
        if line.asked <= UNORDERED or self.rows.rows > ORDERED_MAX:
            return self._sought(line)
        if line.order is None:
            every = np.arange(self.rows.rows)
            line.order = self._in_order(line, every, self._seen(line, every))
        return self._walked(line.order)

    def _walked(self, order: list[Ranked]) -> Iterator[list[Ranked]]:
        here, at, last = self.rows.here, 0, len(order)
        while at < last:
            first = order[at]
            at += 1
            if not here[first[2]]:
                continue
            alike = [first]
            while at < last and order[at][0] == first[0] and order[at][1] == first[1]:
                if here[order[at][2]]:
                    alike.append(order[at])
                at += 1
            yield alike

    def _sought(self, line: RowCosts) -> Iterator[list[Ranked]]:
        rows, tight = self.rows.live, self.rows.tight
        cost = line.cost.take(rows)
        if not len(cost):
            return
        least = int(cost[cost.argmin()])
        if least == UNSEEN:
            cost = self._seen(line, rows)
            least = int(cost[cost.argmin()])
        choice = line.choice
        for _ in range(SOUGHT):
            if least >= NEVER:
                return
            same = (cost == least).nonzero()[0]
            numbers: list[int] = rows[same].tolist()
            while numbers:
                tightest = min([tight[row] for row in numbers])
                alike = sorted([row for row in numbers if tight[row] == tightest])
                yield [(least, tightest, row, int(choice[row])) for row in alike]
                numbers = [row for row in numbers if tight[row] != tightest]
            cost[same] = VACANT
            least = int(cost[cost.argmin()])
        for _, each in groupby(self._in_order(line, rows, cost), key=itemgetter(0, 1)):
            yield list(each)

    def _in_order(self, line: RowCosts, rows: Ints, cost: Ints) -> list[Ranked]:
        """Return the permitted rows among `rows`, ranked by rising cost. `cost` holds their costs."""
        able = cost < NEVER
        rows, cost = rows[able], cost[able]
        tight = self.rows.tightness[rows]
        order = np.lexsort((rows, tight, cost))
        return list(zip(*(each[order].tolist() for each in (cost, tight, rows, line.choice[rows])), strict=True))

    def parts(self, line: RowCosts, choice: int) -> tuple[int, int]:
        """The cost of the choice in thousandths of a GPU: what becomes unusable, and what is scarce of it."""
        found = line.parts.get(choice)
        if found is None:
            found = line.parts[choice] = self._parts(line, choice)
        return found

    def _parts(self, line: RowCosts, choice: int) -> tuple[int, int]:
        _, before, after, build, _ = line.move.of(choice)
        fixed, cost = self._states.of(after)
        if not self.policy.absolute:
            fixed_before, cost_before = self._states.of(before)
            fixed, cost = fixed - fixed_before, cost - cost_before
        scarce = cost - fixed
        if self.policy.steps:
            fixed = bisect_left(self.policy.steps, fixed)
        if line.burdens is not None:
            fixed += int(line.burdens[build])
        return fixed // POINTS, scarce // POINTS
