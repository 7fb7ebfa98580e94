"""What people ask for, decided one by one. Every command leads to exactly one event that names it.

Cancel asks for an end and is refused where one has come or is on its way; hold and release move
jobs that wait. An array's command speaks of all its elements; an element that has not come into
being cannot be named yet.
"""

from collections.abc import Callable
from typing import Any

from fairlead_queue.admission import AMOUNT_MAX, refusal
from fairlead_queue.jobs import Array, Job
from fairlead_queue.limits import UNDECODABLE_CHARS_MAX
from fairlead_queue.plan import Fresh, Plan
from fairlead_queue.ranks import rank_of
from fairlead_schemas import commands as cmd
from fairlead_schemas import events as ev
from fairlead_schemas.ids import array_of, is_queue_path
from fairlead_schemas.lifecycle import END_STATES

#: Characters of a digest that stand for an id where a command has none.
DIGEST_CHARS = 16


def carry_out(plan: Plan, command: Any) -> None:
    """Decide one command (or `Undecodable`)."""
    plan.answer(HANDLERS[type(command)](plan, command, f"cmd:{command.id}"))


def _submit(plan: Plan, command: cmd.SubmitJob, cause: str) -> ev.QueueEvent:
    if command.key:
        known = plan.keys.get(command.key) or plan.state.keys.get(command.key)
        if known is not None:
            return _repeated(command, cause, *known)
    refused = refusal(plan, command)
    if refused is not None:
        return ev.JobRejected(
            cause=cause, command=command.id, code=refused.code, message=refused.message, field=refused.field,
            user=command.user,
        )  # fmt: skip
    number = plan.next_number
    plan.next_number = number + 1
    job = str(number)
    if command.key:
        plan.keys[command.key] = (job, command.digest)
    if command.array is None and command.start_at_ns <= plan.now_ns:
        plan.fresh.append(Fresh(rank_of(command.priority, number), job, command.queue, command.request, cause))
    return ev.JobSubmitted(
        cause=cause, job=job, name=command.name, queue=command.queue, user=command.user, request=command.request,
        spec=command.spec, project=command.project, kind=command.kind, priority=command.priority, array=command.array,
        retries=command.retries, total_ns=command.total_ns, grace_ns=command.grace_ns,
        start_at_ns=command.start_at_ns, key=command.key, digest=command.digest,
    )  # fmt: skip


def _repeated(command: cmd.SubmitJob, cause: str, job: str, digest: str) -> ev.QueueEvent:
    if digest == command.digest:
        return ev.CommandRepeated(cause=cause, command=command.id, job=job)
    message = f"this idempotency key was used for job {job} with another content; use a new key for a new job"
    return ev.JobRejected(
        cause=cause, command=command.id, code="idempotency_conflict", message=message, user=command.user
    )


def _cancel(plan: Plan, command: cmd.CancelJob, cause: str) -> ev.QueueEvent:
    job, state = _find(plan, command.job)
    if job is None:
        return _unknown(plan, command.id, command.job, state, cause)
    if state == "stopping":
        return _conflict(command.id, cause, f"job {job.id} is already being stopped")
    if state in END_STATES:
        return _conflict(command.id, cause, f"job {job.id} has already ended: {state}")
    if state in ("offered", "placed", "running") or (isinstance(job, Array) and job.live):
        plan.states[job.id] = "stopping"
        return ev.JobStopRequested(cause=cause, job=job.id, attempt=job.attempt, reason="cancelled", by=command.user)
    plan.states[job.id] = "cancelled"
    return ev.JobCancelled(cause=cause, job=job.id, by=command.user, attempt=job.attempt)


def _hold(plan: Plan, command: cmd.HoldJob, cause: str) -> ev.QueueEvent:
    job, state = _find(plan, command.job)
    if job is None:
        return _unknown(plan, command.id, command.job, state, cause)
    if isinstance(job, Array) and not job.unborn:
        return _conflict(command.id, cause, f"all elements of array {job.id} have been offered; hold single elements")
    if state in ("scheduled", "queued"):
        plan.states[job.id] = "held"
        return ev.JobHeld(cause=cause, job=job.id, by=command.user)
    if state == "offered" and not job.hold:
        # The state does not change by a recall: remember that this job was spoken of.
        plan.states[job.id] = state
        return ev.JobRecalled(cause=cause, job=job.id, attempt=job.attempt, reason="hold", by=command.user)
    return _conflict(command.id, cause, _why_not_hold(job, state))


