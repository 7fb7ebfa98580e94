"""Remaining capacity of a pool's nodes: nodes that are alike share a row, and rows are never recounted.

Empty rows stay until `clear`, so that figures computed per row stay valid.

The states that nodes of a pool are in, or would be in after one more job, numbered as they are met.

What a job leaves on one node is where other jobs begin on another, so that there are far fewer states than pairs of states
and jobs: whatever is worked out per state is worked out once.
"""

from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.policy import WHOLE_MILLI, EmptyNode, Ints, NodeState, NodeStates, RequestShape, columns_of

#: (what is left of the GPU before, GPUs after) of each choice that differs.
type Choices = list[tuple[int, "Gpus"]]


class Grain(NamedTuple):
    """Low bits of CPU and memory that are ignored: while some of a node's GPUs is free, and when all of it is used."""

    cpu: int = 0
    memory: int = 0
    cpu_full: int = 0
    memory_full: int = 0


class Gpus:
    """GPUs of a node in any order, with their model and the grain of the CPU and memory of the node."""

    __slots__ = ("_choices", "_lattice", "cpu_low", "grain", "memory_low", "model", "rests")

    def __init__(self, lattice: "Lattice", model: int, grain: Grain, rests: tuple[int, ...]) -> None:
        self._lattice, self.model, self.grain, self.rests = lattice, model, grain, rests
        self.cpu_low, self.memory_low = grain[:2] if rests else grain[2:]
        self._choices: dict[tuple[int, int], Choices] = {}

    def choices(self, count: int, milli: int) -> Choices:
        """Return the possible choices for `count` GPUs with `milli` thousandths of each; none if they do not fit. A share may go
        to each GPU with a different remainder. Several GPUs go to the fullest that fit, and then the remainder before is 0.
        """
        found = self._choices.get((count, milli))
        if found is None:
            found = self._choices[count, milli] = self._moved(count, milli)
        return found

    def _moved(self, count: int, milli: int) -> Choices:
        rests = self.rests
        if count == 0:
            return [(0, self)]
        first = sum(each < milli for each in rests)
        if len(rests) - first < count:
            return []
        if count == 1:
            differ = [at for at in range(first, len(rests)) if at == 0 or rests[at - 1] != rests[at]]
            return [(rests[at], self._with((*rests[:at], *rests[at + 1 :]), [rests[at] - milli])) for at in differ]
        taken = [each - milli for each in rests[first : first + count]]
        return [(0, self._with((*rests[:first], *rests[first + count :]), taken))]

    def _with(self, others: tuple[int, ...], changed: list[int]) -> "Gpus":
        rests = tuple(sorted([*others, *(each for each in changed if each)]))
        return self._lattice.gpus(self.model, self.grain, rests)


class Lattice:
    """Table of states. A state represents the most CPU and memory of all nodes that the grain does not distinguish from it."""

    def __init__(self, gpus_max: int = 8) -> None:
        self._gpus: dict[tuple[int, Grain, tuple[int, ...]], Gpus] = {}
        self._numbers: dict[tuple[Gpus, int, int], int] = {}
        #: How many GPUs any node has.
        self.gpus_max = gpus_max
        #: By number.
        self.each: list[NodeState] = []

    def __len__(self) -> int:
        return len(self.each)

    def gpus(self, model: int, grain: Grain, rests: tuple[int, ...]) -> Gpus:
        """GPUs with so much left of each, ascending, those left out that nothing is left of."""
        key = (model, grain, rests)
        found = self._gpus.get(key)
        if found is None:
            self.gpus_max = max(self.gpus_max, len(rests))
            found = self._gpus[key] = Gpus(self, *key)
        return found

    def number(self, gpus: Gpus, cpu: int, memory: int) -> int:
        """The number of the state of a node with so much left."""
        key = (gpus, cpu | gpus.cpu_low, memory | gpus.memory_low)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.each)
            self.each.append(NodeState(key[1], key[2], gpus.model, gpus.rests))
        return found

    def states(self, first: int = 0) -> NodeStates:
        """All from that number on, as columns."""
        return columns_of(self.each[first:], self.gpus_max)


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


class ShapeFacts(NamedTuple):
    """Build of nodes as packing sees it: their GPUs' model ("" without GPUs), and the ignored low bits of CPU and memory.
    These bits are set in a `Key`.
    """

    model: str
    grain: Grain = Grain()


class Rows:
    """Table of rows, numbered in the order in which they first got a node. A row is a state that its nodes share."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        #: {kind of node: how many there are}, and how many in all: those that are in no row now
        #: included.
        self.machines: dict[EmptyNode, int] = {}
        self.nodes = 0
        self._made: dict[int, ShapeFacts] = {}
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
    def states(self) -> NodeStates:
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

    def mask(self, shape: RequestShape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        if not shape.models:
            return -1
        return sum(1 << self.models[model] for model in shape.models if model in self.models)

    def know(self, build: int, made: ShapeFacts) -> None:
        """There may be nodes so made from now on."""
        self._made[build] = made

    def join(self, machine: EmptyNode, nodes: int = 1) -> None:
        """Add `nodes` machines of the kind to the pool (negative: remove them), whether or not they are in a row."""
        self._model(machine.model)
        self.nodes += nodes
        count = self.machines.pop(machine, 0) + nodes
        if count:
            self.machines[machine] = count

    def _model(self, name: str) -> int:
        return 1 << self._models.setdefault(name, min(len(self._models), MODELS_MAX - 1))

    def move(self, before: int, after: int) -> None:
        """Count a node in the row `after` instead of `before`; -1 is no row."""
        here, free, live_at = self.here, self._free, self._live_at
        came = gone = False
        if before >= 0:
            here[before] = count = here[before] - 1
            self._free_milli -= free[before]
            gone = not count
        if after >= 0:
            here[after] = count = here[after] + 1
            self._free_milli += free[after]
            came = count == 1
        if gone:
            at = live_at.pop(before)
            heir = after if came else int(self._live[len(live_at)])  # takes its place: else the last one
            if heir != before:
                live_at[heir] = at
                self._live[at] = heir
        elif came:
            live_at[after] = at = len(live_at)
            self._live[at] = after

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
