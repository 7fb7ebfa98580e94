"""A job's document from its events alone: what the API shows after a job left the live views. Pure.

Moves follow `fairlead_schemas.wire.lifecycle`; reasons are the decisions' own. Start at `fold_job`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead_schemas.http import api
from fairlead_schemas.jobfile.update import updated_spec
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339, rfc3339_or_none
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import lifecycle


class LoggedEvent(NamedTuple):
    """An event and when."""

    sequence: int
    at_ns: int
    event: ev.Event


def fold_job(
    job: str,
    submitted: LoggedEvent,
    happened: Sequence[LoggedEvent],
    array: dict[str, int] | None = None,
    *,
    now_ns: int = 0,
) -> api.Job:
    """The document of `job` after `happened`, its events in log order, as of `now_ns` (Unix).

    `submitted` is its JobSubmitted (an element's is its array's; for any other job it also is the first of
    `happened`). `array`: {state: elements} for an array. Raises KeyError on a move that is not legal.
    """
    submission = submitted.event
    assert isinstance(submission, ev.JobSubmitted)
    document = api.Job(
        id=job,
        name=submission.name,
        kind=submission.kind,
        queue=submission.queue,
        user=submission.user,
        project=submission.project,
        state="",
        attempt=1,
        priority=submission.priority,
        reason=None,
        nodes=[],
        gpus={},
        exit_code=None,
        submitted_at=rfc3339(submitted.at_ns),
        started_at=None,
        ended_at=None,
        sequence=submitted.sequence,
        spec=submission.spec,
        array=array if array_of(job) is None and submission.array is not None else None,
        deadline=rfc3339_or_none(submission.deadline_ns),
        slice_seconds=submission.slice_ns // SECOND_NS if submission.slice_ns else None,
        after=[{"job": one.job, "state": one.state} for one in submission.after] if array_of(job) is None else [],
    )
    for one in happened:
        _apply(document, one)
    document.lost_seconds = lost_time(happened) // SECOND_NS
    document.attempts = ended_attempts(happened)
    used_ns = run_time(happened, now_ns)
    document.used_seconds = used_ns // SECOND_NS
    total_ns = submission.total_ns
    for _, _, event in happened:
        if isinstance(event, ev.JobUpdated) and event.total_ns is not None:
            total_ns = event.total_ns
    document.left_seconds = max(0, total_ns - used_ns) // SECOND_NS if total_ns else None
    return document


def run_time(happened: Sequence[LoggedEvent], now_ns: int) -> int:
    """Return the run time (ns) of the newest attempt and of the attempts that it continues; a failure or a loss starts again
    from zero.
    """
    used = started = 0
    for _, at_ns, event in happened:
        match event:
            case ev.RunStarted():
                started = at_ns
            case ev.RunEnded():
                used, started = used + (event.ran_ns or max(0, at_ns - started) if started else 0), 0
            case ev.JobRequeued() if event.reason not in lifecycle.GOES_ON:
                used = 0
            case _:
                pass
    return used + (max(0, now_ns - started) if started else 0)


def lost_time(happened: Sequence[LoggedEvent]) -> int:
    """Run time (ns) that ends of attempts have lost: since they had saved, or since they started."""
    lost = started = saved = 0
    for _, at_ns, event in happened:
        match event:
            case ev.RunStarted():
                started = at_ns
            case ev.CheckpointSaved():
                saved = at_ns
            case ev.RunEnded():
                if started and not (event.outcome == "exited" and event.exit_code == 0):
                    lost += max(0, at_ns - max(started, saved))
                started = 0
            case _:
                pass
    return lost


def ended_attempts(happened: Sequence[LoggedEvent]) -> list[api.Attempt]:
    """Attempts that had a place and were followed by another one, the newest ones."""
    found: list[api.Attempt] = []
    placed: ev.JobPlaced | None = None
    started, ended, how = None, None, None
    for _, at_ns, event in happened:
        match event:
            case ev.JobPlaced():
                placed, started, ended, how = event, None, None, None
            case ev.RunStarted():
                started = rfc3339(at_ns)
            case ev.RunEnded():
                ended, how = rfc3339(at_ns), event
            case ev.JobRequeued() if placed is not None:
                found.append(_attempt(placed, started, ended, how, event.reason))
                placed = None
            case _:
                pass
    return found[-api.ATTEMPTS_MAX :]


def _attempt(
    placed: ev.JobPlaced, started: str | None, ended: str | None, how: ev.RunEnded | None, reason: str
) -> api.Attempt:
    end = how or ev.RunEnded(cause="", job=placed.job, attempt=placed.attempt, outcome="exited")
    return api.Attempt(
        attempt=placed.attempt,
        nodes=[part.node for part in placed.parts],
        started_at=started,
        ended_at=ended,
        reason=reason,
        exit_code=end.exit_code,
        signal=end.signal,
        gpu_fault=end.gpu_fault,
        message=end.message[: api.ATTEMPT_MESSAGE_CHARS_MAX],
    )


def _apply(job: api.Job, happened: LoggedEvent) -> None:
    """Apply one event to the job's document: the state by the table, the rest from the event's fields."""
    event, job.sequence = happened.event, happened.sequence
    name = type(event).__name__
    if name in lifecycle.NOT_MOVING:
        _note(job, event)
        if isinstance(event, ev.AppReady):
            job.ready_at = rfc3339(happened.at_ns)
        elif isinstance(event, ev.CheckpointSaved):
            job.saved_at, job.saved_note = rfc3339(happened.at_ns), event.note
        elif isinstance(event, ev.JobUpdated):
            _update(job, event)
        return
    if isinstance(event, ev.JobSubmitted):
        waits = event.start_at_ns > happened.at_ns or event.after
        job.state = "held" if event.held else "scheduled" if waits else "queued"
        return
    if job.state == "scheduled" and (job.state, name) not in lifecycle.NEXT:
        job.state = "queued"  # all that it waited for had ended: it never was anything else
    job.state = lifecycle.next_state(job.state, name)
    job.attempt = max(job.attempt, getattr(event, "attempt", 0))
    match event:
        case ev.JobRequeued():
            _new_attempt(job)
            job.preempted += event.reason == "preempted"
        case ev.JobMoved():
            job.queue = event.queue
        case ev.JobUnplaceable():
            kept = ", ".join(f"{count} by {what}" for what, count in sorted(event.reasons.items()))
            job.reason = api.Reason(
                code="unplaceable", message=f"{event.nodes} nodes: {kept}", detail=dict(event.reasons)
            )
        case ev.JobPlaced():
            job.reason = None
            job.nodes = [part.node for part in event.parts]
            job.gpus = {part.node: list(part.gpus) for part in event.parts if part.gpus}
        case ev.RunStarted():
            job.started_at, job.ready_at = rfc3339(happened.at_ns), None
        case ev.RunEnded():
            job.exit_code, job.signal, job.message = event.exit_code, event.signal, event.message
        case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
            _end(job, event, rfc3339(happened.at_ns))
        case _:
            pass


def _update(job: api.Job, event: ev.JobUpdated) -> None:
    spec = updated_spec(bytes(job.spec), event.name, event.priority, event.total_ns, event.labels)
    job.spec = msgspec.Raw(spec)
    job.name = job.name if event.name is None else event.name
    job.priority = job.priority if event.priority is None else event.priority


def _end(job: api.Job, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at: str) -> None:
    job.ended_at = at
    match event:
        case ev.JobSucceeded():
            job.reason = api.Reason(code="succeeded", message=f"ended with exit code 0 at {at}")
        case ev.JobFailed():
            job.exit_code, job.signal, job.message = event.exit_code, event.signal, event.message or job.message
            detail: dict[str, int | str] = {"reason": event.reason, "attempt": event.attempt}
            detail |= {
                name: n for name, n in (("exit_code", event.exit_code), ("signal", event.signal)) if n is not None
            }
            message = f": {job.message}" if job.message else ""
            job.reason = api.Reason(code="failed", message=f"{_failure(event)} at {at}{message}", detail=detail)
        case ev.JobCancelled():
            by = f" by {event.by}" if event.by else ""
            job.reason = api.Reason(
                code="cancelled", message=f"was cancelled{by} at {at}", detail={"by": event.by} if by else {}
            )


def _note(job: api.Job, event: ev.Event) -> None:
    """Note an event that names the job and does not move it."""
    match event:
        case ev.PreemptionStarted():
            job.preempted_for = {"job": event.beneficiary, "rule": event.rule}
        case ev.DeadlineMissed():
            job.deadline_missed = True
        case _:
            pass


def _new_attempt(job: api.Job) -> None:
    job.nodes, job.gpus, job.exit_code, job.signal, job.message = [], {}, None, None, ""
    job.started_at = job.reason = None


def _failure(event: ev.JobFailed) -> str:
    if event.signal is not None:
        return f"was ended by signal {event.signal}"
    if event.exit_code is not None:
        return f"ended with exit code {event.exit_code}"
    return f"failed: {event.reason.replace('_', ' ')}"
