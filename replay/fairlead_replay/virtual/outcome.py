"""Outcome of each job. Times are Unix ns."""

from typing import NamedTuple

from fairlead_replay.virtual.load import Job


class Run:
    """Attempt on its GPUs."""

    __slots__ = ("ended_ns", "started_ns")

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        #: 0: it has not.
        self.ended_ns = 0


class Life:
    """Job from its submit to its end."""

    __slots__ = ("done_ns", "end", "ended_ns", "id", "job", "runs")

    def __init__(self, id: str, job: Job) -> None:
        self.id, self.job = id, job
        self.runs: list[Run] = []
        #: Useful work of the runs that have ended.
        self.done_ns = 0
        #: "JobSucceeded", "JobFailed", "JobCancelled", and when; "", 0: not yet.
        self.end, self.ended_ns = "", 0

    @property
    def left_ns(self) -> int:
        """Work that is not done."""
        return max(0, self.job.work_ns - self.done_ns)

    @property
    def jct_ns(self) -> int:
        """From submit to end."""
        return self.ended_ns - self.job.submitted_ns

    @property
    def held_ns(self) -> int:
        """On its GPUs, over all runs."""
        return sum(run.ended_ns - run.started_ns for run in self.runs)


class Played(NamedTuple):
    """Outcome of a played load."""

    lives: list[Life]
    #: GPUs of the cluster.
    gpus: int
    commits: int
    #: {event type: how many}
    events: dict[str, int]
