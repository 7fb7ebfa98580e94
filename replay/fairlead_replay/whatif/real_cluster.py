"""What was real of each job: its attempts with their times, as the log has them. Start at `RealCluster.take`."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlead_replay.whatif.given import GivenCommand, GivenEvents
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit


class RunCall(NamedTuple):
    """What was asked or found of a run because of how far it was: a wish that it ends, an idle GPU."""

    attempt: int
    #: How long the run had run.
    offset_ns: int
    given: GivenCommand | GivenEvents


class RealAttempt:
    """Attempt as the log has it. Times are 0 where they did not come."""

    __slots__ = (
        "end",
        "ended_ns",
        "gone_ns",
        "halted_ns",
        "image",
        "is_end_late",
        "nodes",
        "number",
        "placed_ns",
        "rank_ended_ns",
        "rank_ends",
        "ranks",
        "saves",
        "started_ns",
        "stop_ns",
        "units",
    )

    def __init__(self, number: int, placed_ns: int, nodes: tuple[str, ...], units: int) -> None:
        self.number, self.placed_ns, self.nodes, self.units = number, placed_ns, nodes, units
        self.started_ns = self.ended_ns = 0
        #: When its agents were to begin a stop.
        self.stop_ns = 0
        #: When its other ranks were to end because one of them had; 0: they were not.
        self.halted_ns = 0
        self.end: ev.RunEnded | None = None
        self.image = ""
        #: The placer was away when it ended, so that the end was seen later than it came.
        self.is_end_late = False
        #: {rank: when it started}, of a gang.
        self.ranks: dict[int, int] = {}
        #: {rank: its end}, of ranks of a gang that ended before the last one.
        self.rank_ends: dict[int, ev.RankEnded] = {}
        #: {rank: when that was}
        self.rank_ended_ns: dict[int, int] = {}
        #: {node: when its part was free again}
        self.gone_ns: dict[str, int] = {}
        #: (when, note, whether it answers a notice)
        self.saves: list[tuple[int, str, bool]] = []

    def ran_ns(self, until_ns: int) -> int:
        """Return how long it ran, as far as its end was seen. One that has not ended ran up to `until_ns`."""
        if self.end is not None and self.end.ran_ns and self.is_end_late:
            return self.end.ran_ns
        return max(1, (self.decided_ns or until_ns) - self.started_ns)

    @property
    def decided_ns(self) -> int:
        """When the rank ended that decided the outcome; 0: it has not ended. The others of a gang may end later."""
        if self.end is None or self.end.rank not in self.rank_ended_ns:
            return self.ended_ns
        return self.rank_ended_ns[self.end.rank]


class RealJob:
    """Job, or element of an array, as the log has it."""

    __slots__ = ("attempts", "calls", "end", "ended_ns", "id", "queue", "reason", "submitted", "submitted_ns")

    def __init__(self, id: str, submitted: ev.JobSubmitted, submitted_ns: int) -> None:
        self.id, self.submitted, self.submitted_ns = id, submitted, submitted_ns
        self.queue = submitted.queue
        self.attempts: list[RealAttempt] = []
        #: "JobSucceeded", "JobFailed", "JobCancelled", and when; "", 0: not yet. Of a failure its reason.
        self.end, self.ended_ns, self.reason = "", 0, ""
        self.calls: list[RunCall] = []

    @property
    def is_array(self) -> bool:
        """True for an array as a whole."""
        return self.submitted.array is not None and "_" not in self.id

    @property
    def first_start_ns(self) -> int:
        """When it first ran; 0: never."""
        return next((each.started_ns for each in self.attempts if each.started_ns), 0)

    def attempt(self, number: int) -> RealAttempt | None:
        """The attempt of that number, None if there was none."""
        found = [each for each in self.attempts if each.number == number]
        return found[0] if found else None


class RealCluster:
    """Book of every job of a log, recorded or played. It folds commits; `stops` are noted by who has the state."""

    def __init__(self) -> None:
        self.jobs: dict[str, RealJob] = {}
        self.counts: Counter[str] = Counter()

    def take(self, commit: Commit, at_ns: int) -> None:
        """Take note of a commit's events."""
        for event in commit.events:
            self.counts[type(event).__name__] += 1
            handler = _BOOKS.get(type(event))
            if handler is not None:
                handler(self, event, at_ns)

    def adopt(self, others: "RealCluster", at_ns: int) -> None:
        """Start with the jobs of another log that were there at a time, as they were then."""
        for job in others.jobs.values():
            if job.submitted_ns <= at_ns:
                self.jobs[job.id] = _as_of(job, at_ns)

    def job_of(self, id_: str) -> RealJob | None:
        """The job; an element of an array is made on its first word. None: it was never submitted in this log."""
        found = self.jobs.get(id_)
        array = array_of(id_)
        if found is None and array is not None and array in self.jobs:
            parent = self.jobs[array]
            found = self.jobs[id_] = RealJob(id_, parent.submitted, parent.submitted_ns)
        return found

    def running(self, id_: str) -> RealAttempt | None:
        """The attempt of a job that runs now."""
        job = self.jobs.get(id_)
        last = job.attempts[-1] if job is not None and job.attempts else None
        return last if last is not None and last.started_ns and not last.ended_ns else None


