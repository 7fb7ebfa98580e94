"""The nodes of a pool by what they have left: nodes that are alike are one row of the columns.

A placement moves one node from its row to another; nothing is counted anew. Rows that no node is in any more stay
until `compact`, so that what others have worked out per row stays true.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape
from fairlead_placer.packing.states import Ints, States

type Key = tuple[int, int, int, tuple[int, ...]]


class Machine(NamedTuple):
    """A node as it is when nothing runs on it."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str = ""


class _Left:
    """What one node has left; `gpus` in the order of its GPUs."""

    __slots__ = ("cpu", "gpus", "memory", "model", "row")

    def __init__(self, machine: Machine, model: int) -> None:
        self.cpu, self.memory = machine.cpu_milli, machine.memory_mib
        self.gpus = [WHOLE_MILLI] * machine.gpus
        self.model = model
        self.row = -1


class Pool:
    """Nodes, numbered in the order in which they were added, and the rows that they are in."""

    def __init__(self, gpus_max: int = 16) -> None:
        self._gpus_max = gpus_max
        self._left: dict[int, _Left] = {}
        self._next = 0
        #: {model: its bit's place}
        self.models: dict[str, int] = {}
        #: Grows when rows were numbered anew: what was worked out per row is void.
        self.generation = 0
        #: Free GPUs of all nodes together, in thousandths.
        self.free_milli = 0
        self._start(64)

    def _start(self, rows: int) -> None:
        self._row_of: dict[Key, int] = {}
        self._members: list[list[int]] = []
        self._cpu = np.zeros(rows, np.int64)
        self._memory = np.zeros(rows, np.int64)
        self._model = np.zeros(rows, np.int64)
        self._gpus = np.zeros((rows, self._gpus_max), np.int64)
        self._count = np.zeros(rows, np.int64)

    @property
    def rows(self) -> int:
        """How many rows there are, with those that are empty."""
        return len(self._members)

    @property
    def states(self) -> States:
        """What a node of each row has left."""
        n = self.rows
        return States(self._cpu[:n], self._memory[:n], self._model[:n], self._gpus[:n])

    @property
    def counts(self) -> Ints:
        """How many nodes are in each row."""
        return self._count[: self.rows]

    def mask(self, shape: Shape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        if not shape.models:
            return -1
        return sum(1 << self.models[model] for model in shape.models if model in self.models)

    def add(self, machine: Machine) -> int:
        """A node joins, empty; its number. Raises ValueError for one with more GPUs than the pool has columns."""
        if machine.gpus > self._gpus_max:
            raise ValueError(f"a node of at most {self._gpus_max} GPUs was expected, found {machine.gpus}")
        bit = 1 << self.models.setdefault(machine.model, len(self.models))
        node, self._next = self._next, self._next + 1
        self._left[node] = _Left(machine, bit)
        self._enter(node, self._left[node])
        return node

    def remove(self, node: int) -> None:
        """A node leaves, with whatever it has left."""
        self._leave(self._left.pop(node))

    def gpus_of(self, node: int) -> tuple[int, ...]:
        """What is left of each GPU of the node, in its own order."""
        return tuple(self._left[node].gpus)

    def first_of(self, row: int) -> int:
        """The node of the row with the lowest number; the row must not be empty."""
        members = self._members[row]
        while members[0] not in self._left or self._left[members[0]].row != row:
            heappop(members)
        return members[0]

    def take(self, node: int, shape: Shape, gpus: tuple[int, ...]) -> None:
        """The shape is on these GPUs of the node (their places in its order) from now on."""
        self._change(node, -shape.cpu_milli, -shape.memory_mib, gpus, -shape.gpu_milli)

    def give_back(self, node: int, shape: Shape, gpus: tuple[int, ...]) -> None:
        """It no longer is."""
        self._change(node, shape.cpu_milli, shape.memory_mib, gpus, shape.gpu_milli)

    def compact(self) -> None:
        """Number the rows anew, without the empty ones."""
        self.generation += 1
        self.free_milli = 0
        self._start(max(64, len(self._left)))
        for node, left in self._left.items():
            self._enter(node, left)

    def _change(self, node: int, cpu: int, memory: int, gpus: tuple[int, ...], gpu: int) -> None:
        left = self._left[node]
        self._leave(left)
        left.cpu += cpu
        left.memory += memory
        for at in gpus:
            left.gpus[at] += gpu
            assert 0 <= left.gpus[at] <= WHOLE_MILLI, f"GPU {at} of node {node} would have {left.gpus[at]} left"
        assert left.cpu >= 0, f"node {node} would have {left.cpu} CPU left"
        assert left.memory >= 0, f"node {node} would have {left.memory} MiB left"
        self._enter(node, left)

    def _leave(self, left: _Left) -> None:
        self._count[left.row] -= 1
        self.free_milli -= sum(left.gpus)

    def _enter(self, node: int, left: _Left) -> None:
        gpus = tuple(sorted(left.gpus))
        key = (left.model, left.cpu, left.memory, gpus)
        row = self._row_of.get(key)
        if row is None:
            row = self._new_row(key)
        left.row = row
        heappush(self._members[row], node)
        self._count[row] += 1
        self.free_milli += sum(gpus)

    def _new_row(self, key: Key) -> int:
        row = self.rows
        if row == len(self._count):
            self._cpu, self._memory, self._model = _doubled(self._cpu), _doubled(self._memory), _doubled(self._model)
            self._gpus, self._count = _doubled(self._gpus), _doubled(self._count)
        self._row_of[key] = row
        self._members.append([])
        self._model[row], self._cpu[row], self._memory[row], gpus = key
        if gpus:
            self._gpus[row, -len(gpus) :] = gpus
        return row


def _doubled(column: Ints) -> Ints:
    return np.concatenate([column, np.zeros_like(column)])
