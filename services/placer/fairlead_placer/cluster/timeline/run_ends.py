"""End of a run, at which its resources are free: at the latest by its job's limit, else most likely by learned durations.

A limit counts from the start of the last rank. The job's grace and the time for stopping and cleaning are added.

Learned durations of runs: for each user and size, and for each queue. Folded as runs end.

Only runs that ended without being stopped or lost count: a stopped or lost run shows no full duration.
"""

from functools import lru_cache
from typing import NamedTuple

from fairlead_placer.cluster.entities import JobRecord, PlacedRun
from fairlead_placer.cluster.run_durations import LearnedDurations, bucket_of, typical_s
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.wire.events import Basis, RunOutcome

#: Kinds of runs that are remembered; a new one takes the place of the one that was seen longest ago.
KINDS_MAX = 1024


def kinds_of(job: JobRecord) -> tuple[str, str]:
    """Return the keys under which a job's runs are remembered, the most specific first."""
    return _kinds(job.user, job.request.gpu_milli_total, job.queue)


@lru_cache(KINDS_MAX)  # the same few with the end of every run
def _kinds(user: str, gpu_milli: int, queue: str) -> tuple[str, str]:
    return f"user:{user}:{gpu_milli}", f"queue:{queue}"


def learn(state: ClusterState, run: PlacedRun, job: JobRecord | None, outcome: RunOutcome, at_ns: int) -> None:
    """The run of the job has ended."""
    if job is None or not run.began_ns or run.stop or outcome != "exited":
        return
    spans, journal = state.spans, state.journal
    bucket = bucket_of((at_ns - run.began_ns) // SECOND_NS)
    for kind in kinds_of(job):
        known = spans.get(kind)
        if known is None:
            known = _begin(state, kind)
        if journal is not None:
            counts = known.counts
            journal.append((known.restore, counts, bucket, counts[bucket], known.runs, known.last_ns))
        known.add(bucket, at_ns)


def _begin(state: ClusterState, kind: str) -> LearnedDurations:
    """Remember a kind of runs that is new."""
    spans, known = state.spans, LearnedDurations()
    if len(spans) >= KINDS_MAX:
        state.drop(spans, min(spans, key=lambda name: (spans[name].last_ns, name)))
    state.put(spans, kind, known)
    return known


def expected_ns(state: ClusterState, job: JobRecord, elapsed_ns: int) -> int:
    """Return the total duration of a run of the job that has taken `elapsed_ns` by now, in nanoseconds; 0: not known."""
    for kind in kinds_of(job):
        known = state.spans.get(kind)
        seconds = typical_s(known, elapsed_ns // SECOND_NS) if known is not None else 0
        if seconds:
            return seconds * SECOND_NS
    return 0


#: From a placement to the start of the first rank, and from there to that of the last one of a gang.
START_NS = MINUTE_NS
#: From the end of the grace until the devices are known to be clean: KILL, cleaning, the report.
SETTLE_NS = 30 * SECOND_NS
#: What ends later than that counts as not known.
HORIZON_NS = 7 * DAY_NS


class ExpectedEnd(NamedTuple):
    """Unix ns, 0: not known; and what says so."""

    at_ns: int
    basis: Basis


UNKNOWN = ExpectedEnd(0, "")


def latest_end_ns(job: JobRecord, units: int, placed_ns: int) -> int:
    """Return the time by which a job with a limit, placed at `placed_ns`, has given everything back."""
    return _started_ns(units, placed_ns) + _limit_ns(job)


def promised_end_ns(state: ClusterState, run: PlacedRun) -> int:
    """Return the same time for a run at its present stage; it does not depend on the clock. 0: the run has no limit."""
    job = state.job_of(run)
    if job is None or not job.total_ns:
        return 0
    if run.started != run.all_ranks:
        return max(latest_end_ns(job, len(run.parts), run.placed_ns), run.began_ns + _limit_ns(job))
    return _from_ns(run) + _limit_ns(job)


def _started_ns(units: int, placed_ns: int) -> int:
    """By when the last rank has started."""
    return placed_ns + (START_NS if units == 1 else 2 * START_NS)


def _limit_ns(job: JobRecord) -> int:
    return job.total_ns + job.grace_ns + SETTLE_NS


def _from_ns(run: PlacedRun) -> int:
    """From when the limit counts: of a gang its first start is known, and the last one comes soon after."""
    return run.began_ns + (START_NS if len(run.parts) > 1 else 0)


def end_of(state: ClusterState, run: PlacedRun, rank: int, now_ns: int) -> ExpectedEnd:
    """Return the time at which the resources of the rank come free. For a rank that has ended and is not clean it is UNKNOWN."""
    job = state.job_of(run)
    if run.ended >> rank & 1:
        return UNKNOWN
    if run.is_stopping:
        return ExpectedEnd(now_ns + run.notice_ns + (job.grace_ns if job is not None else 0) + SETTLE_NS, "limits")
    if job is None:
        return UNKNOWN
    if job.total_ns:
        return _within(ExpectedEnd(_by_limit(run, job, now_ns), "limits"), now_ns)
    elapsed_ns = max(0, now_ns - run.began_ns) if run.began_ns else 0
    expected = expected_ns(state, job, elapsed_ns)
    if not expected:
        return UNKNOWN
    return _within(ExpectedEnd(max(now_ns, now_ns - elapsed_ns + expected + SETTLE_NS), "evidence"), now_ns)


def _by_limit(run: PlacedRun, job: JobRecord, now_ns: int) -> int:
    """Return the end by the limit. An overdue run may last as long again as it is late. Never sooner than `promised_end_ns`."""
    waits = run.started != run.all_ranks
    due_ns = (max(_started_ns(len(run.parts), run.placed_ns), now_ns) if waits else _from_ns(run)) + _limit_ns(job)
    return due_ns if due_ns > now_ns else now_ns + max(SETTLE_NS, now_ns - due_ns)


def _within(end: ExpectedEnd, now_ns: int) -> ExpectedEnd:
    return end if end.at_ns <= now_ns + HORIZON_NS else UNKNOWN
