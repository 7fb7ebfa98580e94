"""Consequences of an ended attempt: success, another attempt, or an end; and the other events that the queue owes.

Three purses pay for further attempts. The user's `retries` pay for failed exits. Losses that are not the job's doing
(node lost, rebooted, exit unseen) have a budget of their own, with delays. A drain is a person's decision and costs
nothing, and neither does a requeue by a person. A fault of a GPU, yielding to another job and idleness cost nothing either. The same holds for a node that
failed its own check before it started anything: the node then takes no work, and the job avoids it. No purse pays for a
job that has failed in the same way on BLAMED_NODES nodes: the next attempt would fail the same way.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, encoded_bytes
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.limits import BLAMED_NODES, FREE_STARTS_MAX, LOSS_DELAYS_NS
from fairlead_queue.waiting.attempts import AttemptEnd, decisive
from fairlead_queue.waiting.pending import NEVER, Array, LiveJob
from fairlead_schemas.wire.events import (
    FailReason,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobQueued,
    JobRequeued,
    JobSucceeded,
    QueueEvent,
    RequeueReason,
)

_STATE_AFTER: dict[type[QueueEvent], str] = {
    JobSucceeded: "succeeded",
    JobFailed: "failed",
    JobCancelled: "cancelled",
    JobRequeued: "queued",
    JobHeld: "held",
    JobQueued: "queued",
}


#: {reason of a stop after which the job waits for another attempt: the reason of that attempt}
_WAITS_AGAIN: dict[str, RequeueReason] = {"reclaimed": "preempted", "idle": "idle", "requeued": "requeued"}


def emit_owed(draft: QueueDraft) -> None:
    """Emit every event that the queue owes while the commit has room."""
    for job in draft.state.owed.values():
        if not draft.has_room():
            return
        event = owed_event(job, draft.now_ns)
        draft.emit(event, encoded_bytes(_repeated_text(event)))
        draft.states[job.id] = _STATE_AFTER[type(event)]
        if isinstance(event, JobRequeued) and not event.not_before_ns:
            draft.reshaped = True  # or others would go before it once more: what it held is free already


def _repeated_text(event: QueueEvent) -> str:
    """Return the text from other writers that the event repeats."""
    match event:
        case JobFailed():
            return event.message
        case JobCancelled() | JobHeld():
            return event.by
        case _:
            return ""


def owed_event(job: LiveJob, now_ns: int) -> QueueEvent:
    """The event that closes what the job's `end` has opened."""
    end = job.end
    assert end is not None, f"job {job.id} is owed an event without an end"
    if isinstance(job, Array) and job.is_over:
        return _array_end(job, end)
    if job.stop:
        return _stopped(job, end, now_ns)
    if job.after:
        return _never(job, end)
    if job.state == "scheduled" or (job.state == "queued" and not job.hold):
        return JobQueued(cause=end.cause, job=job.id)
    if job.state == "queued":
        return JobHeld(cause=end.cause, job=job.id, by=job.hold_by)
    return _run_ended(job, end, now_ns)


def _never(job: LiveJob, end: AttemptEnd) -> JobFailed:
    """A job that it waited for has ended otherwise."""
    assert job.after is not None
    other = next(other for other, wanted in job.after.items() if wanted == NEVER)
    message = f"it was to start after job {other}, which has ended otherwise"
    return JobFailed(cause=end.cause, job=job.id, reason="dependency", message=message)


def _array_end(array: Array, end: AttemptEnd) -> QueueEvent:
    if array.stop or (array.cancelled and not array.failed):
        return JobCancelled(cause=end.cause, job=array.id, by=array.stop_by)
    if array.failed:
        return JobFailed(
            cause=end.cause,
            job=array.id,
            reason="element_failed",
            message=f"{array.failed} of {array.ended} elements failed",
        )
    return JobSucceeded(cause=end.cause, job=array.id)


