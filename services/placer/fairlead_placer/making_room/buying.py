"""The cheapest runs to leave one node so that a unit fits there, by branch and bound.

A run is spared if the unit fits without its part, the dearest first. The branch in which it goes instead is tried if
the sum, plus the lower bound from amounts alone, is below the best found. The result is exact unless patience ends. The
first descent always completes, and its result is minimal.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.making_room.bounds import Bound, amounts_of
from fairlead_placer.making_room.prices import Price

#: Sets of runs that are judged for one node, and for a whole preemption request. 10 candidates have 2047 sets
#: that could be asked about.
ROOM_PATIENCE = 1 << 11
PATIENCE = 1 << 16


class Patience:
    """Remaining search budget; once it is used up, the first result found is taken."""

    __slots__ = ("left",)

    def __init__(self, left: int = PATIENCE) -> None:
        self.left = left


class Bought(NamedTuple):
    """Runs that go, and the sum of their prices."""

    price: int
    runs: tuple[int, ...]


def cheapest(left: Left, ask: Ask, prices: Sequence[Price], patience: Patience) -> Bought | None:
    """The cheapest of them that must go; None when all together would not do. `left` is not changed."""
    if isinstance(seat(left, ask), Seat):
        return Bought(0, ())
    trial = left.copy()
    for each in prices:
        trial.give(each.part)
    if not isinstance(seat(trial, ask), Seat):
        return None
    return _Search(trial, ask, sorted(prices, key=lambda each: (-each.price, -each.at)), patience).find()


class _Search:
    """`trial` has what is free with all gone who are not spared yet."""

    def __init__(self, trial: Left, ask: Ask, order: Sequence[Price], patience: Patience) -> None:
        self.trial, self.ask, self.order = trial, ask, order
        self.patience = patience
        self.until = patience.left - ROOM_PATIENCE
        self.bounds = [Bound(of, order) for of in amounts_of(trial, ask, order)]
        self.going: list[int] = []
        self.best: Bought | None = None

    def find(self) -> Bought | None:
        self._descend(0, 0)
        return self.best

    def _descend(self, at: int, paid: int) -> None:
        self.patience.left -= 1
        if self.best is not None:
            if self.patience.left < max(0, self.until):
                return
            if paid + self._at_least(at) >= self.best.price:
                return
        if at == len(self.order):
            self.best = Bought(paid, tuple(sorted(self.going)))
            return
        each = self.order[at]
        self.trial.take(each.part)
        if isinstance(seat(self.trial, self.ask), Seat):
            self._descend(at + 1, paid)
        self.trial.give(each.part)
        self.going.append(each.at)
        self._descend(at + 1, paid + each.price)
        self.going.pop()

    def _at_least(self, at: int) -> int:
        """Return the least cost of the undecided runs, with each amount taken alone."""
        return max((bound.at_least(at, self.trial) for bound in self.bounds), default=0)
