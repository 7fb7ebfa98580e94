"""What nodes of a pool have left, as columns: nodes that are alike are one row, and rows are never counted anew.

Rows that no node is in any more stay until `clear`, so that what others have worked out per row stays true.
"""

from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape
from fairlead_placer.packing.states import Ints, States

#: A `Key`, or a plain tuple that equals one.
type Row = tuple[int, str, int, int, int, tuple[int, ...], tuple[tuple[str, int], ...]]


class Key(NamedTuple):
    """What makes nodes alike: what they are made of (a number, and their GPUs' model) and what they have left."""

    build: int
    model: str
    cpu_milli: int
    memory_mib: int
    whole: int  # GPUs that nobody uses
    rests: tuple[int, ...] = ()  # of GPUs in part used, ascending
    cut: tuple[tuple[str, int], ...] = ()  # MIG instances that may be given: (profile, how many), sorted


class Rows:
    """The columns. `counts` says how many nodes are in each row."""

    def __init__(self, gpus_max: int = 8) -> None:
        self._gpus_max = gpus_max
        self._models: dict[str, int] = {}
        #: Grows when rows were numbered anew: what was worked out per row is void.
        self.generation = 0
        self._start(64)

    def _start(self, room: int) -> None:
        self.row_of: dict[Row, int] = {}
        self.keys: list[Key] = []
        self._free_milli = 0
        self._cpu = np.zeros(room, np.int64)
        self._memory = np.zeros(room, np.int64)
        self._model = np.zeros(room, np.int64)
        self._build = np.zeros(room, np.int64)
        self._gpus = np.zeros((room, self._gpus_max), np.int64)
        self._count = np.zeros(room, np.int64)
        #: [row]: how many nodes are in it, for who looks at one row.
        self.here: list[int] = []
        self._tight = np.zeros(room, np.int64)
        self._free: list[int] = []

    @property
    def rows(self) -> int:
        """How many rows there are, with those that are empty."""
        return len(self.keys)

    @property
    def models(self) -> dict[str, int]:
        """{model: its bit's place}."""
        return self._models

    @property
    def free_milli(self) -> int:
        """Free GPUs of all nodes together, in thousandths."""
        return self._free_milli

    @property
    def states(self) -> States:
        """What a node of each row has left."""
        n = len(self.keys)
        return States(self._cpu[:n], self._memory[:n], self._model[:n], self._gpus[:n])

    @property
    def builds(self) -> Ints:
        """What the nodes of each row are made of."""
        return self._build[: len(self.keys)]

    @property
    def counts(self) -> Ints:
        """How many nodes are in each row."""
        return self._count[: len(self.keys)]

    @property
    def tightness(self) -> Ints:
        """By what nodes rank where they cost the same: those without GPUs, then whole GPUs left, then CPU left."""
        return self._tight[: len(self.keys)]

    def mask(self, shape: Shape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        if not shape.models:
            return -1
        return sum(1 << self.models[model] for model in shape.models if model in self.models)

    def enter(self, key: Row) -> int:
        """A node is in the state of this `Key` (as a plain tuple, which is made faster) from now on; its row."""
        row = self.row_of.get(key)
        if row is None:
            row = self._new(Key(*key))
        self.here[row] += 1
        self._count[row] += 1
        self._free_milli += self._free[row]
        return row

    def leave(self, row: int) -> None:
        """A node of the row is in it no more."""
        self.here[row] -= 1
        self._count[row] -= 1
        self._free_milli -= self._free[row]

    def clear(self) -> None:
        """Forget all rows: whoever is in one enters anew."""
        self.generation += 1
        self._start(64)

    def _new(self, key: Key) -> int:
        row = len(self.keys)
        gpus = (*key.rests, *(WHOLE_MILLI,) * key.whole)
        if len(gpus) > self._gpus_max:
            self._widen(len(gpus))
        if row == len(self._count):
            self._cpu, self._memory, self._model = _doubled(self._cpu), _doubled(self._memory), _doubled(self._model)
            self._build, self._gpus, self._count = _doubled(self._build), _doubled(self._gpus), _doubled(self._count)
            self._tight = _doubled(self._tight)
        self.row_of[key] = row
        self.keys.append(key)
        self.here.append(0)
        self._free.append(sum(gpus))
        self._cpu[row], self._memory[row], self._build[row] = key.cpu_milli, key.memory_mib, key.build
        self._tight[row] = ((key.whole + 1 if key.model else 0) << 42) + min(max(key.cpu_milli, 0), (1 << 42) - 1)
        self._model[row] = 1 << self._models.setdefault(key.model, min(len(self._models), MODELS_MAX - 1))
        if gpus:
            self._gpus[row, -len(gpus) :] = gpus
        return row

    def _widen(self, gpus: int) -> None:
        """A larger node than any so far: its columns come before the others, which are ascending. Costs per row stand."""
        more = np.zeros((len(self._gpus), gpus - self._gpus_max), np.int64)
        self._gpus = np.concatenate([more, self._gpus], axis=1)
        self._gpus_max = gpus


#: Models that are told apart in a pool, as bits of one integer; further ones count as the last.
MODELS_MAX = 62


def _doubled(column: Ints) -> Ints:
    return np.concatenate([column, np.zeros_like(column)])
