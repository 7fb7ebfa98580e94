"""Attempts that could be offered, in order: jobs in line and jobs whose open offers were taken back, and arrays as the
elements that they represent.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from fairlead_queue.fairness.waiting_line import OFFSET_MASK
from fairlead_queue.waiting.pending import Array, Lane, Leaf, LiveJob
from fairlead_schemas.units.ids import element_id

job_order = attrgetter("order")


class OfferCandidate(NamedTuple):
    """An attempt that could be offered; `job` is the array for an element that is not born."""

    order: int
    id: str
    attempt: int
    job: LiveJob


def lane_candidates(lane: Lane, reopened: list[LiveJob] | None, moved: Collection[str]) -> Iterator[OfferCandidate]:
    """Yield a lane's candidates in order, with those whose offers were taken back for this decision, without those that it has
    moved.
    """
    waiting: Iterable[LiveJob] = lane.waiting()
    if reopened:
        waiting = merge(waiting, reopened, key=job_order) if lane.lines else reopened
    return candidates_of(waiting, moved)


def leaf_candidates(leaf: Leaf, reopened: list[LiveJob], moved: Collection[str]) -> Iterator[OfferCandidate]:
    """Yield the candidates of all lanes of a leaf in order. `reopened`: jobs of the leaf whose offers were taken back, in order."""
    lines = [job.lane.waiting() for _, job in leaf.fronts]
    return candidates_of(merge(*lines, reopened, key=job_order) if lines else reopened, moved)


def candidates_of(jobs: Iterable[LiveJob], moved: Collection[str]) -> Iterator[OfferCandidate]:
    """Yield the candidates that these jobs stand for, without those of `moved` jobs."""
    for job in jobs:
        if job.id in moved:
            continue
        if isinstance(job, Array):
            yield from _elements(job)
        else:
            yield OfferCandidate(job.order, job.id, job.attempt, job)


def _elements(array: Array) -> Iterator[OfferCandidate]:
    offset = array.order & OFFSET_MASK
    base = array.order - offset
    last = array.last - array.first
    if array.limit:
        last = min(last, offset + array.limit - len(array.live) - 1)
    for at in range(offset, last + 1):
        yield OfferCandidate(base + at, element_id(array.id, array.first + at), 1, array)


def is_offered(candidate: OfferCandidate) -> bool:
    """Return True if the placer has an offer of the candidate."""
    return candidate.job.open and candidate.job.id == candidate.id
