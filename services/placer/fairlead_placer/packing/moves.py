"""States that jobs of one size leave behind: from each row that nodes are in, the state after each distinct choice.

A row is examined once, on its first request: its cost is computed per state.
"""

from collections.abc import Sequence

import numpy as np

from fairlead_placer.packing.rows import Rows
from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape
from fairlead_placer.packing.states import Ints

#: Sizes that are remembered at once.
MOVES_MAX = 1024
#: (row, state before, state after, place of the build, what the GPU had left that a share goes to)
type Choice = tuple[int, int, int, int, int]


class Move:
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
        self._each: dict[tuple[int, int, int, int], Move] = {}

    def of(self, shape: Shape) -> Move:
        """Return the move of the shape, for any accepted models."""
        if self._generation != self._rows.generation or len(self._each) >= MOVES_MAX:
            self._generation = self._rows.generation
            self._each.clear()
        key = shape[:4]
        move = self._each.get(key)
        if move is None:
            move = self._each[key] = Move(self._rows, *key)
        return move
