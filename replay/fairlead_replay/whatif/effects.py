"""Effects of a change: variant minus control, over pairs of plays with equal seeds.

A difference counts as changed only where all pairs have one sign and their median exceeds twice the spread of the control;
else the log cannot show a difference. Single plays are chaotic: a run that is 1 % longer moves starts by minutes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median, stdev
from typing import NamedTuple

from fairlead_replay.whatif.fidelity import gpus_of, held_ns, quantile
from fairlead_replay.whatif.real_cluster import RealJob
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Outcome
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.timestamps import SECOND_NS

#: Jobs that are kept as winners or losers: a reader sees the first of those that it may see.
MOVED_JOBS_MAX = 10_000
#: A completion time is compared with the run time, but no shorter than this, or a job of a second would decide.
SLOWDOWN_FLOOR_S = 10.0
#: Pairs that a statement needs.
PAIRS_MIN = 3
#: Bounds of size classes, in GPUs.
SIZES = ((0, "no GPU"), (1, "1 GPU"), (4, "2 to 4 GPUs"), (8, "5 to 8 GPUs"))


class JobGroup(NamedTuple):
    """Jobs that are counted together."""

    #: pool | queue | user | size
    kind: str
    name: str


#: Measures of a group: unit, and whether more of it is worse (0: neither).
MEASURES: dict[str, tuple[str, int]] = {
    "started": ("jobs", -1),
    "wait_mean": ("s", 1),
    "wait_p50": ("s", 1),
    "wait_p95": ("s", 1),
    "completion_mean": ("s", 1),
    "slowdown_p95": ("", 1),
    "gpu_hours": ("h", 0),
    "preemptions": ("runs", 1),
    "ended": ("jobs", -1),
}


class Effect(NamedTuple):
    """One measure of one group in control and variant."""

    group: JobGroup
    measure: str
    jobs: int
    control: float
    variant: float
    #: Of every pair, variant minus control.
    differences: tuple[float, ...]
    changed: bool

    @property
    def difference(self) -> float:
        """Median over the pairs."""
        return median(self.differences) if self.differences else 0.0

    @property
    def verdict(self) -> str:
        """Return better, worse, changed, or "" where no difference can be shown."""
        if not self.changed:
            return ""
        sign = MEASURES[self.measure][1]
        return "changed" if not sign else "worse" if self.difference * sign > 0 else "better"


class MovedJob(NamedTuple):
    """Job that starts at another time in the variant."""

    id: str
    name: str
    user: str
    queue: str
    project: str
    gpus: float
    #: Median over the pairs of the wait, in seconds; None: it does not start.
    control_wait_s: float | None
    variant_wait_s: float | None
    difference_s: float
    #: Pairs in which it moved this way, of all.
    of_pairs: int
    pairs: int


class Effects(NamedTuple):
    """All that a change does and the pairs show."""

    effects: tuple[Effect, ...]
    winners: tuple[MovedJob, ...]
    losers: tuple[MovedJob, ...]


def effects_of(recording: LogRecording, pairs: Sequence[tuple[Outcome, Outcome]]) -> Effects:
    """Compare (control, variant) pairs of plays of a recording."""
    jobs = counted_jobs(recording)
    measured = [
        (_measures(recording, jobs, control), _measures(recording, jobs, variant)) for control, variant in pairs
    ]
    groups = sorted(measured[0][0]) if measured else []
    found = [
        _effect(group, measure, [(c[group], v[group]) for c, v in measured]) for group in groups for measure in MEASURES
    ]
    moved = _moved(recording, jobs, pairs)
    winners = sorted((each for each in moved if each.difference_s < 0), key=lambda each: (each.difference_s, each.id))
    losers = sorted((each for each in moved if each.difference_s > 0), key=lambda each: (-each.difference_s, each.id))
    return Effects(tuple(found), tuple(winners[:MOVED_JOBS_MAX]), tuple(losers[:MOVED_JOBS_MAX]))


def counted_jobs(recording: LogRecording) -> list[RealJob]:
    """Return the jobs that came, or had not started, in the window."""
    begin_ns, end_ns = recording.start.at_ns, recording.end_ns
    return [
        job
        for job in list(recording.real.jobs.values())
        if not job.is_array
        and job.submitted_ns <= end_ns
        and not (0 < job.first_start_ns <= begin_ns and recording.start.sequence)
        and not 0 < job.ended_ns <= begin_ns
    ]


def size_class(gpus: float) -> str:
    """Return the size class of a job."""
    return next((name for most, name in SIZES if gpus <= most), "more than 8 GPUs")


def groups_of(job: RealJob) -> tuple[JobGroup, ...]:
    """Return the groups that a job is counted in."""
    return (
        JobGroup("pool", job.submitted.request.pool or DEFAULT_POOL),
        JobGroup("queue", job.queue),
        JobGroup("user", job.submitted.user),
        JobGroup("size", size_class(gpus_of(job))),
    )


class PlayedLife(NamedTuple):
    """Job in one play: when it was submitted, started, ended (0: not), and what it held."""

    job: RealJob
    submitted_ns: int
    started_ns: int
    ended_ns: int
    held_ns: int
    preemptions: int


def waits_by_queue(recording: LogRecording, outcome: Outcome) -> dict[str, list[float]]:
    """Return the waits of each queue's jobs in a play, in seconds; one that is not over counts for as long as it has lasted."""
    found: dict[str, list[float]] = {}
    for job in counted_jobs(recording):
        life = life_of(recording, job, outcome.job(job.id))
        wait_s = ((life.started_ns or outcome.end_ns) - life.submitted_ns) / SECOND_NS
        found.setdefault(job.queue, []).append(wait_s)
    return found


