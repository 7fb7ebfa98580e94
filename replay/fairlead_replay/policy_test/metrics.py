"""Measures of a play that a policy test may expect something of. Pure.

A job counts that came in the window, or had not started before it. A wait that is not over counts for as long as it has
lasted: leaving it out would favour a policy that starts few jobs.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from fairlead_replay.virtual import figures
from fairlead_replay.virtual.load import BEGIN_NS, JobLife, Played, TraceJob, TraceRun
from fairlead_replay.whatif.effects import SIZES, SLOWDOWN_FLOOR_S, PlayedLife, counted_jobs, life_of, size_class
from fairlead_replay.whatif.fidelity import gpus_of, quantile
from fairlead_replay.whatif.real_cluster import RealJob
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Outcome
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS

#: A threshold's unit: a time ("30m"), GPU-hours ("12 GPUh"), a whole number, or a plain number.
type Unit = Literal["time", "GPUh", "count", "number"]


class PlayMetric(NamedTuple):
    """Measure: its name, its threshold's unit, and whether more of it is worse (1), better (-1) or neither (0)."""

    name: str
    unit: Unit
    worse: int
    #: True where it is one figure of all queues together.
    is_of_all: bool = False
    #: True where it needs `longer_than`.
    has_limit: bool = False

    @property
    def value_unit(self) -> str:
        """Unit of its value as it is shown."""
        return {"time": "s", "GPUh": "h", "count": "jobs", "number": ""}[self.unit]


#: Metrics by name. Of those that end in _pNN, NN is 1 to 99: the smallest value that NN % of the jobs do not exceed.
METRICS: dict[str, PlayMetric] = {
    each.name: each
    for each in (
        PlayMetric("wait_mean", "time", 1),
        PlayMetric("wait_pNN", "time", 1),
        PlayMetric("wait_max", "time", 1),
        PlayMetric("completion_mean", "time", 1),
        PlayMetric("completion_pNN", "time", 1),
        PlayMetric("slowdown_pNN", "number", 1),
        PlayMetric("gpu_hours", "GPUh", 0),
        PlayMetric("preemptions", "count", 1),
        PlayMetric("started", "count", -1),
        PlayMetric("unstarted", "count", 1),
        PlayMetric("ended", "count", -1),
        PlayMetric("starved_jobs", "count", 1, has_limit=True),
        PlayMetric("jain", "number", -1, is_of_all=True),
        PlayMetric("least_served", "number", -1, is_of_all=True),
    )
}
_QUANTILE = re.compile(r"(wait|completion|slowdown)_p([1-9][0-9]?)\Z")


def metric_named(name: str) -> PlayMetric | None:
    """Return the metric of a name such as wait_p95; None: there is none."""
    found = _QUANTILE.match(name)
    if found is not None:
        return METRICS[f"{found[1]}_pNN"]._replace(name=name)
    return None if name.endswith("_pNN") else METRICS.get(name)


class MeasuredJobs(NamedTuple):
    """Jobs that a measure is about. `kind`: queue (with those below it) | user | pool | size | "" (all jobs)."""

    kind: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.kind else "all jobs"

    def has(self, job: RealJob) -> bool:
        """Return True for a job that it is about."""
        match self.kind:
            case "queue":
                return job.queue == self.name or job.queue.startswith(f"{self.name}/")
            case "user":
                return job.submitted.user == self.name
            case "pool":
                return (job.submitted.request.pool or DEFAULT_POOL) == self.name
            case "size":
                return size_class(gpus_of(job)) == self.name
            case _:
                return True


SIZE_NAMES = (*(name for _, name in SIZES), "more than 8 GPUs")


