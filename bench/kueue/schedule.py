"""Kueue's published baseline load as a list of arrivals: who submits what, and when. Pure.

From test/performance/scheduler/configs/baseline of kubernetes-sigs/kueue: cohorts of six queues, each queue with the
same three classes of jobs. Their generator waits one interval before every job of a class, the first included.
"""

from collections.abc import Sequence
from typing import NamedTuple

COHORTS, QUEUES = 5, 6
#: Units of quota of one queue, and how many it may borrow. A unit is one CPU.
GUARANTEED, BORROWING = 20, 100


class Size(NamedTuple):
    """Class of jobs, as each queue gets them."""

    name: str
    jobs: int
    units: int
    duration_ms: int
    every_ms: int
    priority: int


SIZES = (
    Size("small", jobs=350, units=1, duration_ms=200, every_ms=100, priority=50),
    Size("medium", jobs=100, units=5, duration_ms=500, every_ms=500, priority=100),
    Size("large", jobs=50, units=20, duration_ms=1000, every_ms=1200, priority=200),
)


class Arrival(NamedTuple):
    """A job and when it is submitted."""

    at_ms: int
    queue: str  # "c1/q1" …
    units: int
    duration_ms: int
    priority: int


def schedule(cohorts: int = COHORTS) -> list[Arrival]:
    """Every arrival in order of time; within one moment the smaller sizes first, each queue by queue."""
    queues = [f"c{cohort}/q{queue}" for cohort in range(1, cohorts + 1) for queue in range(1, QUEUES + 1)]
    arrivals = [
        Arrival(number * size.every_ms, queue, size.units, size.duration_ms, size.priority)
        for size in SIZES
        for number in range(1, size.jobs + 1)
        for queue in queues
    ]
    return sorted(arrivals, key=lambda arrival: arrival.at_ms)


def least_ms(arrivals: Sequence[Arrival]) -> int:
    """Return the time that this work takes when no unit of quota is ever idle and no work is lost."""
    units = GUARANTEED * len({arrival.queue for arrival in arrivals})
    return sum(arrival.units * arrival.duration_ms for arrival in arrivals) // units
