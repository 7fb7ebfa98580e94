"""Past use of queues, with older use counting less: half as much after each half-life.

    past = PastUse(tree, half_life_ns)
    if past.tick(at_ns):             first in every commit, with its time. True: a period has ended, values changed
        ranking.forget()
    past.settle(leaf, at_ns)         before every change of the leaf's charges
    past.value(node)                 [amount of each resource], in the unit of `Node.usage`

Time is cut into periods of 1/128 of the half-life (at least a second), counted from the Unix epoch. A period counts with
its average use. With d = 2 ** -(period / half-life), each period that ends makes

    value = value * d + average * (1 - d)

A use that stays the same is approached and never left; no use decays to nothing. All arithmetic is in integers and
without a clock: equal histories give equal values. A leaf is folded only when its charges change, over all periods since
in one step, so the result of `value` does not depend on how often `tick` is called.
"""

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

from fairlead_queue.fairness.tree import QueueNode, QueueTree
from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS

#: Where a pool does not say.
HALF_LIFE_DEFAULT_NS = 7 * DAY_NS
PERIODS_PER_HALF_LIFE = 128
PERIOD_MIN_NS = SECOND_NS
#: Binary places of a decay factor, and of an amount.
FACTOR_BITS, AMOUNT_BITS = 64, 16

_ONE = 1 << FACTOR_BITS


class PastUseRow(NamedTuple):
    """A leaf's past as plain data, each number within 64 bits: what a snapshot carries."""

    path: str
    settled_ns: int
    #: By resource: decayed use up to the beginning of the period of `settled_ns`, in 2**-16 of a unit.
    value: list[int]
    #: By resource: use times ns in that period up to `settled_ns`, as whole periods and ns.
    whole: list[int]
    rest_ns: list[int]


class _Past:
    """A leaf's past up to the time when its charges last changed."""

    __slots__ = ("area", "settled_ns", "value")

    def __init__(self, settled_ns: int, value: list[int], area: list[int]) -> None:
        self.settled_ns, self.value, self.area = settled_ns, value, area


