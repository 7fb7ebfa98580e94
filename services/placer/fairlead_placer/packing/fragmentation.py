"""The product's own policy: the cost of what a choice leaves unusable for the usual work.

Further parts:
- GPUs for which a node's CPU or memory will not suffice: a newsvendor's loss;
- value of the remainder of a shared GPU: a small cutting-stock problem over the sizes of arriving shares.

Three losses are added: GPUs stranded by lack of CPU and of memory (a newsvendor's loss), rests of shared GPUs that nothing fits
(a cutting-stock problem), and room of which there is little for those who need it (`scarcity.py`).

The GPUs that a node has left will be filled by typical work, whose need of CPU (or memory) per GPU varies. The average
need beyond the node's remainder leaves GPUs unusable.

Sizes get prices under two conditions. The best filling of a whole GPU is worth a whole GPU. The shares that the prices
would buy (for the GPUs open now, and as many fresh ones as the work pays for) are those that will arrive. A size that
leaves no room in the remainders of others gets a price near 0. The prices are found by raising those in excess demand,
in a fixed number of steps, in integers.
"""

from math import gcd, isqrt
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.policy import (
    POINTS,
    WHOLE_MILLI,
    Ints,
    NodeState,
    NodeStates,
    Population,
    StateCosts,
    TypicalWork,
)
from fairlead_placer.packing.scarcity import LOSS, ONE, REACH, STEPS, JobKind, kinds, room, room_of, scarcity_prices

_LOSS = np.array(LOSS, np.int64)
#: Fixed point of the needs below: GPUs per unit, and units per thousandth of a GPU.
_NEED_UNIT = 1 << 16
#: Beyond any machine, and such that what a node of 64 GPUs needs is exact in 64 bits, as its root is: a job may ask for more
#: than there can be.
MEAN_MAX, DEVIATION_MAX = 1 << 46, (1 << 23) - 1


class CompanionNeed(NamedTuple):
    """Need of typical work for a resource: the average per thousandth of a GPU, in units / 2^16; the deviation of the need of
    one whole GPU, in units; thousandths of a GPU per unit, by 2^16. All 0 when it needs none.
    """

    mean: int = 0
    deviation: int = 0
    gpu_per_unit: int = 0