def _why_not_hold(job: Job, state: str) -> str:
    if job.hold or state == "held":
        return f"job {job.id} is already held"
    if state in END_STATES:
        return f"job {job.id} has already ended: {state}"
    return f"job {job.id} is {state}; only a job that waits can be held"


def _release(plan: Plan, command: cmd.ReleaseJob, cause: str) -> ev.QueueEvent:
    job, state = _find(plan, command.job)
    if job is None:
        return _unknown(plan, command.id, command.job, state, cause)
    if state == "held":
        plan.states[job.id] = "queued"
        return ev.JobReleased(cause=cause, job=job.id, by=command.user)
    if job.hold:
        return _conflict(command.id, cause, f"job {job.id} is about to be held; release it then")
    return _conflict(command.id, cause, f"job {job.id} is {state}, not held")


def _configure(plan: Plan, command: cmd.ConfigureQueue, cause: str) -> ev.QueueEvent:
    if not is_queue_path(command.path):
        message = f'expected names of a-z 0-9 _ - joined by "/", found "{command.path[:80]}"'
        return ev.CommandRejected(cause=cause, command=command.id, code="invalid", message=message)
    quota = command.gpu_quota_milli
    if quota is not None and not 0 <= quota <= AMOUNT_MAX:
        message = f"expected a quota of 0 to {AMOUNT_MAX} milli-GPU, found {quota}"
        return ev.CommandRejected(cause=cause, command=command.id, code="invalid", message=message)
    event = ev.QueueConfigured(cause=cause, path=command.path, gpu_quota_milli=quota, by=command.user)
    plan.configured[command.path] = event
    return event


def _undecodable(plan: Plan, command: cmd.Undecodable, cause: str) -> ev.QueueEvent:
    return ev.CommandRejected(
        cause=cause if command.id else f"cmd:{command.digest[:DIGEST_CHARS]}", command=command.id, code="undecodable",
        message=command.message[:UNDECODABLE_CHARS_MAX], digest=command.digest,
    )  # fmt: skip


def _find(plan: Plan, id_: str) -> tuple[Job | None, str]:
    """The live job and its state as this decision leaves it; or None and the finished one's state ("")."""
    job = plan.state.jobs.get(id_)
    if job is None:
        return None, plan.state.finished.get(id_, "")
    return job, plan.states.get(id_, job.state)


def _unknown(plan: Plan, command: str, id_: str, end_state: str, cause: str) -> ev.QueueEvent:
    """No live job has this id: it has ended, is still to be born, or was never there."""
    if end_state:
        return _conflict(command, cause, f"job {id_} has already ended: {end_state}")
    array = plan.state.jobs.get(array_of(id_) or "")
    if isinstance(array, Array) and _is_unborn(array, id_):
        message = f"element {id_} has not been offered yet; cancel, hold or release array {array.id} instead"
        return ev.CommandRejected(cause=cause, command=command, code="not_yet_offered", message=message)
    message = f'no job "{id_[:40]}" is known here; it may have ended long ago'
    return ev.CommandRejected(cause=cause, command=command, code="not_found", message=message)


def _is_unborn(array: Array, id_: str) -> bool:
    index = id_.partition("_")[2]
    return index.isdecimal() and array.last - array.unborn < int(index) <= array.last


def _conflict(command: str, cause: str, message: str) -> ev.QueueEvent:
    return ev.CommandRejected(cause=cause, command=command, code="conflict", message=message)


HANDLERS: dict[type[Any], Callable[[Plan, Any, str], ev.QueueEvent]] = {
    cmd.SubmitJob: _submit,
    cmd.CancelJob: _cancel,
    cmd.HoldJob: _hold,
    cmd.ReleaseJob: _release,
    cmd.ConfigureQueue: _configure,
    cmd.Undecodable: _undecodable,
}
