"""Position of a job in its line, as one integer: priority descending, then the earliest deadline, then the order of arrival,
then array index.

127                       117               53                   17                0
| PRIORITY_MAX - priority | deadline, Unix ns | place              | array offset   |

Places are given one after the other: to a job when it arrives, and again when it has had its slice.

The position orders jobs of one queue. Between queues the pool's sequencer decides; an offer's rank is another number.
"""

from fairlead_schemas.jobfile.job_spec import ARRAY_ELEMENTS_MAX
from fairlead_schemas.units.ids import PRIORITY_MAX

OFFSET_BITS = 17
PLACE_BITS = 36
DEADLINE_BITS = 64
PLACE_MASK = (1 << PLACE_BITS) - 1
#: Of an order: which of two came first, whatever their priority.
CAME_MASK = (1 << PLACE_BITS + OFFSET_BITS) - 1
OFFSET_MASK = (1 << OFFSET_BITS) - 1
DEADLINE_MASK = (1 << DEADLINE_BITS) - 1
_DEADLINE_SHIFT = OFFSET_BITS + PLACE_BITS
_PRIORITY_SHIFT = _DEADLINE_SHIFT + DEADLINE_BITS

assert ARRAY_ELEMENTS_MAX <= 1 << OFFSET_BITS

#: Between the ranks of two offers that are made one after the other: room for those that come in between.
RANK_STEP = 1 << 20


def order_of(priority: int, place: int, offset: int = 0, deadline_ns: int = 0, *, newest_first: bool = False) -> int:
    """Smaller goes first. No deadline (0) comes behind every deadline."""
    if newest_first:
        place = PLACE_MASK - place
    urgency = (PRIORITY_MAX - priority) << DEADLINE_BITS | (deadline_ns or DEADLINE_MASK)
    return urgency << _DEADLINE_SHIFT | place << OFFSET_BITS | offset


def priority_of(order: int) -> int:
    """The priority in an order."""
    return PRIORITY_MAX - (order >> _PRIORITY_SHIFT)


def place_of(order: int, *, newest_first: bool = False) -> int:
    """The place in an order."""
    place = order >> OFFSET_BITS & PLACE_MASK
    return PLACE_MASK - place if newest_first else place


def offset_of(order: int) -> int:
    """The array offset (index - first) in an order."""
    return order & OFFSET_MASK
