"""Which row of a pool costs a request least: the cost of a choice is what its state after costs, less what it cost before.

Costs are kept per state, not per request: new prices are multiplied with the states once, and a request only looks up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from fairlead_placer.packing.losses import Losses
from fairlead_placer.packing.moves import Move, Moves
from fairlead_placer.packing.policy import POINTS, PRICE_ONE, Held, Policy
from fairlead_placer.packing.rows import VACANT, Rows
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints
from fairlead_placer.packing.typical import MOVED_PARTS, Arrivals, TypicalWork

#: More than any cost. What must not be is as expensive as an empty row, so that whatever it costs besides it is above this.
NEVER = VACANT // 2
#: The typical work is looked at anew after 1, 2, 4 … arrivals, up to this many, and then after each so many.
LEARNED_EVERY = 256
#: Prices are looked at anew after so many arrivals, and one more for each so many nodes.
PRICED_EVERY, NODES_PER_ARRIVAL = 25, 32
#: New states are worked out one by one where they are so few, or else all at once.
FEW = 12
#: Kinds of requests that are remembered.
LINES_MAX = 4096
#: Choices that are looked for one by one, before all are put in order.
SOUGHT = 24
#: What has not changed when it was asked for so often is put in order, if there are no more choices than these: the empty rows
#: among many would have to be passed over each time.
UNORDERED, ORDERED_MAX = 8, 96


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
    """A wish: its choices, and what builds cost it besides."""

    __slots__ = ("_known", "asked", "burdens", "move", "order", "stamp", "wish")

    def __init__(self, wish: Wish, move: Move) -> None:
        self.wish, self.move = wish, move
        self._known = 0
        #: [place of a build]: points, VACANT where it may not go; None where that is 0 for all.
        self.burdens: Ints | None = None
        #: (cost, tightness, row, choice) rising, as it is since `stamp`; rows may be empty by now. How often it was asked
        #: for since.
        self.order: list[tuple[int, int, int, int]] | None = None
        self.asked = 0
        self.stamp: tuple[int, int] = (-1, -1)

    def follow(self, rows: Rows) -> None:
        """Look at what is new."""
        self.move.follow()
        if self._known < len(rows.builds):
            self._known = len(rows.builds)
            burdens = [self.wish.burden(build) for build in rows.builds]
            column = np.array([VACANT if each is None else each for each in burdens], np.int64)
            self.burdens = column if column.any() else None

    def takes(self, rows: Rows, row: int) -> bool:
        """True when a node of the row may take it, as far as the row tells."""
        burdens = self.burdens
        return (burdens is None or burdens[rows.each[row][4]] < NEVER) and self.move.fits(row)


class Costs:
    """One policy over the rows of one pool."""

    def __init__(self, policy: Policy, rows: Rows, moves: Moves) -> None:
        self.policy, self.rows, self._moves = policy, rows, moves
        self.work = TypicalWork()
        self._generation = -1
        #: Grows whenever a state may cost something else than before.
        self._version = 0
        self._states = Losses()
        self._looked_at = self._price_at = self._learned_free = 0
        self._learned: Mapping[Any, int] = {}
        self._lines: dict[Wish, Line] = {}

    # -- what states cost: their losses, less the room in them for which there is a price

    def follow[Kind](self, work: Arrivals[Kind], typical: Callable[[Arrivals[Kind]], TypicalWork]) -> None:
        """Take up what has arrived since: prices often, learning where the work or what is free has become another."""
        arrived = work.arrived
        if self._generation != self.rows.generation:
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

    def _learn[Kind](self, seen: Arrivals[Kind], work: TypicalWork) -> None:
        """Look at the pool and the work anew: all states are worked out anew."""
        self.work, self._learned, self._learned_free = work, dict(seen.weights), self.rows.free_milli
        self._generation = self.rows.generation
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
        """What new states cost."""
        lattice, known = self.rows.lattice, self._states.length
        new = len(lattice) - known
        if 0 < new <= FEW:
            each = [self.policy.held_by(state) for state in lattice.each[known:]]
            fixed, slots = np.array([one for one, _ in each], np.int64), np.array([some for _, some in each], np.int64)
            self._states.add(Held(fixed, slots))
        elif new:
            self._states.add(self.policy.held(lattice.states(known)))

    # -- what choices cost

    def line(self, wish: Wish) -> Line:
        """The wish, with all choices that there are by now."""
        line = self._lines.get(wish)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines.clear()
            line = self._lines[wish] = Line(wish, self._moves.of(wish.shape))
        line.follow(self.rows)
        self._hold()
        return line

    def priced(self, line: Line) -> Ints:
        """[choice]: its cost now; NEVER or more where no node is, or it may not go."""
        return self._grown(line) + self.rows.vacant[line.move.rows]

    def _grown(self, line: Line) -> Ints:
        """The same as if nodes were in all rows."""
        move = line.move
        cost = self._states.cost[move.after]
        if not self.policy.absolute:
            cost -= self._states.cost[move.before]
        if self.policy.steps:
            cost = np.searchsorted(self.policy.steps, cost)
        if line.burdens is not None:
            cost += line.burdens[move.builds]
        return cost

    def by_row(self, line: Line) -> Ints:
        """[row]: the cost of the cheapest choice there; NEVER or more where there is none."""
        found = np.full(self.rows.rows, VACANT, np.int64)
        np.minimum.at(found, line.move.rows, self.priced(line))
        return found

    def choice_in(self, line: Line, row: int) -> int:
        """The cheapest choice in a row that has one, of equal ones the fullest GPU."""
        at = np.flatnonzero(line.move.rows == row)
        cost, rests = self.priced(line)[at], line.move.rests[at]
        return int(at[np.lexsort((rests, cost))[0]])

    def ranked(self, line: Line) -> Iterator[list[tuple[int, int, int, int]]]:
        """Choices (cost, tightness, row, choice), the cheapest first, of these the tightest; alike ones together. Nodes
        are in all of their rows."""
        stamp = (self._version, line.move.length)
        if line.stamp != stamp:
            line.stamp, line.order, line.asked = stamp, None, 0
        line.asked += 1
        if line.asked <= UNORDERED or line.move.length > ORDERED_MAX:
            return self._sought(line)
        if line.order is None:
            line.order = _in_order(self._grown(line), self.rows.tightness, line.move)
        return self._walked(line.order)

    def _walked(self, order: list[tuple[int, int, int, int]]) -> Iterator[list[tuple[int, int, int, int]]]:
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

    def _sought(self, line: Line) -> Iterator[list[tuple[int, int, int, int]]]:
        cost, rows = self.priced(line), line.move.rows
        tight: list[int] = self.rows.tight
        if not len(cost):
            return
        for _ in range(SOUGHT):
            least = int(cost[cost.argmin()])
            if least >= NEVER:
                return
            at = (cost == least).nonzero()[0]
            alike = [(least, tight[row], row, each) for row, each in zip(map(int, rows[at]), map(int, at), strict=True)]
            if len(alike) == 1:
                yield alike
            else:
                alike.sort()
                yield from (list(each) for _, each in groupby(alike, key=itemgetter(1)))
            cost[at] = VACANT
        for _, each in groupby(_in_order(cost, self.rows.tightness, line.move), key=itemgetter(0, 1)):
            yield list(each)

    def parts(self, line: Line, choice: int) -> tuple[int, int]:
        """The cost of the choice in thousandths of a GPU: what becomes unusable, and what is scarce of it."""
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


def _in_order(cost: Ints, tightness: Ints, move: Move) -> list[tuple[int, int, int, int]]:
    """(cost, tightness, row, choice) of choices that there are, rising; of a row, the fullest GPU first."""
    at = np.flatnonzero(cost < NEVER)
    rows, cost = move.rows[at], cost[at]
    tight = tightness[rows]
    order = np.lexsort((move.rests[at], rows, tight, cost))
    return list(zip(*(each[order].tolist() for each in (cost, tight, rows, at)), strict=True))