def need(work: TypicalWork, of: str) -> CompanionNeed:
    """The need of the typical work with GPUs; `of` names the resource as `Shape` does."""
    shapes = [(shape.total_milli, getattr(shape, of), weight) for shape, weight in work.with_gpus()]
    gpus = sum(weight * milli for milli, _, weight in shapes)
    units = sum(weight * each for _, each, weight in shapes)
    if not units:
        return CompanionNeed()
    squares = sum(weight * (each - milli * units // gpus) ** 2 for milli, each, weight in shapes)
    mean, deviation = units * _NEED_UNIT // gpus, isqrt(squares * 1000 // gpus)
    return CompanionNeed(min(mean, MEAN_MAX), min(deviation, DEVIATION_MAX), min(gpus * _NEED_UNIT // units, 1 << 32))


def stranded(need: CompanionNeed, useful_milli: Ints, left: Ints) -> Ints:
    """Return points for the GPUs, among the useful ones, that are stranded on average with `left` of the resource."""
    if not need.mean:
        return np.zeros(len(left), np.int64)
    deviation = np.sqrt(useful_milli * need.deviation**2 // 1000).astype(np.int64) + 1
    surplus = left - (useful_milli * need.mean >> 16)
    steps = surplus * STEPS // deviation
    far = -REACH * STEPS
    lacking = deviation * _LOSS[np.clip(steps, far, -far) - far] // ONE
    lacking = np.where(steps < far, -surplus, lacking)
    gpus = np.minimum(lacking * need.gpu_per_unit >> 16, useful_milli)
    return gpus * POINTS


def stranded_by(need: CompanionNeed, useful_milli: int, left: int) -> int:
    """The same for one state."""
    if not need.mean:
        return 0
    deviation = isqrt(useful_milli * need.deviation**2 // 1000) + 1
    surplus = left - (useful_milli * need.mean >> 16)
    steps = surplus * STEPS // deviation
    if steps < -REACH * STEPS:
        lacking = -surplus
    else:
        lacking = deviation * LOSS[min(steps, REACH * STEPS) + REACH * STEPS] // ONE
    return min(lacking * need.gpu_per_unit >> 16, useful_milli) * POINTS


#: Sizes that are looked at, the most frequent first; a price is moved so often; the first quarter does not count.
SIZES_MAX, MOVES = 32, 60
#: How far the first move goes, in thousandths of a GPU, for a size of a tenth of a GPU and no demand met.
REACH_MILLI = 165
#: The finest grain that GPUs are cut by here, in thousandths of one; sizes between are rounded down.
GRAIN_MIN = 5
_FINE = 1000


def remainder_values(pool: Population, work: TypicalWork) -> Ints:
    """Return the value of a GPU by remaining thousandths, in thousandths of a GPU by 1000: 1,001 values."""
    sizes = share_sizes(work)
    if not sizes:
        values = np.zeros(WHOLE_MILLI + 1, np.int64)
        values[WHOLE_MILLI] = WHOLE_MILLI * _FINE
        return values
    grain = max(GRAIN_MIN, gcd(WHOLE_MILLI, *sizes))
    whole = WHOLE_MILLI // grain
    per_pod = sum(weight * shape.total_milli for shape, weight in work.weights.items())
    demand: dict[int, int] = {}
    for size, weight in sizes.items():
        cut = max(1, size // grain)
        demand[cut] = demand.get(cut, 0) + weight * pool.free_milli * _FINE // per_pod
    values = _settle(whole, list(demand.items()), _open(pool, grain))
    return np.array(values, np.int64)[np.arange(WHOLE_MILLI + 1) // grain]


def share_sizes(work: TypicalWork) -> dict[int, int]:
    """{size in thousandths: weight} of the shares that arrive, the most frequent ones."""
    sizes: dict[int, int] = {}
    for shape, weight in work.with_gpus():
        if shape.is_share:
            sizes[shape.gpu_milli] = sizes.get(shape.gpu_milli, 0) + weight
    return dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0]))[:SIZES_MAX])


def _open(pool: Population, grain: int) -> list[int]:
    """[GPUs that have so many grains left], whole ones left out, by 1000."""
    left = np.bincount(
        (pool.states.gpus // grain).ravel(),
        weights=np.repeat(pool.counts, pool.states.gpus.shape[1]),
        minlength=WHOLE_MILLI // grain + 1,
    )
    found = [int(count) * _FINE for count in left]
    found[0] = found[-1] = 0
    return found


def _settle(whole: int, demand: list[tuple[int, int]], rests: list[int]) -> list[int]:
    """Values of 0..whole grains, after all moves."""
    sizes = [size for size, _ in demand]
    grain = WHOLE_MILLI // whole
    prices = [size * grain * _FINE for size in sizes]
    sums = [0] * len(sizes)
    for move in range(MOVES):
        values, firsts = _fill(whole, sizes, prices)
        prices = [price * WHOLE_MILLI * _FINE // max(1, values[whole]) for price in prices]
        values = [value * WHOLE_MILLI * _FINE // max(1, values[whole]) for value in values]
        paid = sum(asked * price for (_, asked), price in zip(demand, prices, strict=True))
        paid -= sum(count * value for count, value in zip(rests, values, strict=True))
        bought = _bought(sizes, firsts, [*rests[:whole], max(0, paid) // (WHOLE_MILLI * _FINE)])
        if move >= MOVES // 4:
            sums = [total + price for total, price in zip(sums, prices, strict=True)]
        step = isqrt(_FINE**2 // (1 + move)) * REACH_MILLI
        for at, (size, asked) in enumerate(demand):
            pull = (asked - bought[at]) * _FINE // (asked + bought[at] + 1)
            prices[at] = max(0, prices[at] + step * pull // _FINE * (100 + size * grain) // 1000)
    values, _ = _fill(whole, sizes, sums)
    return [value * WHOLE_MILLI * _FINE // max(1, values[whole]) for value in values]


def _fill(whole: int, sizes: list[int], prices: list[int]) -> tuple[list[int], list[int]]:
    """Return, for 0..whole grains, the value of the best filling, and the place of a size in it (-1: leave a grain)."""
    values, firsts = [0] * (whole + 1), [-1] * (whole + 1)
    each = [(size, price, at) for at, (size, price) in enumerate(zip(sizes, prices, strict=True)) if size <= whole]
    for left in range(1, whole + 1):
        best, first = values[left - 1], -1
        for size, price, at in each:
            if size <= left and price + values[left - size] > best:
                best, first = price + values[left - size], at
        values[left], firsts[left] = best, first
    return values, firsts


def _bought(sizes: list[int], firsts: list[int], load: list[int]) -> list[int]:
    """Return the count of each size in the best fillings of the GPUs in `load`, which is used up."""
    bought = [0] * len(sizes)
    for left in range(len(load) - 1, 0, -1):
        if load[left]:
            at = firsts[left]
            if at < 0:
                load[left - 1] += load[left]
            else:
                bought[at] += load[left]
                load[left - sizes[at]] += load[left]
    return bought


#: A rest that is lost is lost for certain; the other losses are expected ones. It weighs so much more.
REST_WEIGHT = 4


class Fragmentation:
    """Least expected loss."""

    name = "fragmentation"
    absolute = False
    steps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._cpu, self._memory = CompanionNeed(), CompanionNeed()
        self._kinds: list[JobKind] = []
        self._value_each(np.arange(WHOLE_MILLI + 1) * POINTS)

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """Relearn needs, kinds and the values of remainders."""
        self._cpu, self._memory = need(work, "cpu_milli"), need(work, "memory_mib")
        self._kinds = kinds(pool, work)
        self._value_each(remainder_values(pool, work))

    def held(self, states: NodeStates) -> StateCosts:
        """Expected losses per state, and the room for each kind."""
        useful = self._values[states.gpus].sum(axis=1)
        rests = states.free_milli * POINTS - useful
        useful_milli = useful // POINTS
        fixed = REST_WEIGHT * rests
        fixed += stranded(self._cpu, useful_milli, states.cpu) + stranded(self._memory, useful_milli, states.memory)
        return StateCosts(fixed, room(self._kinds, states))

    def held_by(self, state: NodeState) -> tuple[int, list[int]]:
        """The same for one state."""
        gpus = state.gpus
        found = self._gpus.get(gpus)
        if found is None:
            useful = sum(self._value[each] for each in gpus)
            found = self._gpus[gpus] = sum(gpus), gpus.count(WHOLE_MILLI), useful
        free, whole, useful = found
        milli = useful // POINTS
        fixed = REST_WEIGHT * (free * POINTS - useful)
        fixed += stranded_by(self._cpu, milli, state.cpu) + stranded_by(self._memory, milli, state.memory)
        return fixed, room_of(self._kinds, state, free, whole)

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """Return the current scarcity price of each kind's room."""
        return scarcity_prices(self._kinds, pool, slots)

    def _value_each(self, values: Ints) -> None:
        self._values, self._value = values, values.tolist()
        #: {rests of GPUs: (what is free of them, number of unused ones, their worth)}
        self._gpus: dict[tuple[int, ...], tuple[int, int, int]] = {}