class PlayMeasures:
    """What is measured of one play."""

    def __init__(self, recording: LogRecording, outcome: Outcome) -> None:
        self._outcome = outcome
        self._end_ns = outcome.end_ns
        self.lives = [life_of(recording, job, outcome.job(job.id)) for job in counted_jobs(recording)]

    def value(self, metric: PlayMetric, jobs: MeasuredJobs, longer_than_ns: int = 0) -> float | None:
        """Return a measure; None where there is no job that it could be of."""
        if metric.is_of_all:
            shares = self._shares()
            if not shares:
                return None
            return figures.jain(shares) if metric.name == "jain" else min(shares)
        lives = [life for life in self.lives if jobs.has(life.job)]
        if not lives:
            return None
        found = _QUANTILE.match(metric.name)
        if found is not None:
            return quantile(_SAMPLES[found[1]](lives, self._end_ns), int(found[2]) / 100)
        if metric.name == "starved_jobs":
            return float(sum(wait * SECOND_NS > longer_than_ns for wait in _waits(lives, self._end_ns)))
        return _FIGURES[metric.name](lives, self._end_ns)

    def waits(self) -> dict[str, float]:
        """Return {job of the record: its wait in seconds, so far as it has lasted}."""
        waits = _waits(self.lives, self._end_ns)
        return {life.job.id: wait for life, wait in zip(self.lives, waits, strict=True)}

    def _shares(self) -> list[float]:
        """Return the part of its entitlement that each queue at the top held, of those with jobs that want GPUs."""
        lives = [self._trace_life(life) for life in self.lives if life.submitted_ns and gpus_of(life.job) >= 1]
        if not lives:
            return []
        weights = {life.job.queue: self._outcome.weights.get(life.job.queue, 1) for life in lives}
        served = figures.service(Played(lives, self._outcome.gpus, 0, {}), weights)
        return [served[queue].share for queue in sorted(served)]

    def _trace_life(self, life: PlayedLife) -> JobLife:
        queue = life.job.queue.partition("/")[0]
        found = JobLife(life.job.id, TraceJob(queue, life.submitted_ns - BEGIN_NS, 0, life.job.submitted.request))
        found.ended_ns = life.ended_ns or self._end_ns
        played = self._outcome.job(life.job.id)
        for attempt in played.attempts if played is not None else ():
            if attempt.started_ns:
                run = TraceRun(attempt.started_ns)
                run.ended_ns = max(attempt.started_ns, attempt.ended_ns or self._end_ns)
                found.runs.append(run)
        return found


# ---------------------------------------------------------------------------- of some jobs


def _waits(lives: Sequence[PlayedLife], end_ns: int) -> list[float]:
    return [((life.started_ns or end_ns) - life.submitted_ns) / SECOND_NS for life in lives]


def _completions(lives: Sequence[PlayedLife], end_ns: int) -> list[float]:
    return [(life.ended_ns - life.submitted_ns) / SECOND_NS for life in lives if life.ended_ns and life.started_ns]


def _slowdowns(lives: Sequence[PlayedLife], end_ns: int) -> list[float]:
    return [
        max(1.0, (life.ended_ns - life.submitted_ns) / max(life.held_ns, SLOWDOWN_FLOOR_S * SECOND_NS))
        for life in lives
        if life.ended_ns and life.started_ns
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


type _Sample = Callable[[Sequence[PlayedLife], int], list[float]]
type _Figure = Callable[[Sequence[PlayedLife], int], float]

_SAMPLES: dict[str, _Sample] = {"wait": _waits, "completion": _completions, "slowdown": _slowdowns}
_FIGURES: dict[str, _Figure] = {
    "wait_mean": lambda lives, end_ns: _mean(_waits(lives, end_ns)),
    "wait_max": lambda lives, end_ns: max(_waits(lives, end_ns)),
    "completion_mean": lambda lives, end_ns: _mean(_completions(lives, end_ns)),
    "gpu_hours": lambda lives, _: sum(life.held_ns * gpus_of(life.job) for life in lives) / HOUR_NS,
    "preemptions": lambda lives, _: float(sum(life.preemptions for life in lives)),
    "started": lambda lives, _: float(sum(life.started_ns > 0 for life in lives)),
    "unstarted": lambda lives, _: float(sum(life.started_ns == 0 for life in lives)),
    "ended": lambda lives, _: float(sum(bool(life.ended_ns and life.started_ns) for life in lives)),
}
