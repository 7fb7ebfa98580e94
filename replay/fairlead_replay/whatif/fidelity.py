"""How near a play of the recorded policy comes to the record: the control's grade.

Every answer stands under the grade of its control. Effects are variant minus control, never minus the record: what the
model gets wrong is in both.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Literal, NamedTuple

from fairlead_replay.whatif.real_cluster import RealCluster, RealJob
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Outcome
from fairlead_schemas.units.timestamps import SECOND_NS

type Grade = Literal["A", "B", "C"]

#: Bounds of a grade: difference of the mean wait of each queue, Kolmogorov-Smirnov distance of its waits, difference of the
#: GPU time held. Below B is C, and the answer is withheld.
BOUNDS: dict[Grade, tuple[float, float, float]] = {"A": (0.05, 0.05, 0.01), "B": (0.10, 0.10, 0.03)}
#: A start counts as met within this, or within the part of its wait.
MET_S, MET_PART = 10.0, 0.05
#: Waits are compared in steps of a tenth of a second: nanoseconds would make a distance of nothing.
WAIT_STEP_S = 0.1
#: Queues with fewer starts are shown and not judged: one start more or less would make the grade.
JUDGED_MIN = 8
#: A mean wait below this is a moment that nobody notices; its difference is counted against this.
WAIT_FLOOR_S = 10.0


class QueueFidelity(NamedTuple):
    """Waits of a queue's jobs in the record and in the control, in seconds."""

    queue: str
    real_starts: int
    played_starts: int
    real_wait_s: float
    played_wait_s: float
    #: Kolmogorov-Smirnov distance of the two.
    distance: float

    @property
    def difference(self) -> float:
        """Difference of the mean waits, as a part of the record's."""
        return abs(self.played_wait_s - self.real_wait_s) / max(self.real_wait_s, WAIT_FLOOR_S)


class Fidelity(NamedTuple):
    """Comparison of a control with its record."""

    grade: Grade
    both: int
    only_real: int
    only_played: int
    #: Difference of the first starts of both, in seconds.
    error_p50_s: float
    error_p90_s: float
    error_max_s: float
    #: Part of the starts of both within a second; within ten or a twentieth of the wait.
    within_1s: float
    met: float
    queues: tuple[QueueFidelity, ...]
    #: GPU-hours held in the window.
    real_gpu_h: float
    played_gpu_h: float
    real_preemptions: int
    played_preemptions: int
    #: Jobs that ended in both, and of those in the same way.
    ends_both: int
    ends_equal: int
    #: Why it has no better grade: one sentence each.
    because: tuple[str, ...]

    @property
    def gpu_difference(self) -> float:
        """Difference of the GPU time held, as a part of the record's."""
        if not self.real_gpu_h:
            return 0.0 if not self.played_gpu_h else 1.0
        return abs(self.played_gpu_h - self.real_gpu_h) / self.real_gpu_h


def compare(recording: LogRecording, control: Outcome) -> Fidelity:
    """Compare a control with its record, in the recording's window."""
    begin_ns, end_ns = recording.start.at_ns, recording.end_ns
    errors: list[float] = []
    met = only_real = only_played = ends_both = ends_equal = 0
    waits: dict[str, tuple[list[float], list[float]]] = {}
    for job in _single(recording.real, end_ns):
        played = control.job(job.id)
        real_ns, played_ns = started_in(job, begin_ns, end_ns), started_in(played, begin_ns, end_ns)
        if before(job, begin_ns):
            continue
        real_waits, played_waits = waits.setdefault(job.queue, ([], []))
        if real_ns:
            real_waits.append((real_ns - job.submitted_ns) / SECOND_NS)
        if played_ns and played is not None:
            played_waits.append((played_ns - played.submitted_ns) / SECOND_NS)
        if real_ns and played_ns:
            error = abs(played_ns - real_ns) / SECOND_NS
            errors.append(error)
            met += error <= max(MET_S, MET_PART * (real_ns - job.submitted_ns) / SECOND_NS)
        only_real += bool(real_ns) and not played_ns
        only_played += bool(played_ns) and not real_ns
        if played is not None and begin_ns < job.ended_ns <= end_ns and played.ended_ns:
            ends_both += 1
            ends_equal += (job.end, job.reason) == (played.end, played.reason)
    queues = tuple(
        QueueFidelity(queue, len(real), len(played), _mean(real), _mean(played), distance(real, played))
        for queue, (real, played) in sorted(waits.items())
        if real or played
    )
    found = Fidelity(
        grade="C",
        both=len(errors),
        only_real=only_real,
        only_played=only_played,
        error_p50_s=quantile(errors, 0.5),
        error_p90_s=quantile(errors, 0.9),
        error_max_s=max(errors, default=0.0),
        within_1s=sum(error <= 1 for error in errors) / len(errors) if errors else 0.0,
        met=met / len(errors) if errors else 0.0,
        queues=queues,
        real_gpu_h=gpu_hours(recording.real.jobs.values(), begin_ns, end_ns),
        played_gpu_h=gpu_hours(control.books.jobs.values(), begin_ns, end_ns),
        real_preemptions=_preemptions(recording.real, begin_ns, end_ns),
        played_preemptions=_preemptions(control.books, begin_ns, end_ns),
        ends_both=ends_both,
        ends_equal=ends_equal,
        because=(),
    )
    return _graded(found)


