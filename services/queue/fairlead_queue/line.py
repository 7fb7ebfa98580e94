"""A line of waiting jobs in rank order: appended at the end, taken from the front, cheap in both.

Jobs come back into the middle now and then (a retry, a release): that is a bisection and a move of
memory, microseconds even at a hundred thousand.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

#: Places freed at the front before they are cut off.
SLACK_MAX = 512


class Ranked(Protocol):
    """Whatever can stand in a line."""

    rank: int


_rank = attrgetter("rank")


class Line[J: Ranked]:
    """Jobs by rising rank. A job's rank may rise while it stands here, as long as it passes nobody."""

    __slots__ = ("_head", "_jobs")

    def __init__(self) -> None:
        self._jobs: list[J] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._jobs) - self._head

    def __iter__(self) -> Iterator[J]:
        """In rank order. The line must not change meanwhile."""
        jobs = self._jobs
        for at in range(self._head, len(jobs)):
            yield jobs[at]

    def first(self) -> J:
        """The job at the front; the line must not be empty."""
        return self._jobs[self._head]

    def add(self, job: J) -> None:
        """Put a job in its place."""
        jobs = self._jobs
        if not jobs or jobs[-1].rank < job.rank:
            jobs.append(job)
        else:
            jobs.insert(bisect_left(jobs, job.rank, self._head, key=_rank), job)

    def remove(self, job: J) -> None:
        """Take a job out; it must be here."""
        jobs, head = self._jobs, self._head
        if jobs[head] is job:
            self._head = head = head + 1
            if head > SLACK_MAX and head * 2 > len(jobs):
                del jobs[:head]
                self._head = 0
            return
        at = bisect_left(jobs, job.rank, head, key=_rank)
        assert jobs[at] is job, f"rank {job.rank} is not in its line"
        del jobs[at]
