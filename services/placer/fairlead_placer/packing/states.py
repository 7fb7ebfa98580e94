"""Remaining capacity of a node that a cost can depend on: one state, and columns of states."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape

type Ints = NDArray[np.int64]
type Flags = NDArray[np.bool_]


class State(NamedTuple):
    """State of a node. `gpus` has the remaining thousandths of each GPU that is not full, ascending. `model` is one bit."""

    cpu: int
    memory: int
    model: int
    gpus: tuple[int, ...]


class States(NamedTuple):
    """Rows of states. `gpus` has a column for each GPU of the largest node, ascending; a GPU that nothing is left of, and
    one that the node does not have, are both 0."""

    cpu: Ints
    memory: Ints
    model: Ints
    gpus: Ints

    def rows(self, at: Ints) -> "States":
        """Return the selected rows."""
        return States(self.cpu[at], self.memory[at], self.model[at], self.gpus[at])

    @property
    def free_milli(self) -> Ints:
        """Thousandths left of all GPUs of each row."""
        return self.gpus.sum(axis=1)

    @property
    def whole(self) -> Ints:
        """Number of wholly unused GPUs of each row."""
        return (self.gpus == WHOLE_MILLI).sum(axis=1)


def fits(states: States, shape: Shape, models: int) -> Flags:
    """Return the flags of the states with room for the shape; `models` has the bit of each model that it accepts."""
    room = (states.cpu >= shape.cpu_milli) & (states.memory >= shape.memory_mib)
    if shape.gpu_count:
        room &= (states.model & models) != 0
        room &= (states.gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpu_count
    return room


def columns_of(each: list[State], gpus_max: int) -> States:
    """States as columns, with so many of GPUs."""
    gpus = np.zeros((len(each), gpus_max), np.int64)
    for row, state in enumerate(each):
        if state.gpus:
            gpus[row, -len(state.gpus) :] = state.gpus
    plain = np.array([state[:3] for state in each], np.int64).reshape(-1, 3)
    return States(plain[:, 0], plain[:, 1], plain[:, 2], gpus)