def _stopped(job: LiveJob, end: AttemptEnd, now_ns: int) -> QueueEvent:
    """Return the event for an ended attempt whose stop was requested. A run that ended well before the stop took effect has
    succeeded. A run that was drained or yielded while its agents held back the stop for its time limit continues with the
    rest of its time.
    """
    if end.outcome == "exited" and end.exit_code == 0:
        return JobSucceeded(cause=end.cause, job=job.id, attempt=job.attempt)
    if job.stop == "time_limit":
        if (end.drained or end.preempted or end.gpu_fault) and not job.had_its_time:
            return _run_ended(job, end, now_ns)
        return _fail(job, end, "time_limit")
    if job.stop == "idle" and ends_when_idle(job):
        return _idle_end(job, end)
    if job.stop in _WAITS_AGAIN:
        if job.parent is None or not job.parent.stop:
            reason = _WAITS_AGAIN[job.stop]
            return JobRequeued(cause=end.cause, job=job.id, attempt=job.attempt + 1, reason=reason)
        return JobCancelled(cause=end.cause, job=job.id, by=job.parent.stop_by, attempt=job.attempt)
    return JobCancelled(cause=end.cause, job=job.id, by=job.stop_by, attempt=job.attempt)


def ends_when_idle(job: LiveJob) -> bool:
    """Return True if the idle policy that reclaims the run also ends its job; otherwise the job waits for another attempt. The
    job also waits for another attempt if its run was used again before the stop and the queue saw that too late.
    """
    return bool(job.idle) and decisive(job.idle).action != "requeue"


def _idle_end(job: LiveJob, end: AttemptEnd) -> JobFailed:
    reclaim = decisive(job.idle)
    how = "it ran too long" if reclaim.rule == "lifetime" else "it was idle"
    told = f"{how} under the {reclaim.rule} policy of {reclaim.scope}, and its notice was over"
    return _fail(job, end, "idle", told)


def _run_ended(job: LiveJob, end: AttemptEnd, now_ns: int) -> QueueEvent:
    if end.outcome == "exited" and end.exit_code == 0:
        return JobSucceeded(cause=end.cause, job=job.id, attempt=job.attempt)
    if end.preempted and job.yields_by == "idle" and ends_when_idle(job):
        return _idle_end(job, end)
    reason, allowed, delay_ns, fail_reason = _retry(job, end)
    # Nothing of an array that is being cancelled is tried again.
    if not allowed or (job.parent is not None and job.parent.stop):
        return _fail(job, end, fail_reason)
    not_before_ns = now_ns + delay_ns if delay_ns else 0
    return JobRequeued(cause=end.cause, job=job.id, attempt=job.attempt + 1, reason=reason, not_before_ns=not_before_ns)


def _retry(job: LiveJob, end: AttemptEnd) -> tuple[RequeueReason, bool, int, FailReason]:
    """(reason of another attempt, whether it is allowed, delay in ns, reason of the failure otherwise)."""
    blamed = len(end.alike) >= BLAMED_NODES
    paid = job.failures < job.retries and not blamed
    if end.gpu_fault:
        return "gpu_fault", True, 0, "infrastructure"
    if end.drained:
        return "drained", True, 0, "infrastructure"
    if end.preempted:
        return ("idle" if job.yields_by == "idle" else "preempted"), True, 0, "infrastructure"
    if end.outcome == "preflight":
        return "preflight", True, 0, "infrastructure"
    if end.outcome == "exited":
        return "retry", paid, 0, "exit_code"
    if end.outcome in ("gpu_memory", "oom"):  # caused by the job itself, like an exit code
        return end.outcome, paid, 0, end.outcome
    if end.outcome == "start_failed":
        free = job.starts < FREE_STARTS_MAX and not blamed
        allowed = free or (paid and end.fault != "job")  # one other node may know better; more would not
        return ("start_failed" if free else "retry"), allowed, 0, "start_failed"
    # "stopped" without a stop or a drain of ours: the node ended it, and its progress is unknown.
    lost: RequeueReason = end.outcome if end.outcome in ("node_lost", "node_rebooted") else "exit_unknown"
    allowed = job.losses < len(LOSS_DELAYS_NS)
    return lost, allowed, LOSS_DELAYS_NS[job.losses] if allowed else 0, "infrastructure"


def _fail(job: LiveJob, end: AttemptEnd, reason: FailReason, why: str = "") -> JobFailed:
    return JobFailed(
        cause=end.cause,
        job=job.id,
        reason=reason,
        attempt=job.attempt,
        exit_code=end.exit_code,
        signal=end.signal,
        message="; ".join(filter(None, (why, _message(job, end))))[:MESSAGE_CHARS_MAX],
    )


def _message(job: LiveJob, end: AttemptEnd) -> str:
    """The run's own words; before them, why a job that could be tried again is not."""
    if len(end.alike) < BLAMED_NODES or job.stop or job.failures >= job.retries:
        return end.message
    told = f"not tried again: it failed in the same way on {', '.join(end.alike)}"
    return f"{told}; {end.message}" if end.message else told
