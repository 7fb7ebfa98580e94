"""Port of packing policies: the cost of a node's state, in integers.

The cost of a choice is the cost of the node's state after it, less that before it. The cheapest choice is taken; ties
go to the lowest node. A cost has a fixed part and a priced part. The fixed part is kept per state for the life of the
policy. The prices of the other part may change at any time: it counts how much of each scarce thing the choice gives
up.
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
    """Costs of states: `fixed` in points per row; `slots` in thousandths of a GPU, per row and priced thing."""

    fixed: Ints
    slots: Ints


class Policy(Protocol):
    """Weighing of the states that a choice leaves."""

    @property
    def name(self) -> str:
        """Name under which the policy is chosen."""
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
        """Learn the pool and the work again. The results of `held` change now, and only now."""
        ...

    def held(self, states: States) -> Held:
        """Return the cost of each state."""
        ...

    def held_by(self, state: State) -> tuple[int, list[int]]:
        """Return the cost of one state: (fixed, slots), the same figures as `held` has for it."""
        ...

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """The price of each thing now, in parts of PRICE_ONE; `slots` has what the pool holds of each altogether."""
        ...


def nothing_priced(fixed: Ints) -> Held:
    """For policies without prices."""
    return Held(fixed, np.zeros((len(fixed), 0), np.int64))