class PastUse:
    """The decayed use of every leaf of a tree; of an inner node, the sum of those below."""

    def __init__(self, tree: QueueTree, half_life_ns: int = HALF_LIFE_DEFAULT_NS) -> None:
        self.tree = tree
        self.half_life_ns = half_life_ns
        self.period_ns = max(half_life_ns // PERIODS_PER_HALF_LIFE, PERIOD_MIN_NS)
        self._factor = half_to_the(self.period_ns, half_life_ns)
        #: {periods: what is left of a past after so many}
        self._powers: dict[int, int] = {0: _ONE, 1: self._factor}
        self._leaves: dict[QueueNode, _Past] = {}
        #: The period that is running, as of the last tick.
        self._period = 0
        self._values: dict[QueueNode, list[int]] = {}
        self._nothing = [0] * tree.width

    # ------------------------------------------------------------------ folding

    def settle(self, leaf: QueueNode, at_ns: int) -> None:
        """Count what the leaf has used until now; to be called before its charges change."""
        past = self._leaves.get(leaf)
        if past is None:
            zeros = [0] * self.tree.width
            self._leaves[leaf] = _Past(at_ns, zeros, zeros.copy())
            return
        if at_ns <= past.settled_ns:
            return  # commits of one moment; and a clock that steps back takes nothing away
        usage, begin = leaf.usage, at_ns // self.period_ns
        assert begin <= self._period, f"{leaf.path!r}: tick({at_ns}) comes before its charges change"
        if begin > past.settled_ns // self.period_ns:
            past.value = self._folded(past, usage, begin)
            past.area = [used * (at_ns - begin * self.period_ns) for used in usage]
        else:
            past.area = [area + used * (at_ns - past.settled_ns) for area, used in zip(past.area, usage, strict=True)]
        past.settled_ns = at_ns

    def forget(self, node: QueueNode) -> None:
        """The node leaves the tree, and its past with it."""
        self._leaves.pop(node, None)
        self._values.pop(node, None)

    def settled(self, at_ns: int) -> "list[tuple[str, _Past]]":
        """(path, past) of every leaf, counted until now."""
        for leaf in self._leaves:
            self.settle(leaf, at_ns)
        return [(leaf.path, past) for leaf, past in self._leaves.items()]

    def begin(self, at_ns: int) -> None:
        """Start counting at this moment, with no use before."""
        self._period = at_ns // self.period_ns

    def take_over(self, before: "PastUse", place: "Callable[[str], QueueNode | None]", at_ns: int) -> None:
        """Take over the use of the leaves of another tree, resource by resource; `place` returns this tree's leaf for each path.
        Where periods are of another length, use in the running period is not counted.
        """
        names = before.tree.resources
        for path, past in before.settled(at_ns):
            node = place(path)
            if node is None:
                continue
            mine = self._leaves.get(node)
            if mine is None:
                zeros = [0] * self.tree.width
                mine = self._leaves[node] = _Past(at_ns, zeros, zeros.copy())
            mine.settled_ns = max(mine.settled_ns, past.settled_ns)
            is_alike = before.period_ns == self.period_ns
            for at, name in enumerate(self.tree.resources):
                if name in names:
                    then = names.index(name)
                    mine.value[at] += past.value[then]
                    mine.area[at] += past.area[then] if is_alike else 0
        self._values = self._evaluated()

    def tick(self, at_ns: int) -> bool:
        """Advance to a time. Return True when a period has ended and some node's value has changed with it."""
        period = at_ns // self.period_ns
        if period <= self._period:
            return False
        self._period = period
        before = self._values
        self._values = self._evaluated()
        return self._values != before

    # ------------------------------------------------------------------ values

    def value(self, node: QueueNode) -> list[int]:
        """By resource, the decayed average use up to the last period that has ended (do not change the list)."""
        return self._values.get(node, self._nothing)

    def _evaluated(self) -> dict[QueueNode, list[int]]:
        """Return the value of every node that has past use."""
        self._powers = {0: _ONE, 1: self._factor}  # the numbers of periods are others each time
        values: dict[QueueNode, list[int]] = {}
        for leaf, past in self._leaves.items():
            fine = past.value
            if self._period > past.settled_ns // self.period_ns:
                fine = self._folded(past, leaf.usage, self._period)
            value = [amount >> AMOUNT_BITS for amount in fine]
            if not any(value):
                continue
            for node in leaf.up():
                total = values.get(node)
                if total is None:
                    values[node] = value.copy()
                else:
                    for at, amount in enumerate(value):
                        total[at] += amount
        return values

    def _folded(self, past: _Past, usage: list[int], period: int) -> list[int]:
        """A leaf's value when `period` begins, a later one than that of its last settlement."""
        length = self.period_ns
        first = past.settled_ns // length
        rest_ns = (first + 1) * length - past.settled_ns
        left = self._power(period - first - 1)
        once, folded = self._factor, list[int]()
        for value, area, used in zip(past.value, past.area, usage, strict=True):
            average = ((area + used * rest_ns) << AMOUNT_BITS) // length
            after_first = (value * once + average * (_ONE - once)) >> FACTOR_BITS
            steady = used << AMOUNT_BITS
            folded.append((after_first * left + steady * (_ONE - left)) >> FACTOR_BITS)
        return folded

    def _power(self, periods: int) -> int:
        """The decay over whole periods, by squaring: years of them cost no more than minutes."""
        power = self._powers.get(periods)
        if power is None:
            half = self._power(periods >> 1)
            power = half * half >> FACTOR_BITS
            if periods & 1:
                power = power * self._factor >> FACTOR_BITS
            self._powers[periods] = power
        return power

    # ------------------------------------------------------------------ snapshots

    def dump(self) -> tuple[int, list[PastUseRow]]:
        """(the running period, the leaves' pasts by path): all that is not in the tree."""
        rows: list[PastUseRow] = []
        for leaf, past in self._leaves.items():
            parts = [divmod(area, self.period_ns) for area in past.area]
            whole, rest_ns = [whole for whole, _ in parts], [rest for _, rest in parts]
            rows.append(PastUseRow(leaf.path, past.settled_ns, past.value, whole, rest_ns))
        return self._period, sorted(rows)

    def load(self, dumped: tuple[int, list[PastUseRow]]) -> None:
        """Take over what was dumped; the tree has the same leaves and charges as then."""
        self._period, rows = dumped
        self._leaves = {}
        for row in rows:
            area = [whole * self.period_ns + rest for whole, rest in zip(row.whole, row.rest_ns, strict=True)]
            self._leaves[self.tree.nodes[row.path]] = _Past(row.settled_ns, list(row.value), area)
        self._values = self._evaluated()


def half_to_the(part: int, whole: int) -> int:
    """2 ** -(part / whole), in 2**-64, rounded down: by binary digits of the exponent, one square root for each."""
    exponent, rest = divmod(part, whole)
    guard = 32
    one = 1 << FACTOR_BITS + guard
    power, root = one, one >> 1
    for _ in range(FACTOR_BITS + guard):
        root = isqrt(root * one)
        rest *= 2
        if rest >= whole:
            rest -= whole
            power = power * root // one
    return power >> exponent + guard
