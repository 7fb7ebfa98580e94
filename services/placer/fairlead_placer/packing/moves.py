"""States that jobs of one size leave behind: from each row that nodes are in, the state after each distinct choice.

Further parts:
- cost of a kind of request in each row of a pool: the cheapest of the choices in the row;
- cost of each state of a lattice under a policy, as columns that grow: its loss, less the room in it that has a price.

A row is examined once, on its first request: its cost is computed per state.

A row is priced when a node is in it at the time of a request. Its cost is kept until prices change.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fairlead_placer.packing.policy import WHOLE_MILLI, Ints, RequestShape, StateCosts
from fairlead_placer.packing.rows import VACANT, Rows

#: Sizes that are remembered at once.
MOVES_MAX = 1024
#: (row, state before, state after, place of the build, what the GPU had left that a share goes to)
type Choice = tuple[int, int, int, int, int]


class SizeMoves:
    """The choices of one size, by number, as columns."""

    __slots__ = ("_columns", "_met", "_rows", "count", "cpu", "length", "memory", "milli", "varied")

    def __init__(self, rows: Rows, cpu: int, memory: int, count: int, milli: int) -> None:
        self.cpu, self.memory, self.count, self.milli = cpu, memory, count, milli
        #: True where a row may have several choices: a share may go to one GPU or another.
        self.varied = count == 1 and milli < WHOLE_MILLI
        self._rows = rows
        self._met: set[int] = set()
        #: How many choices there are.
        self.length = 0
        self._columns = np.zeros((5, 64), np.int64)

    def rest(self, choice: int) -> int:
        """Return the remainder, before the move, of the GPU that a share takes; 0 if there is no choice."""
        return int(self._columns[4, choice]) if self.varied else 0

    @property
    def rows(self) -> Ints:
        """[choice]: the row that it is on."""
        return self._columns[0, : self.length]

    @property
    def before(self) -> Ints:
        """[choice]: the number of the state of its row."""
        return self._columns[1, : self.length]

    @property
    def after(self) -> Ints:
        """[choice]: the number of the state after it."""
        return self._columns[2, : self.length]

    @property
    def builds(self) -> Ints:
        """[choice]: the place of its build in `Rows.builds`."""
        return self._columns[3, : self.length]

    @property
    def rests(self) -> Ints:
        """[choice]: what is left before of the GPU that it takes; 0 where there is nothing to choose."""
        return self._columns[4, : self.length]

    def of(self, choice: int) -> Choice:
        """Return the choice with that number."""
        row, before, after, build, rest = self._columns[:, choice].tolist()
        return row, before, after, build, rest

    def fits(self, row: int) -> bool:
        """Return True if a node of the row may have room, judged by the row alone."""
        cpu, memory, gpus, _, _ = self._rows.each[row]
        return cpu >= self.cpu and memory >= self.memory and bool(gpus.choices(self.count, self.milli))

    def meet(self, numbers: Sequence[int]) -> None:
        """Record the choices of the rows that are new."""
        rows, met, found = self._rows, self._met, list[Choice]()
        each, number = rows.each, rows.lattice.number
        cpu, memory, count, milli = self.cpu, self.memory, self.count, self.milli
        for row in numbers:
            if row in met:
                continue
            met.add(row)
            has_cpu, has_memory, gpus, state, build = each[row]
            if has_cpu >= cpu and has_memory >= memory:
                for rest, after in gpus.choices(count, milli):
                    found.append((row, state, number(after, has_cpu - cpu, has_memory - memory), build, rest))
        if found:
            self._add(found)

    def _add(self, found: list[Choice]) -> None:
        first, self.length = self.length, self.length + len(found)
        if self.length > self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros((5, self.length), np.int64)], axis=1)
        self._columns[:, first : self.length] = np.array(found, np.int64).T


class Moves:
    """Moves of one pool."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._generation = rows, rows.generation
        self._each: dict[tuple[int, int, int, int], SizeMoves] = {}

    def of(self, shape: RequestShape) -> SizeMoves:
        """Return the move of the shape, for any accepted models."""
        if self._generation != self._rows.generation or len(self._each) >= MOVES_MAX:
            self._generation = self._rows.generation
            self._each.clear()
        key = shape[:4]
        move = self._each.get(key)
        if move is None:
            move = self._each[key] = SizeMoves(self._rows, *key)
        return move


#: Above any cost. A forbidden choice costs as much as an empty row, so that whatever is added to it, it stays
#: above this.
NEVER = VACANT // 2
#: Less than any cost: the row has not been looked at.
UNSEEN = -VACANT


class CostRequest(Protocol):
    """A kind of request, as costs are kept for it; compared by identity."""

    @property
    def shape(self) -> RequestShape:
        """Shape of the request on one node."""
        ...

    def burden(self, build: int) -> int | None:
        """Return the extra points for a node of the build; None if the request may not go there."""
        ...


