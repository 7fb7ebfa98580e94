"""Remaining capacity of a pool's nodes: nodes that are alike share a row, and rows are never recounted.

Empty rows stay until `clear`, so that figures computed per row stay valid.
"""

from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.lattice import Gpus, Grain, Lattice
from fairlead_placer.packing.population import Machine
from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape
from fairlead_placer.packing.states import Ints, States, columns_of

#: A `Key`, or a plain tuple that equals one.
type Row = tuple[int, int, int, int, tuple[int, ...], tuple[tuple[str, int], ...]]
#: Models that a pool distinguishes, as bits of one integer; further models count as the last.
MODELS_MAX = 62
#: What a row costs that no node is in.
VACANT = 1 << 60


class Key(NamedTuple):
    """Key of alike nodes: their build (a number) and their remaining capacity."""

    build: int
    cpu_milli: int
    memory_mib: int
    whole: int  # unused GPUs
    rests: tuple[int, ...] = ()  # of GPUs in part used, ascending; none where nothing is left
    cut: tuple[tuple[str, int], ...] = ()  # MIG instances that may be given: (profile, how many), sorted


class Made(NamedTuple):
    """Build of nodes as packing sees it: their GPUs' model ("" without GPUs), and the ignored low bits of CPU and memory.
    These bits are set in a `Key`.
    """

    model: str
    grain: Grain = Grain()


class Rows:
    """The rows, by number in the order in which a node first came there."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        #: {kind of node: how many there are}, and how many in all: those that are in no row now
        #: included.
        self.machines: dict[Machine, int] = {}
        self.nodes = 0
        self._made: dict[int, Made] = {}
        #: Increases when rows are renumbered: results kept per row, or per state, are void.
        self.generation = 0
        self._start(64)

    def _start(self, room: int) -> None:
        self.lattice = Lattice()
        self.row_of: dict[Row, int] = {}
        self.keys: list[Key] = []
        #: How many rows there are, with those that are empty.
        self.rows = 0
        #: [row]: how many nodes are in it; by what nodes rank that cost the same (see `_tightness`).
        self.here: list[int] = []
        self.tight: list[int] = []
        #: [row]: CPU and memory left, GPUs, the number of the state, the place of the build in `builds`.
        self.each: list[tuple[int, int, Gpus, int, int]] = []
        #: Builds of rows, by number.
        self.builds: list[int] = []
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._free_milli = 0
        self._tight = np.zeros(room, np.int64)
        #: The rows that nodes are in, the first so many; and {row: its place among them}.
        self._live = np.zeros(room, np.int64)
        self._live_at: dict[int, int] = {}

    @property
    def models(self) -> dict[str, int]:
        """{model: its bit's place}."""
        return self._models

    @property
    def free_milli(self) -> int:
        """Free GPUs of all nodes together, in thousandths."""
        return self._free_milli

    def free_of(self, row: int) -> int:
        """Free GPUs of a node of the row, in thousandths."""
        return self._free[row]

    @property
    def filled(self) -> Ints:
        """The rows that nodes are in, rising."""
        return np.sort(self.live)

    @property
    def live(self) -> Ints:
        """The same in no order, as it is until a node moves."""
        return self._live[: len(self._live_at)]

    @property
    def states(self) -> States:
        """Remaining capacity of a node of each non-empty row."""
        return columns_of([self.lattice.each[number] for number in self.numbers], self.lattice.gpus_max)

    @property
    def numbers(self) -> list[int]:
        """The states of these rows, by their numbers."""
        return [self.each[row][3] for row in self.filled.tolist()]

    @property
    def counts(self) -> Ints:
        """Number of nodes in each of these rows."""
        return np.array([self.here[row] for row in self.filled.tolist()], np.int64)

    @property
    def tightness(self) -> Ints:
        """`tight`, as a column."""
        return self._tight[: self.rows]

    def mask(self, shape: Shape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        if not shape.models:
            return -1
        return sum(1 << self.models[model] for model in shape.models if model in self.models)

    def know(self, build: int, made: Made) -> None:
        """There may be nodes so made from now on."""
        self._made[build] = made

    def join(self, machine: Machine, nodes: int = 1) -> None:
        """Add `nodes` machines of the kind to the pool (negative: remove them), whether or not they are in a row."""
        self._model(machine.model)
        self.nodes += nodes
        count = self.machines.pop(machine, 0) + nodes
        if count:
            self.machines[machine] = count

    def _model(self, name: str) -> int:
        return 1 << self._models.setdefault(name, min(len(self._models), MODELS_MAX - 1))

    def enter(self, row: int) -> None:
        """A node is in the row from now on."""
        self.here[row] = count = self.here[row] + 1
        self._free_milli += self._free[row]
        if count == 1:
            at = self._live_at[row] = len(self._live_at)
            self._live[at] = row

    def leave(self, row: int) -> None:
        """A node of the row is in it no more."""
        self.here[row] = count = self.here[row] - 1
        self._free_milli -= self._free[row]
        if not count:
            last = int(self._live[len(self._live_at) - 1])  # takes its place
            at = self._live_at[last] = self._live_at[row]
            self._live[at] = last
            del self._live_at[row]

    def clear(self) -> None:
        """Forget all rows and states: nodes in a row must enter again."""
        self.generation += 1
        self._start(64)

    def begin(self, each: Row) -> int:
        """A new row, for nodes in the state of this `Key` (or a plain tuple, which is made faster)."""
        key = Key(*each)
        row = self.rows
        if row == len(self._tight):
            self._tight, self._live = _doubled(self._tight), _doubled(self._live)
        rests = (*key.rests, *(WHOLE_MILLI,) * key.whole)
        name, grain = self._made[key.build]
        gpus = self.lattice.gpus(self._model(name), grain, rests)
        self.row_of[key] = row
        self.keys.append(key)
        self.rows = row + 1
        self.here.append(0)
        cpu, memory = key.cpu_milli, key.memory_mib
        self.each.append((cpu, memory, gpus, self.lattice.number(gpus, cpu, memory), self._place(key.build)))
        self._free.append(sum(rests))
        self._tight[row] = tight = _tightness(key, name)
        self.tight.append(tight)
        return row

    def _place(self, build: int) -> int:
        place = self._places.get(build)
        if place is None:
            place = self._places[build] = len(self.builds)
            self.builds.append(build)
        return place


def _tightness(key: Key, model: str) -> int:
    """Nodes without GPUs first, then by whole GPUs left, then by CPU left."""
    return ((key.whole + 1 if model else 0) << 42) + min(max(key.cpu_milli, 0), (1 << 42) - 1)


def _doubled(column: Ints) -> Ints:
    return np.concatenate([column, np.zeros_like(column)])
