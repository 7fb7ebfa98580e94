"""Sets of GPUs or CPUs as one int: bit i represents member i.

Sets of equal size have an order, "earlier": by their members in rising order, so {0, 3} comes before {1, 2}.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations


def mask_of(members: Iterable[int]) -> int:
    """The set of these members; saying one twice changes nothing."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> tuple[int, ...]:
    """The members in rising order."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)


def subsets(mask: int, size: int) -> Iterator[int]:
    """Every subset of that size, earlier ones first."""
    return map(sum, combinations([1 << member for member in members_of(mask)], size))
