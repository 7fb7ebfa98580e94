"""What jobs of one size leave where they go: from each row that nodes are in, the state after each choice that differs.

A row is looked at when the first node comes there, and never again: what it costs is worked out per state.
"""

import numpy as np

from fairlead_placer.packing.rows import Rows
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints

#: Sizes that are remembered at once.
MOVES_MAX = 1024


class Move:
    """The choices of one size, by number: columns of their rows, the states before and after, builds, and what the GPU had left that
    a share goes to."""

    __slots__ = ("_columns", "_met", "_rows", "_turns", "count", "cpu", "length", "memory", "milli")

    def __init__(self, rows: Rows, cpu: int, memory: int, count: int, milli: int) -> None:
        self.cpu, self.memory, self.count, self.milli = cpu, memory, count, milli
        self._rows, self._turns, self._met = rows, -1, bytearray()
        #: How many choices there are.
        self.length = 0
        self._columns = np.zeros((5, 64), np.int64)

    @property
    def rows(self) -> Ints:
        """[choice]: the row that it is on."""
        return self._columns[0, : self.length]

    @property
    def after(self) -> Ints:
        """[choice]: the number of the state after it."""
        return self._columns[1, : self.length]

    @property
    def before(self) -> Ints:
        """[choice]: the number of the state of its row."""
        return self._columns[4, : self.length]

    @property
    def builds(self) -> Ints:
        """[choice]: the place of its build in `Rows.builds`."""
        return self._columns[2, : self.length]

    @property
    def rests(self) -> Ints:
        """[choice]: what is left before of the GPU that it takes; 0 where there is nothing to choose."""
        return self._columns[3, : self.length]

    def fits(self, row: int) -> bool:
        """True when a node of the row may have room, as far as the row tells."""
        gpus, key = self._rows.gpus[row], self._rows.keys[row]
        if key.cpu_milli < self.cpu or key.memory_mib < self.memory:
            return False
        return self.count < len(gpus.least) and gpus.least[self.count] >= self.milli

    def follow(self) -> None:
        """Look at the rows that nodes came to since."""
        rows = self._rows
        if self._turns == rows.turns:
            return
        turned = rows.turned_since(self._turns) if self._turns >= 0 else range(rows.rows)
        self._turns = rows.turns
        met, here = self._met, rows.here
        if len(met) < rows.rows:
            met.extend(bytes(2 * rows.rows - len(met)))
        found: list[tuple[int, int, int, int, int]] = []
        for row in turned:
            if not met[row] and here[row]:
                met[row] = 1
                if self.fits(row):
                    self._meet(row, found)
        if found:
            self._add(found)

    def _meet(self, row: int, found: list[tuple[int, int, int, int, int]]) -> None:
        rows = self._rows
        key, state, build = rows.keys[row], rows.states_of[row], rows.build_at[row]
        number, cpu, memory = rows.lattice.number, key.cpu_milli - self.cpu, key.memory_mib - self.memory
        for rest, after in rows.gpus[row].choices(self.count, self.milli):
            found.append((row, number(after, cpu, memory), build, rest, state))

    def _add(self, found: list[tuple[int, int, int, int, int]]) -> None:
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
