"""The port of packing policies: what a state of a node costs, in integers.

The cost of a choice is what the node's state after it costs less what it cost before; the cheapest choice is
taken, ties by the lowest node. A cost has a fixed part, kept per state as long as the policy stands, and a
part with prices that may change at any time: how much of each scarce thing the choice gives up.
"""

from typing import NamedTuple, Protocol

import numpy as np

from fairlead_placer.packing.population import Population
from fairlead_placer.packing.states import Ints, State, States
from fairlead_placer.packing.typical import TypicalWork

#: Costs are in so many parts of a thousandth of a GPU.
POINTS = 1000
#: A price of one, in parts: what is given up then costs what it is.
PRICE_ONE = 4096


class Held(NamedTuple):
    """What states cost: `fixed` in points per row; `slots` in thousandths of a GPU, per row and priced thing."""

    fixed: Ints
    slots: Ints


class Policy(Protocol):
    """How to weigh what a choice leaves."""

    @property
    def name(self) -> str:
        """As it is chosen by."""
        ...

    @property
    def absolute(self) -> bool:
        """True when only the state after a choice counts, not what was there before."""
        ...

    @property
    def steps(self) -> tuple[int, ...]:
        """Ascending: only how many of these the fixed part exceeds counts; none, where the fixed part itself does."""
        ...

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """Look at the pool and the work anew: what `held` says changes now, and only now."""
        ...

    def held(self, states: States) -> Held:
        """What each state costs."""
        ...

    def held_by(self, state: State) -> tuple[int, list[int]]:
        """What one state costs: (fixed, slots), the very figures that `held` has for it."""
        ...

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """The price of each thing now, in parts of PRICE_ONE; `slots` has what the pool holds of each altogether."""
        ...


def nothing_priced(fixed: Ints) -> Held:
    """For policies without prices."""
    return Held(fixed, np.zeros((len(fixed), 0), np.int64))
