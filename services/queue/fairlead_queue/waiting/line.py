"""A line of waiting jobs in order: appended at the end, taken from the front, cheap in both.

Jobs come back into the middle now and then (a retry, a release): that is a bisection and a move of
memory, microseconds even at a hundred thousand.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

#: Places freed at the front before they are cut off.
SLACK_MAX = 512


class Ordered(Protocol):
    """Any object that can be in a line."""

    order: int


_order = attrgetter("order")


class Line[J: Ordered]:
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