type Measured = dict[str, float]


def _measures(recording: LogRecording, jobs: Iterable[RealJob], outcome: Outcome) -> dict[JobGroup, Measured]:
    by_group: dict[JobGroup, list[PlayedLife]] = {}
    for job in jobs:
        life = life_of(recording, job, outcome.job(job.id))
        for group in groups_of(job):
            by_group.setdefault(group, []).append(life)
    return {group: _of(lives, outcome.end_ns) for group, lives in by_group.items()}


def life_of(recording: LogRecording, real: RealJob, played: RealJob | None) -> PlayedLife:
    if played is None:
        return PlayedLife(real, real.submitted_ns, 0, 0, 0, 0)
    preemptions = sum(each.end is not None and each.end.preempted for each in played.attempts)
    held = held_ns(played, recording.start.at_ns, recording.end_ns)
    return PlayedLife(real, played.submitted_ns, played.first_start_ns, played.ended_ns, held, preemptions)


def _of(lives: Sequence[PlayedLife], end_ns: int) -> Measured:
    """Waits that are not over count for as long as they have lasted: leaving them out would favour a policy that starts few jobs."""
    waits = [((each.started_ns or end_ns) - each.submitted_ns) / SECOND_NS for each in lives]
    ended = [each for each in lives if each.ended_ns and each.started_ns]
    completions = [(each.ended_ns - each.submitted_ns) / SECOND_NS for each in ended]
    slow = [
        max(1.0, took / max(each.held_ns / SECOND_NS, SLOWDOWN_FLOOR_S))
        for each, took in zip(ended, completions, strict=True)
    ]
    return {
        "started": float(sum(each.started_ns > 0 for each in lives)),
        "wait_mean": sum(waits) / len(waits) if waits else 0.0,
        "wait_p50": quantile(waits, 0.5),
        "wait_p95": quantile(waits, 0.95),
        "completion_mean": sum(completions) / len(completions) if completions else 0.0,
        "slowdown_p95": quantile(slow, 0.95),
        "gpu_hours": sum(each.held_ns * gpus_of(each.job) for each in lives) / (3600 * SECOND_NS),
        "preemptions": float(sum(each.preemptions for each in lives)),
        "ended": float(len(ended)),
        "jobs": float(len(lives)),
    }


def _effect(group: JobGroup, measure: str, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> Effect:
    controls, variants = [control[measure] for control, _ in pairs], [variant[measure] for _, variant in pairs]
    differences = tuple([variant - control for control, variant in zip(controls, variants, strict=True)])
    return Effect(
        group,
        measure,
        int(pairs[0][0]["jobs"]),
        median(controls),
        median(variants),
        differences,
        is_changed(differences, controls),
    )


def is_changed(differences: Sequence[float], controls: Sequence[float]) -> bool:
    """Return True where all pairs have one sign and the median exceeds twice the control's spread."""
    if len(differences) < PAIRS_MIN:
        return False
    one_sign = all(each > 0 for each in differences) or all(each < 0 for each in differences)
    return one_sign and abs(median(differences)) > 2 * stdev(controls)


# ---------------------------------------------------------------------------- single jobs


def _moved(
    recording: LogRecording, jobs: Iterable[RealJob], pairs: Sequence[tuple[Outcome, Outcome]]
) -> list[MovedJob]:
    found: list[MovedJob] = []
    for job in jobs:
        waits = [(_wait_s(job, control), _wait_s(job, variant)) for control, variant in pairs]
        longest = max(0.0, (recording.end_ns - job.submitted_ns) / SECOND_NS)
        filled: Callable[[float | None], float] = lambda wait, longest=longest: longest if wait is None else wait  # noqa: E731 -- bound per job
        differences = [filled(variant) - filled(control) for control, variant in waits]
        middle = median(differences) if differences else 0.0
        if not middle:
            continue
        found.append(
            MovedJob(
                job.id,
                job.submitted.name,
                job.submitted.user,
                job.queue,
                job.submitted.project,
                gpus_of(job),
                _middle([control for control, _ in waits]),
                _middle([variant for _, variant in waits]),
                middle,
                sum(each * middle > 0 for each in differences),
                len(differences),
            )
        )
    return found


def _wait_s(job: RealJob, outcome: Outcome) -> float | None:
    played = outcome.job(job.id)
    if played is None or not played.first_start_ns:
        return None
    return (played.first_start_ns - played.submitted_ns) / SECOND_NS


def _middle(waits: Sequence[float | None]) -> float | None:
    known = [each for each in waits if each is not None]
    return median(known) if 2 * len(known) > len(waits) else None
