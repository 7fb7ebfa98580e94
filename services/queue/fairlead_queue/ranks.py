"""The order of jobs as one integer: priority descending, then submit order, then array index.

63                53                   17                0
| PRIORITY_MAX - p | number of the job  | array offset   |
"""

from fairlead_schemas.jobspec import ARRAY_ELEMENTS_MAX, PRIORITY_MAX

OFFSET_BITS = 17
NUMBER_BITS = 36
NUMBER_MASK = (1 << NUMBER_BITS) - 1
OFFSET_MASK = (1 << OFFSET_BITS) - 1
_PRIORITY_SHIFT = OFFSET_BITS + NUMBER_BITS

assert ARRAY_ELEMENTS_MAX <= 1 << OFFSET_BITS
assert (PRIORITY_MAX << _PRIORITY_SHIFT) < 1 << 63


def rank_of(priority: int, number: int, offset: int = 0) -> int:
    """Offers are taken in rising rank; it fits a signed 64-bit integer."""
    return (PRIORITY_MAX - priority) << _PRIORITY_SHIFT | number << OFFSET_BITS | offset


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return PRIORITY_MAX - (rank >> _PRIORITY_SHIFT)


def offset_of(rank: int) -> int:
    """The array offset (index - first) in a rank."""
    return rank & OFFSET_MASK
