"""Lower bounds on the cost of raising a node's amounts to a unit's needs, whatever else holds inside the node.

For one amount alone (whole GPUs, milli-CPU, MiB), fractions of runs would be the cheapest: Dantzig's bound.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.left import Left
from fairlead_placer.making_room.prices import Price
from fairlead_schemas.wire.events import Part


class Amount(NamedTuple):
    """An additive amount: the unit's need, the node's remainder, and the gain from a part."""

    needed: int
    left: Callable[[Left], int]
    gain: Callable[[Part], int]


def amounts_of(left: Left, ask: Ask, order: Sequence[Price]) -> list[Amount]:
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


def _cpu_left(left: Left) -> int:
    return left.cpu_milli


def _cpu_of(part: Part) -> int:
    return part.cpu_milli


def _memory_left(left: Left) -> int:
    return left.memory_mib


def _memory_of(part: Part) -> int:
    return part.memory_mib


def _gpus(left: Left, ask: Ask) -> Amount:
    """GPUs that suit and are well."""
    usable = ask.verdict(left.build).suits & ~left.faulted
    able = {uuid for uuid, place in left.at.items() if usable >> place & 1}

    def free(now: Left) -> int:
        return (now.free & usable).bit_count()

    def given(part: Part) -> int:
        return sum(uuid in able for uuid in part.gpus)

    return Amount(ask.gpus, free, given)


class Bound:
    """The bound by one amount, for runs that are decided upon in a given order."""

    __slots__ = ("_amount", "_by_ratio", "_later")

    def __init__(self, amount: Amount, order: Sequence[Price]) -> None:
        self._amount = amount
        gains = [amount.gain(each.part) for each in order]
        #: [place in the order]: what that one and all later ones give back.
        self._later = [0] * (len(gains) + 1)
        for at in range(len(gains) - 1, -1, -1):
            self._later[at] = self._later[at + 1] + gains[at]
        able = [(each.price, gain, at) for at, (each, gain) in enumerate(zip(order, gains, strict=True)) if gain > 0]
        self._by_ratio = sorted(able, key=lambda each: Fraction(each[0], each[1]))

    def at_least(self, at: int, left: Left) -> int:
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
