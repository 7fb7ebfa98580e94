"""Jobs that could be offered: a lane's jobs in order, an array as the elements that it represents."""

from collections.abc import Collection, Iterator
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from fairlead_queue.waiting.jobs import Array, Job
from fairlead_queue.waiting.lanes import Lane
from fairlead_queue.waiting.order import OFFSET_MASK
from fairlead_schemas.units.ids import element_id

_order = attrgetter("order")


class Candidate(NamedTuple):
    """An attempt that could be offered; `job` is the array for an element that is not born."""

    order: int
    id: str
    attempt: int
    job: Job


def candidates(lane: Lane, reopened: list[Job] | None, moved: Collection[str]) -> Iterator[Candidate]:
    """A lane's candidates in order, with those whose offers were taken back for this decision, without those that it has
    moved."""
    waiting: Iterator[Job] = lane.waiting()
    if reopened:
        waiting = merge(waiting, reopened, key=_order)
    for job in waiting:
        if job.id in moved:
            continue
        if isinstance(job, Array):
            yield from _elements(job)
        else:
            yield Candidate(job.order, job.id, job.attempt, job)


def _elements(array: Array) -> Iterator[Candidate]:
    offset = array.order & OFFSET_MASK
    base = array.order - offset
    last = array.last - array.first
    if array.limit:
        last = min(last, offset + array.limit - len(array.live) - 1)
    for at in range(offset, last + 1):
        yield Candidate(base + at, element_id(array.id, array.first + at), 1, array)
