"""Measurements of a played load: waits, finish-time fairness, Jain's index, makespan, use. Pure.

Times go in as Unix ns and come out in seconds. Every definition is in its function's docstring, and
docs/reference/fairness.md repeats it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fairlead_replay.virtual.load import JobLife, Played
from fairlead_schemas.units.timestamps import SECOND_NS


def waits_s(lives: Iterable[JobLife]) -> list[float]:
    """Return each job's wait from its submit to its first start, in seconds."""
    return [(life.runs[0].started_ns - life.job.submitted_ns) / SECOND_NS for life in lives]


def waits_in_all_s(lives: Iterable[JobLife]) -> list[float]:
    """Return each job's time between submit and end in which it held no GPU, in seconds."""
    return [(life.jct_ns - life.held_ns) / SECOND_NS for life in lives]


def jcts_s(lives: Iterable[JobLife]) -> list[float]:
    """Return each job's time from its submit to its end, in seconds."""
    return [life.jct_ns / SECOND_NS for life in lives]


def makespan_s(lives: Sequence[JobLife]) -> float:
    """From the first submit to the last end."""
    return (max(life.ended_ns for life in lives) - min(life.job.submitted_ns for life in lives)) / SECOND_NS


def utilisation(played: Played) -> float:
    """GPU time held by runs, restarts included, over that of all GPUs during the makespan."""
    held_s = sum(life.held_ns * life.job.gpus for life in played.lives) / SECOND_NS
    return held_s / (played.gpus * makespan_s(played.lives))


# ------------------------------------------------------------------ finish-time fairness


def static_fairness(played: Played) -> list[float]:
    """Return each job's completion time divided by the time with the GPUs shared equally by all jobs of the trace all
    the time.

    The divisor is work * max(1, jobs / GPUs). This is the definition behind Shockwave's published figures; 1 is
    fair, above is worse.
    """
    sharing = max(1.0, len(played.lives) / played.gpus)
    return [life.jct_ns / (life.job.work_ns * sharing) for life in played.lives]


def isolated_fairness(played: Played, alone: Mapping[int, int]) -> list[float]:
    """Return each job's completion time divided by the one with its queue alone on its fair share of the cluster.

    `alone` is {place of the job in `played.lives`: that time in ns}; a job that is not in it is left out.
    """
    return [played.lives[at].jct_ns / jct_ns for at, jct_ns in alone.items()]


def share_above(values: Sequence[float], bound: float) -> float:
    """Return the share of values above a bound; 0 without values."""
    return sum(value > bound for value in values) / len(values) if values else 0.0


# ------------------------------------------------------------------ between queues


class QueueService(NamedTuple):
    """GPU time that one queue held of its entitlement, in GPU-ns."""

    received: float
    entitled: float

    @property
    def share(self) -> float:
        """1 for a queue that was entitled to nothing."""
        return self.received / self.entitled if self.entitled else 1.0


def service(played: Played, weights: Mapping[str, int]) -> dict[str, QueueService]:
    """Return the part of its entitlement that each queue held, moment by moment.

    At each moment a queue wants the GPUs of all its jobs that are submitted and not ended. It is entitled to its
    weighted max-min share of the cluster among the wants of all queues. GPUs held beyond this share do not count,
    because they are borrowed from another queue. Late service therefore does not compensate for a wait.
    """
    changes = _changes(played.lives)
    wants, holds = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    received, entitled = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0.0)
    for (at_ns, changed), (next_ns, _) in pairwise([*changes, (changes[-1][0], [])]):
        for queue, wanted, held in changed:
            wants[queue] += wanted
            holds[queue] += held
        fair = max_min(wants, weights, played.gpus)
        for queue, share in fair.items():
            entitled[queue] += share * (next_ns - at_ns)
            received[queue] += min(share, holds[queue]) * (next_ns - at_ns)
    return {queue: QueueService(received[queue], entitled[queue]) for queue in weights}


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def max_min(wants: Mapping[str, int], weights: Mapping[str, int], capacity: int) -> dict[str, float]:
    """Each queue's part of the capacity: what it wants, or an equal share per weight of what the others leave."""
    fair = dict.fromkeys(wants, 0.0)
    left, open_ = float(capacity), [queue for queue, wanted in wants.items() if wanted]
    by_need: Callable[[str], float] = lambda queue: wants[queue] / weights[queue]  # noqa: E731 -- a key of one use
    weight = sum(weights[queue] for queue in open_)
    for queue in sorted(open_, key=by_need):
        fair[queue] = min(float(wants[queue]), left * weights[queue] / weight)
        left -= fair[queue]
        weight -= weights[queue]
    return fair


#: (queue, GPUs wanted more, GPUs held more)
type _Change = tuple[str, int, int]


def _changes(lives: Sequence[JobLife]) -> list[tuple[int, list[_Change]]]:
    """Return (time in ns, changes) for each moment with changes, in order of time."""
    changes: dict[int, list[_Change]] = {}
    for life in lives:
        queue, gpus = life.job.queue, life.job.gpus
        changes.setdefault(life.job.submitted_ns, []).append((queue, gpus, 0))
        changes.setdefault(life.ended_ns, []).append((queue, -gpus, 0))
        for run in life.runs:
            changes.setdefault(run.started_ns, []).append((queue, 0, gpus))
            changes.setdefault(run.ended_ns, []).append((queue, 0, -gpus))
    return sorted(changes.items())