class RowCosts:
    """Costs of one kind of request: cost per row, and extra points per build."""

    __slots__ = (
        "_builds",
        "_room",
        "asked",
        "burdens",
        "choice",
        "cost",
        "move",
        "order",
        "parts",
        "priced",
        "stamp",
        "version",
        "wish",
    )

    def __init__(self, wish: CostRequest, move: SizeMoves) -> None:
        self.wish, self.move = wish, move
        self._builds = 0
        #: [place of a build]: points, VACANT where it may not go; None where that is 0 for all.
        self.burdens: Ints | None = None
        #: [row]: what its cheapest choice costs (UNSEEN, VACANT where it has none), and which one that is: of equal ones
        #: the fullest GPU. Rows may be empty by now.
        self._room = 64
        self.cost: Ints = np.full(self._room, UNSEEN, np.int64)
        self.choice: Ints = np.zeros(self._room, np.int64)
        #: Number of choices of the move that are in these, at the prices of that version.
        self.priced, self.version = 0, -1
        #: {choice: what it costs, as it is recorded}, at these prices.
        self.parts: dict[int, tuple[int, int]] = {}
        #: (cost, tightness, row, choice) of all rows, rising, as it is since `stamp`: a version, and how many rows there were.
        #: How often it was asked for since.
        self.order: list[tuple[int, int, int, int]] | None = None
        self.stamp: tuple[int, int] = (-1, -1)
        self.asked = 0

    def follow(self, rows: Rows) -> None:
        """Make room for new rows, and compute the burdens again when there are new builds."""
        if rows.rows > self._room:
            more = 2 * rows.rows - self._room
            self._room += more
            self.cost = np.concatenate([self.cost, np.full(more, UNSEEN, np.int64)])
            self.choice = np.concatenate([self.choice, np.zeros(more, np.int64)])
        if self._builds < len(rows.builds):
            self._builds = len(rows.builds)
            burdens = [self.wish.burden(build) for build in rows.builds]
            column = np.array([VACANT if each is None else each for each in burdens], np.int64)
            self.burdens = column if column.any() else None

    def note(self, cost: Ints) -> None:
        """Record the costs of the choices that were not priced yet."""
        move, first = self.move, self.priced
        self.priced = move.length
        if move.varied:  # a row has several choices: the cheapest is written last
            order = np.lexsort((move.rests[first:], cost))[::-1]
            rows = move.rows[first:][order]
            self.cost[rows], self.choice[rows] = cost[order], order + first
        else:
            rows = move.rows[first:]
            self.cost[rows], self.choice[rows] = cost, np.arange(first, self.priced)

    def takes(self, rows: Rows, row: int) -> bool:
        """Return True if a node of the row may take the request, judged by the row alone."""
        burdens = self.burdens
        return (burdens is None or burdens[rows.each[row][4]] < NEVER) and self.move.fits(row)


#: Prices stay as they are until one of them has moved by more than so many points.
MOVED = 100


class StateLosses:
    """By state's number, in points."""

    def __init__(self) -> None:
        self.start(StateCosts(np.zeros(0, np.int64), np.zeros((0, 0), np.int64)))

    def start(self, held: StateCosts) -> None:
        """Start with these states, without prices."""
        self.length = len(held.fixed)
        self._prices: Ints | None = None
        self._fixed, self._slots, self._cost = held.fixed, held.slots, np.zeros(self.length, np.int64)

    @property
    def fixed(self) -> Ints:
        """Losses whatever prices are."""
        return self._fixed[: self.length]

    @property
    def slots(self) -> Ints:
        """Room of each kind, in thousandths of a GPU."""
        return self._slots[: self.length]

    @property
    def cost(self) -> Ints:
        """Losses less what room is worth."""
        return self._cost[: self.length]

    def of(self, state: int) -> tuple[int, int]:
        """Return (the state's loss, its cost)."""
        return int(self._fixed[state]), int(self._cost[state])

    def price(self, prices: Ints) -> bool:
        """From now on these are the prices, in points per thousandth of a GPU; False where they are much as they were, and
        stay."""
        if self._prices is not None and np.abs(prices - self._prices).max(initial=0) <= MOVED:
            return False
        self._prices = prices
        self._cost[: self.length] = self.fixed - self.slots @ prices
        return True

    def add(self, held: StateCosts) -> None:
        """More states."""
        first, self.length = self.length, self.length + len(held.fixed)
        if self.length > len(self._fixed):
            self._widen(len(held.fixed))
        assert self._prices is not None, "states are priced before there are more"
        self._fixed[first : self.length], self._slots[first : self.length] = held
        self._cost[first : self.length] = held.fixed - held.slots @ self._prices

    def _widen(self, more: int) -> None:
        room = len(self._fixed) + more
        self._fixed, self._cost = (
            np.concatenate([each, np.zeros(room, np.int64)]) for each in (self._fixed, self._cost)
        )
        self._slots = np.concatenate([self._slots, np.zeros((room, self._slots.shape[1]), np.int64)])
