"""Policies by name. The names are defined in the contract (`fairlead_schemas.queuefile.settings.Packing`): pools are
configured with them.

Further parts:
- simple policies that only look at what is left: the tightest node, the emptiest one, or weights for each resource;
- fragmentation gradient descent, the published policy (Weng et al., USENIX ATC 2023), after the paper's definition;
- a fact about a pool for people: how fragmented it is (what could start now: cluster/pool_facts.py).

The remainder of a GPU is a fragment for a request that cannot use it. If the node cannot take the request at all, all
its remainders are fragments; otherwise those that are too small. A node's fragmentation is the mean of that over the
typical work. The choice with the least growth of fragmentation is taken.

As in the authors' simulator, growth is compared by whole hundredths of a sigmoid of it, in GPUs: about 0.04 GPUs. The
paper mentions this only in passing, but it matters: among choices that are about equal the first node is taken, so that
nodes fill in order. On the openb trace, exact growth ends 0.8 points lower (94.4 % instead of 95.2 % when all capacity
is requested). Learned or given work, CPU-only work, memory, and leaving out rare shapes do not make up for it.
"""

from collections.abc import Callable
from math import log
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.fragmentation import Fragmentation
from fairlead_placer.packing.policy import (
    POINTS,
    Ints,
    NodeState,
    NodeStates,
    Policy,
    Population,
    RequestShape,
    StateCosts,
    TypicalWork,
    fits,
    nothing_priced,
)
from fairlead_schemas.queuefile.settings import Packing, PoolSettings


class Weights(NamedTuple):
    """The cost of what is left: per thousandth of a GPU, per thousandth of a CPU, per MiB; negative to spread."""

    name: str = "weights"
    gpu: int = 100
    cpu: int = 3
    memory: int = 1
    absolute: bool = True
    steps: tuple[int, ...] = ()

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """No-op: this policy has fixed weights."""

    def held(self, states: NodeStates) -> StateCosts:
        """By what is left."""
        return nothing_priced(self.gpu * states.free_milli + self.cpu * states.cpu + self.memory * states.memory)

    def held_by(self, state: NodeState) -> tuple[int, list[int]]:
        """The same for one state."""
        return self.gpu * sum(state.gpus) + self.cpu * state.cpu + self.memory * state.memory, []

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """None."""
        return np.zeros(0, np.int64)


#: More than any node's CPU in thousandths, so that GPUs decide first.
_GPUS_FIRST = 1 << 24

MOST_ALLOCATED = Weights("most_allocated", gpu=_GPUS_FIRST, cpu=1, memory=0)
SPREAD = Weights("spread", gpu=-_GPUS_FIRST, cpu=-1, memory=0)


#: Growth in points from which on the score, 100 / (1 + e^growth) rounded down, is less than 99, 98 … 1.
STEPS = tuple(round(1000 * POINTS * log((100 - score) / score)) for score in range(99, 0, -1))


class Fgd:
    """Least growth of expected fragmentation."""

    name = "fgd"
    absolute = False
    steps = STEPS

    def __init__(self) -> None:
        self._learned: list[tuple[RequestShape, int, int]] = []
        self._total = 1
        self._columns: Ints = np.zeros((6, 0), np.int64)

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """The typical work, as it is now."""
        self._learned = [(shape, weight, pool.mask(shape)) for shape, weight in work.with_gpus()]
        self._total = max(1, sum(weight for _, weight, _ in self._learned))
        self._columns = np.array([(*shape[:4], weight, models) for shape, weight, models in self._learned], np.int64)
        self._columns = self._columns.reshape(-1, 6).T

    def held(self, states: NodeStates) -> StateCosts:
        """Expected fragments per state."""
        return nothing_priced(fragments(states, self._learned) * POINTS // self._total)

    def held_by(self, state: NodeState) -> tuple[int, list[int]]:
        """The same for one state."""
        cpu, memory, count, milli, weight, models = self._columns
        gpus = np.array(state.gpus, np.int64)
        enough = gpus >= milli[:, np.newaxis]
        room = (
            (cpu <= state.cpu) & (memory <= state.memory) & (models & state.model != 0) & (enough.sum(axis=1) >= count)
        )
        unusable = np.where(room, np.where(enough, 0, gpus).sum(axis=1), gpus.sum())
        return int(weight @ unusable) * POINTS // self._total, []

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """None."""
        return np.zeros(0, np.int64)


def fragments(states: NodeStates, work: list[tuple[RequestShape, int, int]]) -> Ints:
    """Thousandths of a GPU by weight: the sum over (shape, weight, bits of its models) of what it cannot use."""
    free = states.free_milli
    small: dict[int, Ints] = {}
    total = np.zeros(len(free), np.int64)
    for shape, weight, models in work:
        if shape.gpu_milli not in small:
            small[shape.gpu_milli] = np.where(states.gpus < shape.gpu_milli, states.gpus, 0).sum(axis=1)
        total += weight * np.where(fits(states, shape, models), small[shape.gpu_milli], free)
    return total


DEFAULT: Packing = PoolSettings().packing

#: {name: a new one}
POLICIES: dict[str, Callable[[], Policy]] = {
    "fragmentation": Fragmentation,
    "fgd": Fgd,
    "most_allocated": lambda: MOST_ALLOCATED,
    "spread": lambda: SPREAD,
    "weights": Weights,
}


class Fragmented(NamedTuple):
    """Free GPUs, and how much of them the typical request cannot use, both in thousandths of a GPU."""

    free_milli: int
    unusable_milli: int


def fragmentation(
    pool: Population, work: TypicalWork, left_out: Ints | int = 0, free_milli_left_out: int = 0
) -> Fragmented:
    """Measure by the typical work; nothing is unusable as long as no work was seen.

    `left_out`: the nodes of each row that do not count, which have `free_milli_left_out` together.
    """
    free_milli = pool.free_milli - free_milli_left_out
    typical = [(shape, weight, pool.mask(shape)) for shape, weight in work.with_gpus()]
    total = sum(weight for _, weight, _ in typical)
    if not total:
        return Fragmented(free_milli, 0)
    unusable = int((pool.counts - left_out) @ fragments(pool.states, typical))
    return Fragmented(free_milli, unusable // total)
