"""Position of a job in its line, as one integer: priority, then deadline, then arrival, then array index. Also the
line itself: jobs join at the end and are taken from the front, both cheaply.

127                       117               53                   17                0
| PRIORITY_MAX - priority | deadline, Unix ns | place              | array offset   |

Places are given one after the other: to a job when it arrives, and again when it has had its slice.

The position orders jobs of one queue. Between queues the pool's sequencer decides; an offer's rank is another number.

Jobs come back into the middle now and then (a retry, a release): that is a bisection and a move of
memory, microseconds even at a hundred thousand.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

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


#: Places freed at the front before they are cut off.
SLACK_MAX = 512


class Ordered(Protocol):
    """Any object that can be in a line."""

    order: int


_order = attrgetter("order")


class WaitingLine[J: Ordered]:
    """Jobs by rising order. A job's order may rise while it is in the line, as long as it passes no other job."""

    __slots__ = ("_head", "_jobs")

    def __init__(self) -> None:
        self._jobs: list[J] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._jobs) - self._head

    def __bool__(self) -> bool:
        return len(self._jobs) > self._head

    def __iter__(self) -> Iterator[J]:
        """In order. The line must not change meanwhile."""
        jobs = self._jobs
        for at in range(self._head, len(jobs)):
            yield jobs[at]

    def first(self) -> J:
        """The job at the front; the line must not be empty."""
        return self._jobs[self._head]

    def add(self, job: J) -> None:
        """Put a job in its place."""
        jobs = self._jobs
        if not jobs or jobs[-1].order < job.order:
            jobs.append(job)
        else:
            jobs.insert(bisect_left(jobs, job.order, self._head, key=_order), job)

    def remove(self, job: J) -> None:
        """Take a job out; it must be here."""
        jobs, head = self._jobs, self._head
        if jobs[head] is job:
            self._head = head = head + 1
            if head > SLACK_MAX and head * 2 > len(jobs):
                del jobs[:head]
                self._head = 0
            return
        at = bisect_left(jobs, job.order, head, key=_order)
        assert jobs[at] is job, f"order {job.order} is not in its line"
        del jobs[at]

    def discard(self, job: J) -> None:
        """Take a job out if it is here."""
        jobs = self._jobs
        if jobs and jobs[-1] is job:  # mostly it came last
            jobs.pop()
            return
        at = bisect_left(jobs, job.order, self._head, key=_order)
        if at < len(jobs) and jobs[at] is job:
            del jobs[at]
