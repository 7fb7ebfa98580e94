"""Decisions on people's commands, one by one. Every command leads to exactly one event that names it.

Cancel asks for an end and is refused if one has come or is on its way; requeue ends a run and no job; a signal goes to a run and moves no job;
hold and release move waiting jobs. A command for an array applies to all its elements. An element that does not exist yet cannot be named.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from fairlead_bus.core import CommandRefusal, rejected, undecodable
from fairlead_queue.decide import configuration, queue_closing, services, validation
from fairlead_queue.decide.admission import (
    accepted_job,
    drained_refusal,
    submit_refusal,
    unknown_queue,
    unnamed_model_refusal,
)
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.freshness import stale_job_refusal, stale_queues_refusal
from fairlead_queue.decide.job_update import raises_limit_at_work, update_refusal
from fairlead_queue.decide.outcomes import ends_when_idle
from fairlead_queue.fairness.quota import pool_name
from fairlead_queue.waiting.pending import Array, LiveJob
from fairlead_schemas.policies.checkpoints import signal_fault
from fairlead_schemas.queuefile.settings import PoolEntry
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import MICROSECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.lifecycle import END_STATES


def decide_command(draft: QueueDraft, command: cmd.QueueCommand | cmd.Undecodable) -> None:
    """Decide one command: carry it out, or record why not."""
    if isinstance(command, cmd.Undecodable):
        draft.answer(undecodable(ev.CommandRejected, command))
        return
    authority = command.authority
    if authority is not None:  # most commands of a busy cluster are submits: two calls less for each without one
        draft.repeat(authority)
    answer = HANDLERS[type(command)](draft, command, f"cmd:{command.id}")
    if isinstance(answer, CommandRefusal):
        answer = rejected(ev.CommandRejected, command, answer)
    draft.answer(answer)
    if authority is not None:
        draft.repeat(None)


def _submit(draft: QueueDraft, command: cmd.SubmitJob, cause: str) -> ev.QueueEvent:
    if command.key:
        known = draft.keys.get(command.key) or draft.state.keys.get(command.key)
        if known is not None:
            return _repeated(command, cause, *known)
    refused = submit_refusal(draft, command)
    if refused is not None:
        return _job_rejected(command, cause, refused)
    return accepted_job(draft, command, cause)


def _repeated(command: cmd.SubmitJob, cause: str, job: str, digest: str) -> ev.QueueEvent:
    if digest == command.digest:
        return ev.CommandRepeated(cause=cause, command=command.id, job=job)
    message = f"this idempotency key was used for job {job} with another content; use a new key for a new job"
    return _job_rejected(command, cause, CommandRefusal("idempotency_conflict", message))


def _job_rejected(command: cmd.SubmitJob, cause: str, refused: CommandRefusal) -> ev.JobRejected:
    return ev.JobRejected(
        cause=cause,
        command=command.id,
        code=refused.code,
        message=refused.message,
        field=refused.field,
        user=command.user,
        queue=command.queue,
        request=command.request,
        total_ns=command.total_ns,
        array=command.array,
        project=command.project,
    )


def _cancel(draft: QueueDraft, command: cmd.CancelJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if state == "stopping" and (job.id in draft.states or not _yields_to_cancel(job)):
        return _conflict(f"job {job.id} is already being stopped")
    if state in END_STATES:
        return _conflict(f"job {job.id} has already ended: {state}")
    if state in ("offered", "placed", "running", "stopping") or (isinstance(job, Array) and job.live):
        draft.states[job.id] = "stopping"
        return ev.JobStopRequested(
            cause=cause, job=job.id, attempt=job.attempt, reason="cancelled", by=command.user, save=command.save
        )
    draft.states[job.id] = "cancelled"
    return ev.JobCancelled(cause=cause, job=job.id, by=command.user, attempt=job.attempt)


def _yields_to_cancel(job: LiveJob) -> bool:
    """Return True if a job that is being stopped would wait for another attempt, or for its time limit."""
    return job.stop in ("reclaimed", "requeued", "time_limit") or (job.stop == "idle" and not ends_when_idle(job))


def _requeue(draft: QueueDraft, command: cmd.RequeueJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if isinstance(job, Array):
        return _conflict(f"job {job.id} is an array; requeue the elements that run, such as {job.id}_{job.first}")
    if state in END_STATES or state == "stopping" or job.end is not None:
        return _conflict(
            f"job {job.id} is {state if job.end is None else 'ending'}; only a job that runs can be requeued"
        )
    if state not in ("placed", "running"):
        return _conflict(f"job {job.id} is {state}; only a job that runs can be requeued, and it waits already")
    draft.states[job.id] = "stopping"
    return ev.JobStopRequested(cause=cause, job=job.id, attempt=job.attempt, reason="requeued", by=command.user)


def _signal(draft: QueueDraft, command: cmd.SignalJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    fault = signal_fault(command.signal)
    if fault:
        return CommandRefusal("invalid", f"signal: {fault}")
    if isinstance(job, Array):
        return _conflict(f"job {job.id} is an array; send it to elements that run, such as {job.id}_{job.first}")
    # A placed job's program may run already, before its start is in the log; its agent signals what has begun.
    if state not in ("placed", "running") or job.end is not None:
        return _conflict(
            f"job {job.id} is {state if job.end is None else 'ending'}; only a job that runs gets a signal"
        )
    return ev.JobSignalRequested(cause=cause, job=job.id, attempt=job.attempt, signal=command.signal, by=command.user)


def _hold(draft: QueueDraft, command: cmd.HoldJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if isinstance(job, Array) and not job.unborn:
        return _conflict(f"all elements of array {job.id} have been offered; hold single elements")
    if state in ("scheduled", "queued"):
        draft.states[job.id] = "held"
        draft.changed.add(job.id)
        return ev.JobHeld(cause=cause, job=job.id, by=command.user)
    if state == "offered" and not job.hold:
        # A withdrawal does not change the state, so remember that this decision mentions the job.
        draft.states[job.id] = state
        draft.changed.add(job.id)
        return ev.OfferWithdrawn(cause=cause, job=job.id, attempt=job.attempt, reason="hold", by=command.user)
    return _conflict(_why_not_hold(job, state))


def _why_not_hold(job: LiveJob, state: str) -> str:
    if job.hold or state == "held":
        return f"job {job.id} is already held"
    if state in END_STATES:
        return f"job {job.id} has already ended: {state}"
    return f"job {job.id} is {state}; only a job that waits can be held"


def _release(draft: QueueDraft, command: cmd.ReleaseJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if state == "held":
        draft.states[job.id] = "queued"
        draft.changed.add(job.id)
        return ev.JobReleased(cause=cause, job=job.id, by=command.user)
    if job.hold:
        return _conflict(f"job {job.id} is about to be held; release it then")
    return _conflict(f"job {job.id} is {state}, not held")


def _move(draft: QueueDraft, command: cmd.MoveJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if state not in ("scheduled", "queued", "held") or job.wait == "owed":
        return _conflict(f"job {job.id} is {state}; only a job that waits can be moved")
    if job.parent is not None or (isinstance(job, Array) and job.live):
        return _conflict(f"job {job.id} belongs to an array that has begun; it stays in its queue")
    refused = unknown_queue(draft, command.queue) or drained_refusal(draft, command.queue)
    if refused is not None:
        return refused
    pool, own = pool_name(draft.queues(), command.queue), job.lane.request_class.pool.name
    if pool != own:
        return _conflict(f"queue {command.queue[:80]} is of pool {pool}, the job of {own}; submit it again")
    refused = unnamed_model_refusal(draft, command.queue, job.lane.request_class.request)
    if refused is not None:
        return refused
    draft.states[job.id] = state
    draft.changed.add(job.id)
    draft.entered.add(command.queue)
    return ev.JobMoved(cause=cause, job=job.id, queue=command.queue, by=command.user)


def _update(draft: QueueDraft, command: cmd.UpdateJob, cause: str) -> ev.QueueEvent | CommandRefusal:
    job, state = _find(draft, command.job)
    if job is None:
        return _unknown(draft, command.job, state)
    if job.parent is not None:
        return _conflict(f"job {job.id} is an element of an array; update array {job.parent.id}, with all its elements")
    if state in END_STATES or state == "stopping":
        return _conflict(f"job {job.id} is {state}; only a job that waits or runs can be updated")
    refused = stale_job_refusal(draft, job, command) or update_refusal(draft, job, command)
    if refused is not None:
        return refused
    for each in job.with_elements():
        draft.states.setdefault(each.id, each.state)
        draft.changed.add(each.id)
    return ev.JobUpdated(
        cause=cause,
        job=job.id,
        name=command.name,
        priority=command.priority,
        total_ns=command.total_ns,
        labels=command.labels,
        extends=command.extends and raises_limit_at_work(job, command),
        by=command.user,
    )


def _apply(draft: QueueDraft, command: cmd.ApplyQueues, cause: str) -> ev.QueueEvent | CommandRefusal:
    state = draft.state
    stale = stale_queues_refusal(draft, command)
    if stale is not None:
        return stale
    before = draft.outlook or configuration.current_configuration(state)
    after = configuration.proposed_configuration(before, command)
    refused = validation.change_refusal(state, command, before, after) or _in_use(draft, after)
    if refused is not None:
        return refused
    changed = configuration.changed_entries(before, after)
    if len(changed) + len(after.removed) + len(after.dropped_pools) > draft.room():
        return CommandRefusal("invalid", "too many changes at once; send it again")
    for event in configuration.configuration_events(changed, after, cause, command.user):
        draft.emit(event, len(msgspec.json.encode(event)))
    draft.entered.update(after.removed.values())
    draft.outlook = after
    for path in after.removed:
        draft.change_closures().release(path)
    draft.reshaped = True
    draft.welcome.clear()
    # Ancestors of a named queue are configured if they had to be made, although the command does not name them.
    names = {each.pool if isinstance(each, PoolEntry) else each.path for each in changed}
    unchanged = sum(each.pool not in names for each in command.pools) + sum(
        each.path not in names for each in command.queues
    )
    return ev.QueuesApplied(
        cause=cause,
        command=command.id,
        configured=len(changed),
        removed=len(after.removed) + len(after.dropped_pools),
        unchanged=unchanged,
        by=command.user,
        reclaim=command.reclaim,
    )


def _in_use(draft: QueueDraft, after: configuration.ProposedConfiguration) -> CommandRefusal | None:
    """Refuse a change after which no job may wait in a queue that jobs enter by this very decision."""
    for path in sorted(draft.entered.difference({""})):
        if path not in after.queues or any(other.startswith(f"{path}/") for other in after.queues):
            return CommandRefusal("invalid", f"queues.{path}: jobs are entering it at this moment; send it again")
    return None


def _find(draft: QueueDraft, id_: str) -> tuple[LiveJob | None, str]:
    """The live job and its state as this decision leaves it; or None and the finished one's state ("")."""
    job = draft.state.jobs.get(id_)
    if job is None:
        return None, draft.state.finished.get(id_, "")
    return job, draft.states.get(id_, job.state)


