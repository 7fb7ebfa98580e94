"""Simple policies that only look at what is left: the tightest node, the emptiest one, or weights for each resource."""

from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.policy import Held, nothing_priced
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.states import Ints, State, States
from fairlead_placer.packing.typical import TypicalWork


class Weights(NamedTuple):
    """The cost of what is left: per thousandth of a GPU, per thousandth of a CPU, per MiB; negative to spread."""

    name: str = "weights"
    gpu: int = 100
    cpu: int = 3
    memory: int = 1
    absolute: bool = True
    steps: tuple[int, ...] = ()

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """Nothing to learn."""

    def held(self, states: States) -> Held:
        """By what is left."""
        return nothing_priced(self.gpu * states.free_milli + self.cpu * states.cpu + self.memory * states.memory)

    def held_by(self, state: State) -> tuple[int, list[int]]:
        """The same for one state."""
        return self.gpu * sum(state.gpus) + self.cpu * state.cpu + self.memory * state.memory, []

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """None."""
        return np.zeros(0, np.int64)


#: More than any node's CPU in thousandths, so that GPUs decide first.
_GPUS_FIRST = 1 << 24

MOST_ALLOCATED = Weights("most_allocated", gpu=_GPUS_FIRST, cpu=1, memory=0)
SPREAD = Weights("spread", gpu=-_GPUS_FIRST, cpu=-1, memory=0)
