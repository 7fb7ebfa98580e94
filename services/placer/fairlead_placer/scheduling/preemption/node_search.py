"""The cheapest runs to leave one node so that a unit fits there, by branch and bound.

A run is spared if the unit fits without its part, the dearest first. The branch in which it goes instead is tried if
the sum, plus the lower bound from amounts alone, is below the best found. The result is exact unless patience ends. The
first descent always completes, and its result is minimal.

Lower bounds on the cost of raising a node's amounts to a unit's needs, whatever else holds inside the node.

For one amount alone (whole GPUs, milli-CPU, MiB), fractions of runs would be the cheapest: Dantzig's bound.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest
from fairlead_placer.scheduling.preemption.candidates import VictimPrice
from fairlead_schemas.wire.events import Part


class Amount(NamedTuple):
    """An additive amount: the unit's need, the node's remainder, and the gain from a part."""

    needed: int
    left: Callable[[FreeResources], int]
    gain: Callable[[Part], int]


def amounts_of(left: FreeResources, ask: UnitRequest, order: Sequence[VictimPrice]) -> list[Amount]:
    """The amounts that a unit needs."""
    request = ask.request
    found: list[Amount] = []
    if request.cpu_milli:
        found.append(Amount(request.cpu_milli, _cpu_left, _cpu_of))
    if request.memory_mib:
        found.append(Amount(request.memory_mib, _memory_left, _memory_of))
    # A GPU that shares are on comes free with the last of them: GPUs do not add up then.
    if ask.gpus and ask.whole and not any(each.part.gpu_milli for each in order):
        found.append(_gpus(left, ask))
    return found


def _cpu_left(left: FreeResources) -> int:
    return left.cpu_milli


def _cpu_of(part: Part) -> int:
    return part.cpu_milli


def _memory_left(left: FreeResources) -> int:
    return left.memory_mib


def _memory_of(part: Part) -> int:
    return part.memory_mib


def _gpus(left: FreeResources, ask: UnitRequest) -> Amount:
    """GPUs that suit and are well."""
    usable = ask.verdict(left.build).suits & ~left.faulted
    able = {uuid for uuid, place in left.at.items() if usable >> place & 1}

    def free(now: FreeResources) -> int:
        return (now.free & usable).bit_count()

    def given(part: Part) -> int:
        return sum(uuid in able for uuid in part.gpus)

    return Amount(ask.gpus, free, given)


class Bound:
    """The bound by one amount, for runs that are decided upon in a given order."""

    __slots__ = ("_amount", "_by_ratio", "_later")

    def __init__(self, amount: Amount, order: Sequence[VictimPrice]) -> None:
        self._amount = amount
        gains = [amount.gain(each.part) for each in order]
        #: [place in the order]: what that one and all later ones give back.
        self._later = [0] * (len(gains) + 1)
        for at in range(len(gains) - 1, -1, -1):
            self._later[at] = self._later[at + 1] + gains[at]
        able = [(each.price, gain, at) for at, (each, gain) in enumerate(zip(order, gains, strict=True)) if gain > 0]
        self._by_ratio = sorted(able, key=lambda each: Fraction(each[0], each[1]))

    def at_least(self, at: int, left: FreeResources) -> int:
        """Return the least joint cost of the runs from `at` on. `left` is the node with all of them gone."""
        missing = self._amount.needed - (self._amount.left(left) - self._later[at])
        cost = 0
        for price, gain, place in self._by_ratio:
            if missing <= 0:
                break
            if place >= at:
                cost += price if gain <= missing else price * missing // gain
                missing -= gain
        return cost


#: Sets of runs that are judged for one node, and for a whole preemption request. 10 candidates have 2047 sets
#: that could be asked about.
ROOM_PATIENCE = 1 << 11
PATIENCE = 1 << 16


class SearchBudget:
    """Remaining search budget; once it is used up, the first result found is taken."""

    __slots__ = ("left",)

    def __init__(self, left: int = PATIENCE) -> None:
        self.left = left


class NodeVictims(NamedTuple):
    """Runs that go, and the sum of their prices."""

    price: int
    runs: tuple[int, ...]


def cheapest(
    left: FreeResources, ask: UnitRequest, prices: Sequence[VictimPrice], patience: SearchBudget
) -> NodeVictims | None:
    """The cheapest of them that must go; None when all together would not do. `left` is not changed."""
    if isinstance(seat(left, ask), NodeAllocation):
        return NodeVictims(0, ())
    trial = left.copy()
    for each in prices:
        trial.give(each.part)
    if not isinstance(seat(trial, ask), NodeAllocation):
        return None
    return _Search(trial, ask, sorted(prices, key=lambda each: (-each.price, -each.at)), patience).find()


class _Search:
    """`trial` has what is free with all gone who are not spared yet."""

    def __init__(
        self, trial: FreeResources, ask: UnitRequest, order: Sequence[VictimPrice], patience: SearchBudget
    ) -> None:
        self.trial, self.ask, self.order = trial, ask, order
        self.patience = patience
        self.until = patience.left - ROOM_PATIENCE
        self.bounds = [Bound(of, order) for of in amounts_of(trial, ask, order)]
        self.going: list[int] = []
        self.best: NodeVictims | None = None

    def find(self) -> NodeVictims | None:
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
            self.best = NodeVictims(paid, tuple(sorted(self.going)))
            return
        each = self.order[at]
        self.trial.take(each.part)
        if isinstance(seat(self.trial, self.ask), NodeAllocation):
            self._descend(at + 1, paid)
        self.trial.give(each.part)
        self.going.append(each.at)
        self._descend(at + 1, paid + each.price)
        self.going.pop()

    def _at_least(self, at: int) -> int:
        """Return the least cost of the undecided runs, with each amount taken alone."""
        return max((bound.at_least(at, self.trial) for bound in self.bounds), default=0)
