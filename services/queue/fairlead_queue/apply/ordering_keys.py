"""A job's place in its line, when what it depends on has changed. Called by `evolve` only."""

from fairlead_queue.waiting.jobs import Array, Job
from fairlead_queue.waiting.order import offset_of, place_of


def renew_order(job: Job, priority: int, *, place: int = -1, newest_first: bool | None = None) -> None:
    """Recompute the job's order with another priority, deadline or place (-1: the present one, counted as `newest_first`
    requires).
    """
    pool = job.lane.klass.pool
    if place < 0:
        was = pool.sequencer.newest_first if newest_first is None else newest_first
        place = place_of(job.order, newest_first=was)
    offset = offset_of(job.order) if isinstance(job, Array) or job.parent is not None else 0
    job.order = pool.order(
        priority, place, offset, deadline_ns=job.deadline_ns, submitted_ns=job.submitted_ns, total_ns=job.total_ns
    )
