"""The published policy: fragmentation gradient descent (Weng et al., USENIX ATC 2023), after the paper's definition.

A GPU's rest is a fragment for a request when the request cannot use it: all rests, where the node cannot take it at all;
else the rests that are too small for it. A node's fragmentation is the mean of that over the typical work; the choice that
lets it grow least is taken.
"""

import numpy as np

from fairlead_placer.packing.policy import POINTS, Held, nothing_priced
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints, States, fits
from fairlead_placer.packing.typical import TypicalWork


class Fgd:
    """Least growth of expected fragmentation."""

    name = "fgd"
    absolute = False

    def __init__(self) -> None:
        self._work: list[tuple[Shape, int, int]] = []
        self._total = 1

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """The typical work, as it is now."""
        self._work = [(shape, weight, pool.mask(shape)) for shape, weight in work.with_gpus()]
        self._total = max(1, sum(weight for _, weight, _ in self._work))

    def held(self, states: States) -> Held:
        """Expected fragments per state."""
        return nothing_priced(fragments(states, self._work) * POINTS // self._total)

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """None."""
        return np.zeros(0, np.int64)


def fragments(states: States, work: list[tuple[Shape, int, int]]) -> Ints:
    """Thousandths of a GPU by weight: the sum over (shape, weight, bits of its models) of what it cannot use."""
    free = states.free_milli
    small: dict[int, Ints] = {}
    total = np.zeros(len(free), np.int64)
    for shape, weight, models in work:
        if shape.gpu_milli not in small:
            small[shape.gpu_milli] = np.where(states.gpus < shape.gpu_milli, states.gpus, 0).sum(axis=1)
        total += weight * np.where(fits(states, shape, models), small[shape.gpu_milli], free)
    return total