def _graded(found: Fidelity) -> Fidelity:
    if not found.both:
        return found._replace(because=("no job started in the window both in the record and in the control",))
    for grade, bounds in BOUNDS.items():
        because = _misses(found, bounds)
        if not because:
            return found._replace(grade=grade, because=_misses(found, BOUNDS["A"]))
    return found._replace(because=_misses(found, BOUNDS["B"]))


def _misses(found: Fidelity, bounds: tuple[float, float, float]) -> tuple[str, ...]:
    wait, distance_max, gpus = bounds
    because: list[str] = []
    for each in found.queues:
        if max(each.real_starts, each.played_starts) < JUDGED_MIN:
            continue
        if each.difference > wait:
            because.append(
                f"queue {each.queue}: mean wait {each.real_wait_s:.1f} s in the record, {each.played_wait_s:.1f} s in the "
                f"control; allowed is {wait:.0%}"
            )
        if each.distance > distance_max and each.difference > 0.01:
            because.append(
                f"queue {each.queue}: distance of the waits {each.distance:.3f}; allowed is {distance_max:.2f}"
            )
    if found.gpu_difference > gpus:
        because.append(
            f"GPU-hours held: {found.real_gpu_h:.4g} in the record, {found.played_gpu_h:.4g} in the control; allowed is "
            f"{gpus:.0%}"
        )
    return tuple(because)


# ---------------------------------------------------------------------------- parts


def _single(books: RealCluster, end_ns: int) -> list[RealJob]:
    """Return jobs and elements that were submitted in time, without arrays as a whole."""
    return [job for job in list(books.jobs.values()) if not job.is_array and job.submitted_ns <= end_ns]


def before(job: RealJob, begin_ns: int) -> bool:
    """Return True for a job that had its first start before the window: nothing about it is left to say."""
    return 0 < job.first_start_ns <= begin_ns or 0 < job.ended_ns <= begin_ns


def started_in(job: RealJob | None, begin_ns: int, end_ns: int) -> int:
    """Return when a job started first, if that was in the window; else 0."""
    first_ns = job.first_start_ns if job is not None else 0
    return first_ns if begin_ns < first_ns <= end_ns or (first_ns and begin_ns == 0) else 0


def gpu_hours(jobs: Iterable[RealJob], begin_ns: int, end_ns: int) -> float:
    """Return the GPU-hours that runs held in a window, from start to end."""
    return sum(held_ns(job, begin_ns, end_ns) * gpus_of(job) for job in list(jobs)) / (3600 * SECOND_NS)


def gpus_of(job: RealJob) -> float:
    """Return the GPUs that a job's whole placement is charged for."""
    return job.submitted.request.gpu_milli_total / 1000


def held_ns(job: RealJob, begin_ns: int, end_ns: int) -> int:
    """Return how long a job's runs lasted in a window, in parts of its whole placement."""
    if job.is_array:
        return 0
    full, held = max(1, job.submitted.request.units), 0
    for attempt in job.attempts:
        if attempt.started_ns:
            until_ns = min(attempt.ended_ns or end_ns, end_ns)
            lasted_ns = max(0, until_ns - max(attempt.started_ns, begin_ns))
            held += lasted_ns * min(full, max(1, attempt.units)) // full
    return held


def _preemptions(books: RealCluster, begin_ns: int, end_ns: int) -> int:
    return sum(
        attempt.end is not None and attempt.end.preempted and begin_ns < attempt.ended_ns <= end_ns
        for job in books.jobs.values()
        for attempt in job.attempts
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that so large a part of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, ceil(part * len(ordered)) - 1))] if ordered else 0.0


def distance(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the Kolmogorov-Smirnov distance of two samples of waits, in steps of WAIT_STEP_S; 1 where only one has any."""
    if not some or not others:
        return float(bool(some) != bool(others))
    a = sorted(round(value / WAIT_STEP_S) for value in some)
    b = sorted(round(value / WAIT_STEP_S) for value in others)
    worst, at, bt = 0.0, 0, 0
    for value in sorted({*a, *b}):
        while at < len(a) and a[at] <= value:
            at += 1
        while bt < len(b) and b[bt] <= value:
            bt += 1
        worst = max(worst, abs(at / len(a) - bt / len(b)))
    return worst
