"""The normal distribution as two tables of integers: how likely is more, and how much more is to be expected.

Made of additions, multiplications and divisions of Python integers, so that every machine has the same tables.
"""

from math import isqrt

#: Steps per standard deviation, and how far the tables go to each side.
STEPS, REACH = 64, 4
#: One, in the tables.
ONE = 4096

#: Fixed point of the sums below.
_FINE = 10**18


def _exponential(numerator: int, denominator: int) -> int:
    """e^(-numerator / denominator) in units of 1 / _FINE, by halving the argument until its series is short."""
    halvings = 0
    while numerator > denominator:
        denominator *= 2
        halvings += 1
    total, term, n = 0, _FINE, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * numerator // (denominator * n)
    for _ in range(halvings):
        total = total * total // _FINE
    return total


def _tables() -> tuple[list[int], list[int]]:
    """Chance and loss at -REACH..REACH: from the far end, where both are all but 0, each the sum of the one before."""
    root = isqrt(2 * 3141592653589793238 * _FINE)
    density = [_exponential(n * n, 2 * STEPS * STEPS) * _FINE // root for n in range(2 * REACH * STEPS + 1)]
    chance, loss, tail = 0, 0, dict[int, tuple[int, int]]()
    for n in range(2 * REACH * STEPS, -REACH * STEPS - 1, -1):
        tail[n] = (chance, loss)
        more = chance + (density[abs(n)] + density[abs(n - 1)]) // (2 * STEPS)
        loss += (chance + more) // (2 * STEPS)
        chance = more
    span = range(-REACH * STEPS, REACH * STEPS + 1)
    return [tail[n][0] * ONE // _FINE for n in span], [tail[n][1] * ONE // _FINE for n in span]


#: `CHANCE[REACH * STEPS + n]`: the chance, of ONE, that a standard normal variable is above n / STEPS.
#: `LOSS[...]`: by how much it is above on average (0 where it is below), in units of 1 / ONE.
CHANCE, LOSS = _tables()
