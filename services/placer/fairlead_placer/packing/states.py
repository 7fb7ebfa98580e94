"""Columns of node states: what nodes have left, as far as a choice depends on it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead_placer.packing.shapes import WHOLE_MILLI, Shape

type Ints = NDArray[np.int64]
type Flags = NDArray[np.bool_]


class States(NamedTuple):
    """Rows of states. `gpus` has a column for each GPU of the largest node: what is left of each in thousandths,
    ascending; a GPU that is taken whole, and one that the node does not have, are both 0. `model` is one bit."""

    cpu: Ints
    memory: Ints
    model: Ints
    gpus: Ints

    def rows(self, at: Ints) -> "States":
        """Those rows."""
        return States(self.cpu[at], self.memory[at], self.model[at], self.gpus[at])

    @property
    def free_milli(self) -> Ints:
        """What is left of all GPUs of each."""
        return self.gpus.sum(axis=1)

    @property
    def whole(self) -> Ints:
        """How many GPUs of each nobody uses."""
        return (self.gpus == WHOLE_MILLI).sum(axis=1)


def fits(states: States, shape: Shape, models: int) -> Flags:
    """Which states have room for the shape; `models` has the bit of each model that it accepts."""
    room = (states.cpu >= shape.cpu_milli) & (states.memory >= shape.memory_mib)
    if shape.gpu_count:
        room &= (states.model & models) != 0
        room &= (states.gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpu_count
    return room


def choices(states: States, shape: Shape, models: int) -> tuple[Ints, Ints, States]:
    """(row of `states`, what is left of the GPU before, state after) of every choice that differs.

    A share may go on each GPU with another remainder; several GPUs are the fullest that fit. The GPU's remainder
    is 0 where there is nothing to choose.
    """
    at = np.flatnonzero(fits(states, shape, models))
    gpus = states.gpus[at]
    if shape.gpu_count == 1:
        differs = gpus >= shape.gpu_milli
        differs[:, 1:] &= gpus[:, 1:] != gpus[:, :-1]
        row, column = np.nonzero(differs)
        at, gpus = at[row], gpus[row]
        each = np.arange(len(at))
        before = gpus[each, column]
        gpus[each, column] -= shape.gpu_milli
    else:
        before = np.zeros(len(at), np.int64)
        first = (gpus < shape.gpu_milli).sum(axis=1, keepdims=True)
        places: Ints = np.arange(gpus.shape[1], dtype=np.int64)
        taken: Flags = (places >= first) & (places < first + shape.gpu_count)
        gpus[taken] -= shape.gpu_milli
    gpus.sort(axis=1)
    after = States(states.cpu[at] - shape.cpu_milli, states.memory[at] - shape.memory_mib, states.model[at], gpus)
    return at, before, after
