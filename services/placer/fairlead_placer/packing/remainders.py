"""Value of the remainder of a shared GPU: a small cutting-stock problem over the sizes of arriving shares.

Sizes get prices under two conditions. The best filling of a whole GPU is worth a whole GPU. The shares that the prices
would buy (for the GPUs open now, and as many fresh ones as the work pays for) are those that will arrive. A size that
leaves no room in the remainders of others gets a price near 0. The prices are found by raising those in excess demand,
in a fixed number of steps, in integers.
"""

from math import gcd, isqrt

import numpy as np

from fairlead_placer.packing.population import Population
from fairlead_placer.packing.shapes import WHOLE_MILLI
from fairlead_placer.packing.states import Ints
from fairlead_placer.packing.typical import TypicalWork

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