def _unknown(draft: QueueDraft, id_: str, end_state: str) -> CommandRefusal:
    """No live job has this id: it has ended, is still to be born, or was never there."""
    if end_state:
        return _conflict(f"job {id_} has already ended: {end_state}")
    array = draft.state.jobs.get(array_of(id_) or "")
    if isinstance(array, Array) and array.is_unborn(id_):
        message = f"element {id_} has not been offered yet; cancel, hold or release array {array.id} instead"
        return CommandRefusal("not_yet_offered", message)
    return CommandRefusal("not_found", f'no job "{id_[:40]}" is known here; it may have ended long ago')


def _conflict(message: str) -> CommandRefusal:
    return CommandRefusal("conflict", message)


def _set_price(draft: QueueDraft, command: cmd.SetPrice, cause: str) -> ev.QueueEvent:
    """Record a price: nothing that the queue decides depends on one."""
    from_ns = (command.from_ns or draft.now_ns) // MICROSECOND_NS * MICROSECOND_NS
    return ev.PriceSet(
        cause=cause,
        model=command.model,
        micro=command.micro,
        currency=command.currency,
        from_ns=from_ns,
        by=command.user,
    )


HANDLERS: dict[type, Callable[[QueueDraft, Any, str], ev.QueueEvent | CommandRefusal]] = {
    cmd.SubmitJob: _submit,
    cmd.CancelJob: _cancel,
    cmd.RequeueJob: _requeue,
    cmd.SignalJob: _signal,
    cmd.HoldJob: _hold,
    cmd.ReleaseJob: _release,
    cmd.MoveJob: _move,
    cmd.UpdateJob: _update,
    cmd.ApplyQueues: _apply,
    cmd.HoldQueue: queue_closing.hold_queue,
    cmd.DrainQueue: queue_closing.drain_queue,
    cmd.ReleaseQueue: queue_closing.release_queue,
    cmd.SetPrice: _set_price,
    cmd.ApplyService: services.apply_service,
    cmd.ScaleService: services.scale_service,
    cmd.ReportServiceLoad: services.report_load,
    cmd.StopService: services.stop_service,
    cmd.IssueServiceKey: services.issue_key,
    cmd.RevokeServiceKey: services.revoke_key,
}
