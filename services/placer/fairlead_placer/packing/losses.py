"""Cost of each state of a lattice under a policy, as columns that grow: its loss, less the room in it that has a price."""

import numpy as np

from fairlead_placer.packing.policy import Held
from fairlead_placer.packing.states import Ints

#: Prices stay as they are until one of them has moved by more than so many points.
MOVED = 100


class Losses:
    """By state's number, in points."""

    def __init__(self) -> None:
        self.start(Held(np.zeros(0, np.int64), np.zeros((0, 0), np.int64)))

    def start(self, held: Held) -> None:
        """Start with these states, without prices."""
        self.length = len(held.fixed)
        self._prices: Ints | None = None
        self._fixed, self._slots, self._cost = held.fixed, held.slots, np.zeros(self.length, np.int64)

    @property
    def fixed(self) -> Ints:
        """Losses whatever prices are."""
        return self._fixed[: self.length]

    @property
    def slots(self) -> Ints:
        """Room of each kind, in thousandths of a GPU."""
        return self._slots[: self.length]

    @property
    def cost(self) -> Ints:
        """Losses less what room is worth."""
        return self._cost[: self.length]

    def of(self, state: int) -> tuple[int, int]:
        """Return (the state's loss, its cost)."""
        return int(self._fixed[state]), int(self._cost[state])

    def price(self, prices: Ints) -> bool:
        """From now on these are the prices, in points per thousandth of a GPU; False where they are much as they were, and
        stay."""
        if self._prices is not None and np.abs(prices - self._prices).max(initial=0) <= MOVED:
            return False
        self._prices = prices
        self._cost[: self.length] = self.fixed - self.slots @ prices
        return True

    def add(self, held: Held) -> None:
        """More states."""
        first, self.length = self.length, self.length + len(held.fixed)
        if self.length > len(self._fixed):
            self._widen(len(held.fixed))
        assert self._prices is not None, "states are priced before there are more"
        self._fixed[first : self.length], self._slots[first : self.length] = held
        self._cost[first : self.length] = held.fixed - held.slots @ self._prices

    def _widen(self, more: int) -> None:
        room = len(self._fixed) + more
        self._fixed, self._cost = (
            np.concatenate([each, np.zeros(room, np.int64)]) for each in (self._fixed, self._cost)
        )
        self._slots = np.concatenate([self._slots, np.zeros((room, self._slots.shape[1]), np.int64)])
