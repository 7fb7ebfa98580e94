"""Where jobs of one kind wait: queues, equivalence classes, and lanes (one queue's jobs of one class).

All jobs of a lane ask for the same and are charged to the same quota, so a gate that is closed for
the first of them is closed for all, and a cycle looks at lanes, not at jobs.
"""

from collections.abc import Iterator

from fairlead_queue.jobs import Job
from fairlead_queue.line import Line
from fairlead_schemas.resources import Request


class Klass:
    """An equivalence class: all jobs with an equal request. It is placed, refused and parked together."""

    __slots__ = ("jobs", "need", "open", "parked_at", "priorities", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        #: milli-GPU that one job is charged.
        self.need = request.gpu_milli_total
        #: The capacity counter at the last refusal: parked while capacity has not changed since.
        self.parked_at = -1
        #: Open offers, and how many of them at each priority.
        self.open = 0
        self.priorities: dict[int, int] = {}
        #: Live jobs; at 0 the class is forgotten.
        self.jobs = 0


class Lane:
    """The jobs of one class in one queue."""

    __slots__ = ("front", "jobs", "klass", "lines", "offers", "queue")

    def __init__(self, queue: "Queue", klass: Klass) -> None:
        self.queue = queue
        self.klass = klass
        #: {priority: its line}; a line goes when it is empty.
        self.lines: dict[int, Line[Job]] = {}
        #: Open offers {id: job}.
        self.offers: dict[str, Job] = {}
        self.jobs = 0
        #: Rank of the job whose turn is next, as `State.fronts` has it; 0 when none waits.
        self.front = 0

    def waiting(self) -> Iterator[Job]:
        """Jobs in line, in rank order. The lane must not change meanwhile."""
        for priority in sorted(self.lines, reverse=True) if len(self.lines) > 1 else tuple(self.lines):
            yield from self.lines[priority]

    def first(self) -> Job | None:
        """The job whose turn is next, if any waits."""
        return self.lines[max(self.lines)].first() if self.lines else None


class Queue:
    """One queue: its hard quota and what is charged to it."""

    __slots__ = ("charged", "first_rank", "lanes", "passed", "path", "quota")

    def __init__(self, path: str, quota: int | None) -> None:
        self.path = path
        #: milli-GPU over everything offered, placed and running; None: no quota.
        self.quota = quota
        self.charged = 0
        self.lanes: dict[Request, Lane] = {}
        #: Rank of the first waiting job that the quota could ever hold (0: none), and how many offers
        #: have passed it since it became the first. Kept for queues with a quota.
        self.first_rank = 0
        self.passed = 0
