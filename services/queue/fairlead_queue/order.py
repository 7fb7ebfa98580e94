"""Where a job stands in its line, as one integer: priority descending, then the earliest deadline, then submit order,
then array index.

127                       117               53                   17                0
| PRIORITY_MAX - priority | deadline, Unix ns | number of the job  | array offset   |

It orders jobs of one queue. Between queues the pool's sequencer decides; an offer's rank is another number.
"""

from fairlead_schemas.jobspec import ARRAY_ELEMENTS_MAX, PRIORITY_MAX

OFFSET_BITS = 17
NUMBER_BITS = 36
DEADLINE_BITS = 64
NUMBER_MASK = (1 << NUMBER_BITS) - 1
OFFSET_MASK = (1 << OFFSET_BITS) - 1
DEADLINE_MASK = (1 << DEADLINE_BITS) - 1
_DEADLINE_SHIFT = OFFSET_BITS + NUMBER_BITS
_PRIORITY_SHIFT = _DEADLINE_SHIFT + DEADLINE_BITS

assert ARRAY_ELEMENTS_MAX <= 1 << OFFSET_BITS

#: Between the ranks of two offers that are made one after the other: room for those that come in between.
RANK_STEP = 1 << 20


def order_of(priority: int, number: int, offset: int = 0, deadline_ns: int = 0, *, newest_first: bool = False) -> int:
    """Smaller goes first. No deadline (0) comes behind every deadline."""
    if newest_first:
        number = NUMBER_MASK - number
    deadline = deadline_ns or DEADLINE_MASK
    return (PRIORITY_MAX - priority) << _PRIORITY_SHIFT | deadline << _DEADLINE_SHIFT | number << OFFSET_BITS | offset


def priority_of(order: int) -> int:
    """The priority in an order."""
    return PRIORITY_MAX - (order >> _PRIORITY_SHIFT)


def offset_of(order: int) -> int:
    """The array offset (index - first) in an order."""
    return order & OFFSET_MASK
