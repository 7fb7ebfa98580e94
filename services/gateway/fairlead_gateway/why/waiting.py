"""Reasons that a job waits: its start time, other jobs, a limit of its queue, a place, or its turn. Pure."""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.why.free_resources import JobPool
from fairlead_gateway.why.limits import limit_reason
from fairlead_gateway.why.placement import no_place, with_preemptions
from fairlead_gateway.why.preemption import after_preemption
from fairlead_gateway.why.sentences import reason, several
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import AHEAD_MAX, Explanation
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.events import Dependency

#: {end that a job is waited for: in words}
TO = {"succeeded": "to succeed", "failed": "to fail", "ended": "to end"}
#: Jobs that one sentence names.
NAMED_MAX = 3


def waiting_reason(
    views: Views, row: JobRow, pool: JobPool, now_ns: int, *, count_ahead: bool = True, told: Explanation | None = None
) -> Reason:
    """Return the reason of a job that is scheduled, queued or offered. `pool`: the job's. `told`: the result of the queue's own
    gates, where known; it takes precedence over older refusals.
    """
    if row.state != "offered":
        # A job that has left the views counts as ended as required.
        open_ = [one for one in row.after if one.job in views.jobs.rows and views.jobs.is_open(one)]
        is_early = row.start_at_ns if row.state == "scheduled" else row.start_at_ns > now_ns
        if open_ or (row.state == "scheduled" and not is_early):
            return _dependencies(row, open_ or list(row.after))
        if is_early:
            return _start_time(row, now_ns)
        if row.not_before_ns > now_ns:
            return after_preemption(row, _backoff(row, now_ns))
    now = limit_reason(views, row, told) if row.state == "queued" else None
    # A job without obstacles has not been tried yet: an older refusal concerned other jobs, before capacity was freed.
    if now is None and (row.state == "offered" or told is None or told.reason != "next"):
        now = no_place(views, row, pool, at_length=count_ahead)
    now = now or _turn(views, row, count_ahead, told)
    return after_preemption(row, with_preemptions(row, now))


def _dependencies(row: JobRow, waits: list[Dependency]) -> Reason:
    words = [f"job {one.job} {TO[one.state]}" for one in waits[:NAMED_MAX]]
    more = f" and {len(waits) - NAMED_MAX} more" if len(waits) > NAMED_MAX else ""
    named = f"{', '.join(words)}{more}" if more else " and ".join(words)
    return reason(
        "dependency",
        f"waits for {named}",
        f"fairlead why {waits[0].job}" if waits else "",
        jobs=", ".join(one.job for one in waits[:NAMED_MAX]),
        waits_for=len(waits),
        start_at=rfc3339(row.start_at_ns) if row.start_at_ns else None,
    )


def _start_time(row: JobRow, now_ns: int) -> Reason:
    when, left_s = rfc3339(row.start_at_ns), max(0, row.start_at_ns - now_ns) // SECOND_NS
    then = "wait, or submit again without startAt"
    return reason("scheduled", f"not to start before {when}", then, start_at=when, seconds_left=left_s)


def _backoff(row: JobRow, now_ns: int) -> Reason:
    when, left_s = rfc3339(row.not_before_ns), (row.not_before_ns - now_ns) // SECOND_NS
    message = f"attempt {row.attempt} not before {when} (the one before ended: {row.reason})"
    then = f"wait, or see the last attempt: fairlead logs {row.id}"
    of = {"attempt": row.attempt, "not_before": when, "cause": row.reason, "seconds_left": left_s}
    return reason("backoff", message, then, **of)


def _turn(views: Views, row: JobRow, count_ahead: bool, told: Explanation | None) -> Reason:
    then = "wait; a higher priority goes first"
    message = "has its turn and waits for a place" if row.state == "offered" else "waits for its turn"
    if told is None and not count_ahead:
        return reason("waiting_turn", message, then)
    ahead = _jobs_ahead(views, row) if told is None else told.ahead
    before = f"{several(ahead, 'job')} {'is' if ahead == 1 else 'are'} ahead of it" if ahead else "it is next"
    if ahead >= AHEAD_MAX:
        before = f"{AHEAD_MAX} jobs or more are ahead of it"
    return reason("waiting_turn", f"{message}; {before}", then, ahead=ahead, priority=row.priority)


def _jobs_ahead(views: Views, row: JobRow) -> int:
    """Return the open offers of lower rank; for a job not offered yet all open offers, and the jobs of its queue that go before
    it by priority and age. How queues take turns, only the queue service knows.
    """
    rows, own = views.jobs.rows.values(), _order(row)
    offers = [other for other in rows if other.state == "offered"]
    if row.state == "offered":
        return sum(other.offer_rank < row.offer_rank for other in offers)
    before = [other for other in rows if other.state == "queued" and other.queue == row.queue and _order(other) < own]
    waiting = sum(1 if other.elements is None else other.elements["waiting"] for other in before)
    return waiting + sum(other.array_id != row.id for other in offers)


def _order(row: JobRow) -> tuple[int, int, int]:
    """Return the queue's order: priority, then submission, then index."""
    number, _, index = row.id.partition("_")
    return -row.priority, int(number), int(index or 0)
