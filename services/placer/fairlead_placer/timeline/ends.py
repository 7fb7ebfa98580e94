"""End of a run, at which its resources are free: at the latest by its job's limit, else most likely by learned durations.

A limit counts from the start of the last rank. The job's grace and the time for stopping and cleaning are added.
"""

from typing import NamedTuple

from fairlead_placer.entities import Job, Run
from fairlead_placer.state import State
from fairlead_placer.timeline.learning import expected_ns, job_of
from fairlead_placer.timeline.spans import SECOND_NS
from fairlead_schemas.wire.events import Basis

#: From a placement to the start of the first rank, and from there to that of the last one of a gang.
START_NS = 60 * SECOND_NS
#: From the end of the grace until the devices are known to be clean: KILL, cleaning, the report.
SETTLE_NS = 30 * SECOND_NS
#: What ends later than that counts as not known.
HORIZON_NS = 7 * 86_400 * SECOND_NS


class End(NamedTuple):
    """Unix ns, 0: not known; and what says so."""

    at_ns: int
    basis: Basis


UNKNOWN = End(0, "")


def latest_end_ns(job: Job, units: int, placed_ns: int) -> int:
    """Return the time by which a job with a limit, placed at `placed_ns`, has given everything back."""
    return _started_ns(units, placed_ns) + _limit_ns(job)


def promised_end_ns(state: State, run: Run) -> int:
    """Return the same time for a run at its present stage; it does not depend on the clock. 0: the run has no limit."""
    job = job_of(state, run)
    if job is None or not job.total_ns:
        return 0
    if run.started != run.all_ranks:
        return max(latest_end_ns(job, len(run.parts), run.placed_ns), run.began_ns + _limit_ns(job))
    return _from_ns(run) + _limit_ns(job)


def _started_ns(units: int, placed_ns: int) -> int:
    """By when the last rank has started."""
    return placed_ns + (START_NS if units == 1 else 2 * START_NS)


def _limit_ns(job: Job) -> int:
    return job.total_ns + job.grace_ns + SETTLE_NS


def _from_ns(run: Run) -> int:
    """From when the limit counts: of a gang its first start is known, and the last one comes soon after."""
    return run.began_ns + (START_NS if len(run.parts) > 1 else 0)


def end_of(state: State, run: Run, rank: int, now_ns: int) -> End:
    """Return the time at which the resources of the rank come free. For a rank that has ended and is not clean it is UNKNOWN."""
    job = job_of(state, run)
    if run.ended >> rank & 1:
        return UNKNOWN
    if run.is_stopping:
        return End(now_ns + run.notice_ns + (job.grace_ns if job is not None else 0) + SETTLE_NS, "limits")
    if job is None:
        return UNKNOWN
    if job.total_ns:
        return _within(End(_by_limit(run, job, now_ns), "limits"), now_ns)
    elapsed_ns = max(0, now_ns - run.began_ns) if run.began_ns else 0
    expected = expected_ns(state, job, elapsed_ns)
    if not expected:
        return UNKNOWN
    return _within(End(max(now_ns, now_ns - elapsed_ns + expected + SETTLE_NS), "evidence"), now_ns)


def _by_limit(run: Run, job: Job, now_ns: int) -> int:
    """Return the end by the limit. An overdue run may last as long again as it is late. Never sooner than `promised_end_ns`."""
    waits = run.started != run.all_ranks
    due_ns = (max(_started_ns(len(run.parts), run.placed_ns), now_ns) if waits else _from_ns(run)) + _limit_ns(job)
    return due_ns if due_ns > now_ns else now_ns + max(SETTLE_NS, now_ns - due_ns)


def _within(end: End, now_ns: int) -> End:
    return end if end.at_ns <= now_ns + HORIZON_NS else UNKNOWN