def _as_of(job: RealJob, at_ns: int) -> RealJob:
    before = RealJob(job.id, job.submitted, job.submitted_ns)
    if 0 < job.ended_ns <= at_ns:
        before.end, before.ended_ns, before.reason = job.end, job.ended_ns, job.reason
    for each in job.attempts:
        if each.placed_ns > at_ns:
            break
        attempt = RealAttempt(each.number, each.placed_ns, each.nodes, each.units)
        attempt.started_ns = each.started_ns if each.started_ns <= at_ns else 0
        if 0 < each.ended_ns <= at_ns:
            attempt.ended_ns, attempt.end, attempt.stop_ns = each.ended_ns, each.end, each.stop_ns
            attempt.rank_ended_ns = dict(each.rank_ended_ns)
        before.attempts.append(attempt)
    return before


def _job_submitted(books: RealCluster, event: ev.JobSubmitted, at_ns: int) -> None:
    books.jobs[event.job] = RealJob(event.job, event, at_ns)


def _job_offered(books: RealCluster, event: ev.JobOffered, at_ns: int) -> None:
    books.job_of(event.job)


def _job_placed(books: RealCluster, event: ev.JobPlaced, at_ns: int) -> None:
    job = books.job_of(event.job)
    if job is not None:
        nodes = tuple([part.node for part in event.parts])
        job.attempts.append(RealAttempt(event.attempt, at_ns, nodes, event.units))


def _attempt(books: RealCluster, job: str, number: int) -> RealAttempt | None:
    found = books.jobs.get(job)
    last = found.attempts[-1] if found is not None and found.attempts else None
    return last if last is not None and last.number == number else None


def _rank_started(books: RealCluster, event: ev.RankStarted, at_ns: int) -> None:
    attempt = _attempt(books, event.job, event.attempt)
    if attempt is not None:
        attempt.ranks[event.rank] = at_ns


def _run_started(books: RealCluster, event: ev.RunStarted, at_ns: int) -> None:
    attempt = _attempt(books, event.job, event.attempt)
    if attempt is not None:
        attempt.started_ns, attempt.image = at_ns, event.image


def _saved(books: RealCluster, event: ev.CheckpointSaved, at_ns: int) -> None:
    attempt = _attempt(books, event.job, event.attempt)
    if attempt is not None:
        attempt.saves.append((at_ns, event.note, event.noticed))


def _run_ended(books: RealCluster, event: ev.RunEnded, at_ns: int) -> None:
    attempt = _attempt(books, event.job, event.attempt)
    if attempt is not None:
        attempt.ended_ns, attempt.end = at_ns, event
        for node in event.released:
            attempt.gone_ns[node] = at_ns


def _released(books: RealCluster, event: ev.AllocationReleased, at_ns: int) -> None:
    job = books.jobs.get(event.job)
    attempt = job.attempt(event.attempt) if job is not None else None
    if attempt is not None:
        attempt.gone_ns[event.node] = at_ns


def _job_ended(books: RealCluster, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at_ns: int) -> None:
    job = books.job_of(event.job)
    if job is not None:
        job.end, job.ended_ns = type(event).__name__, at_ns
        job.reason = event.reason if isinstance(event, ev.JobFailed) else ""


def _job_moved(books: RealCluster, event: ev.JobMoved, at_ns: int) -> None:
    job = books.jobs.get(event.job)
    if job is not None:
        job.queue = event.queue


def _rank_ended(books: RealCluster, event: ev.RankEnded, at_ns: int) -> None:
    attempt = _attempt(books, event.job, event.attempt)
    if attempt is not None:
        attempt.rank_ends[event.rank] = event
        attempt.rank_ended_ns[event.rank] = at_ns
        if event.released and event.rank < len(attempt.nodes):
            attempt.gone_ns[attempt.nodes[event.rank]] = at_ns


_BOOKS: dict[type, Callable[[RealCluster, Any, int], None]] = {
    ev.JobSubmitted: _job_submitted,
    ev.JobOffered: _job_offered,
    ev.JobPlaced: _job_placed,
    ev.RankStarted: _rank_started,
    ev.JobMoved: _job_moved,
    ev.RankEnded: _rank_ended,
    ev.RunStarted: _run_started,
    ev.CheckpointSaved: _saved,
    ev.RunEnded: _run_ended,
    ev.AllocationReleased: _released,
    ev.JobSucceeded: _job_ended,
    ev.JobFailed: _job_ended,
    ev.JobCancelled: _job_ended,
}
