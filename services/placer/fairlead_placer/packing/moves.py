"""What jobs of one size leave where they go: from each row that nodes are in, the state after each choice that differs.

A row is looked at once, when it is met with a node in it: what it costs is worked out per state.
"""

from collections.abc import Sequence

import numpy as np

from fairlead_placer.packing.rows import Rows
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints

#: Sizes that are remembered at once.
MOVES_MAX = 1024
#: (row, state before, state after, place of the build, what the GPU had left that a share goes to)
type Choice = tuple[int, int, int, int, int]


class Move:
    """The choices of one size, by number, as columns."""

    __slots__ = ("_columns", "_empty", "_known", "_rows", "count", "cpu", "length", "memory", "milli")

    def __init__(self, rows: Rows, cpu: int, memory: int, count: int, milli: int) -> None:
        self.cpu, self.memory, self.count, self.milli = cpu, memory, count, milli
        self._rows, self._known = rows, 0
        #: Rows that were empty when they were to be looked at: nodes may have come since.
        self._empty: Ints = np.zeros(0, np.int64)
        #: How many choices there are.
        self.length = 0
        self._columns = np.zeros((5, 64), np.int64)

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
        """One choice."""
        row, before, after, build, rest = self._columns[:, choice].tolist()
        return row, before, after, build, rest

    def fits(self, row: int) -> bool:
        """True when a node of the row may have room, as far as the row tells."""
        cpu, memory, gpus, _, _ = self._rows.each[row]
        return cpu >= self.cpu and memory >= self.memory and bool(gpus.choices(self.count, self.milli))

    def follow(self) -> None:
        """Look at the rows that are new, and at those that nodes came back to."""
        rows, known = self._rows, self._known
        if known < rows.rows:
            self._known = rows.rows
            empty = self._meet(range(known, rows.rows))
            if empty:
                self._empty = np.concatenate([self._empty, np.array(empty, np.int64)])
        if len(self._empty):
            vacant = rows.vacant[self._empty] != 0
            if not vacant.all():
                self._meet(self._empty[~vacant].tolist())
                self._empty = self._empty[vacant]

    def _meet(self, numbers: Sequence[int]) -> list[int]:
        """Note the choices of those rows; which of them are empty."""
        rows, found, empty = self._rows, list[Choice](), list[int]()
        here, each, number = rows.here, rows.each, rows.lattice.number
        cpu, memory, count, milli = self.cpu, self.memory, self.count, self.milli
        for row in numbers:
            if not here[row]:
                empty.append(row)
                continue
            has_cpu, has_memory, gpus, state, build = each[row]
            if has_cpu >= cpu and has_memory >= memory:
                for rest, after in gpus.choices(count, milli):
                    found.append((row, state, number(after, has_cpu - cpu, has_memory - memory), build, rest))
        if found:
            self._add(found)
        return empty

    def _add(self, found: list[Choice]) -> None:
        first, self.length = self.length, self.length + len(found)
        if self.length > self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros((5, self.length), np.int64)], axis=1)
        self._columns[:, first : self.length] = np.array(found, np.int64).T


class Moves:
    """Those of a pool."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._generation = rows, rows.generation
        self._each: dict[tuple[int, int, int, int], Move] = {}

    def of(self, shape: Shape) -> Move:
        """What the shape leaves, whatever models it accepts."""
        if self._generation != self._rows.generation or len(self._each) >= MOVES_MAX:
            self._generation = self._rows.generation
            self._each.clear()
        key = shape[:4]
        move = self._each.get(key)
        if move is None:
            move = self._each[key] = Move(self._rows, *key)
        return move
