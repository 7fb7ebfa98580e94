"""Effects of the queue's own decisions about jobs on the state.

Arrays: their elements are born when they are offered, and the array's end is owed when nothing more will be. Called by
`evolve` only.
"""

from typing import Any

from fairlead_bus.core import EventHandler, EventHandlers, EventPosition
from fairlead_queue.apply import queues, waiting_jobs
from fairlead_queue.apply.waiting_jobs import dependency_ended, pending_dependencies, renew_order, wait_for_dependencies
from fairlead_queue.fairness.waiting_line import OFFSET_MASK, RANK_STEP, priority_of
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import AttemptEnd
from fairlead_queue.waiting.pending import Array, Deferral, LiveJob
from fairlead_schemas.units.ids import PRIORITY_MAX, array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.lifecycle import END_STATES, GOES_ON


def create_element(state: QueueState, id_: str) -> LiveJob:
    """Create the array's next element; the array then represents the one after it, or leaves the line."""
    array = state.jobs[array_of(id_) or ""]
    assert isinstance(array, Array)
    waiting_jobs.give_up_claim(array)
    job = LiveJob(id_, array.order, array.lane, array.cause)
    job.user, job.since_ns, job.slice_ns, job.aged = array.user, array.since_ns, array.slice_ns, array.aged
    job.retries, job.total_ns, job.parent, job.submitted_ns = array.retries, array.total_ns, array, array.submitted_ns
    job.notice_ns, job.every_ns = array.notice_ns, array.every_ns
    array.live[id_] = job
    state.add(job)
    if array.deadline_ns:
        state.due.set_deadline(job, array.deadline_ns)
    if array.order & OFFSET_MASK == array.last - array.first:
        state.unwait(array)
    elif array.full:
        state.unwait(array)
        array.order += 1
        state.wait_for_elements(array)
    else:
        array.order += 1
        state.refront(array.lane)
    return job


def element_ended(state: QueueState, job: LiveJob, array: Array, end_state: str, at: EventPosition, by: str) -> None:
    """An element has left; where the array waited for that, its next one may be born."""
    del array.live[job.id]
    array.ended += 1
    array.failed += end_state == "failed"
    array.cancelled += end_state == "cancelled"
    if array.state == "stopping":
        if job.awaits_cancel:
            count_stopped_element(state, array)
    elif end_state == "cancelled":
        array.stop_by = by
    if array.wait == "array" and not array.full:
        state.unwait(array)
        array.since_ns = state.at_ns  # until now it was its own limit that it waited for
        state.wait_in_line(array)
    _step(state, array, at)


def stop_array(state: QueueState, array: Array, at: EventPosition) -> None:
    """No more are born; those that live are to be stopped one by one."""
    state.unwait(array)
    waiting_jobs.give_up_claim(array)
    array.cause = at.id
    array.unstopped = sum(1 for element in array.live.values() if element.awaits_cancel)
    if array.unstopped:
        state.stopping[array.id] = array
    _step(state, array, at)


def count_stopped_element(state: QueueState, array: Array) -> None:
    """Count down by one the elements of a stopping array that still need a stop request."""
    array.unstopped -= 1
    if not array.unstopped:
        del state.stopping[array.id]


def _step(state: QueueState, array: Array, at: EventPosition) -> None:
    """Record that the array's end is due, once no element lives and none will be created."""
    if array.is_over:
        array.end = AttemptEnd(at.id, None)
        state.owe(array)


def _submitted(state: QueueState, event: ev.JobSubmitted, at: EventPosition) -> None:
    number = int(event.job)
    state.next_number = number + 1
    lane = state.lane(event.queue, event.user, event.request)
    order = lane.request_class.pool.order(
        event.priority,
        state.next_place,
        deadline_ns=event.deadline_ns,
        submitted_ns=at.time_ns,
        total_ns=event.total_ns,
    )
    state.next_place += 1
    if event.array is None:
        job = LiveJob(event.job, order, lane, at.id)
    else:
        job = Array(event.job, order, lane, at.id, event.array)
        job.limit = event.array_limit
    job.user = event.user
    job.retries, job.total_ns, job.start_at_ns = event.retries, event.total_ns, event.start_at_ns
    job.slice_ns, job.since_ns, job.submitted_ns = event.slice_ns, state.at_ns, at.time_ns
    if event.checkpoint is not None:
        job.notice_ns = event.checkpoint.notice_ns if event.checkpoint.is_told else 0
        job.every_ns = event.checkpoint.every_ns
    job.after = pending_dependencies(state, event.after) if event.after else None
    state.add(job)
    if event.deadline_ns:
        state.due.set_deadline(job, event.deadline_ns)
    if event.key:
        state.remember_key(event.key, event.job, event.digest)
    if event.held:
        job.state = "held"
        return
    job.state = "scheduled" if job.after or event.start_at_ns > at.time_ns else "queued"
    wait_for_dependencies(state, job, at)


def _queued(state: QueueState, event: ev.JobQueued, at: EventPosition) -> None:
    job = state.jobs[event.job]
    if job.wait != "returned":  # that has waited for its place all the time
        job.since_ns = state.at_ns
    state.unwait(job)
    job.state, job.cause, job.end = "queued", at.id, None
    state.wait_in_line(job)


def _moved(state: QueueState, event: ev.JobMoved, at: EventPosition) -> None:
    job = state.jobs[event.job]
    waiting_jobs.give_up_claim(job)
    job.changed_seq = at.sequence
    queues.move_job(state, job, event.queue)


def _updated(state: QueueState, event: ev.JobUpdated, at: EventPosition) -> None:
    for job in state.jobs[event.job].with_elements():
        job.changed_seq = at.sequence
        if event.total_ns is not None:
            _limit(state, job, event.total_ns)
        priority = priority_of(job.order)
        if event.priority is not None:
            job.aged = min(job.aged, PRIORITY_MAX - event.priority)
            priority = event.priority + job.aged
        if event.priority is not None or event.total_ns is not None:
            _reorder(state, job, priority)


def _limit(state: QueueState, job: LiveJob, total_ns: int) -> None:
    """Set the time limit of a job; one that runs is stopped by the new one."""
    job.total_ns = total_ns
    if job.deadline_ns:
        state.due.set_alarm(job)
    if job.state == "running":
        state.due.drop_timer(job)
        if total_ns:
            state.wait_until(job, job.started_ns + max(0, total_ns - job.used_ns - job.notice_ns))


def _aged(state: QueueState, event: ev.PriorityAged, at: EventPosition) -> None:
    for id_ in event.jobs:
        job = state.jobs[id_]
        job.aged += 1
        _reorder(state, job, priority_of(job.order) + 1)


def _reorder(state: QueueState, job: LiveJob, priority: int) -> None:
    """Update the job's order after a change of its priority or deadline; a job in line finds its new place."""
    in_line = job.wait == "line"
    if in_line:
        state.unwait(job)
    renew_order(job, priority)
    if in_line:
        state.wait_in_line(job)


def _deferred(state: QueueState, event: ev.JobDeferred, at: EventPosition) -> None:
    job = state.jobs[event.job]
    lane = job.lane
    if isinstance(job, Array) and event.reason == "array_limit":
        job.reported = True
        state.unreported_arrays.pop(job.id, None)
    elif lane.front:
        times = lane.deferral.times + 1 if lane.deferral is not None else 0
        lane.deferral = Deferral(event.reason, event.queue, event.resource, state.at_ns, times)
        state.unreported.pop(lane, None)


def _deadline_missed(state: QueueState, event: ev.DeadlineMissed, at: EventPosition) -> None:
    job = state.jobs[event.job]
    state.due.set_deadline(job, 0)
    _reorder(state, job, priority_of(job.order))


def _reservation_requested(state: QueueState, event: ev.ReservationRequested, at: EventPosition) -> None:
    """Put the claim of the job. An event about a job that has been placed or given back meanwhile (then it waits for another
    cause) is ignored.
    """
    job = state.jobs[event.job]
    pool = job.lane.request_class.pool
    if event.cause != job.cause:
        return
    if job.wait == "line":
        waiting_jobs.put_claim(state, pool.tree.nodes[event.queue], job)
    elif job.open:
        pool.claimant = job.id


def _preemption_requested(state: QueueState, event: ev.PreemptionRequested, at: EventPosition) -> None:
    """Record the preemption request. Ignored if outdated: a request with amounts whose job is no longer in line, or
    one without whose job has no open offer."""
    job = state.jobs[event.job]
    if event.amounts and job.wait == "line":
        waiting_jobs.put_claim(state, job.lane.request_class.pool.tree.nodes[event.queue], job)
    elif event.amounts or not job.open:
        return
    job.asked, job.asked_ns = "asked", state.at_ns


def _offered(state: QueueState, event: ev.JobOffered, at: EventPosition) -> None:
    if event.rank >= state.next_rank:
        state.next_rank = event.rank + RANK_STEP
    job = state.jobs.get(event.job)
    if job is not None and (job.open or job.state in ("placed", "running")):
        if job.open:  # else it was placed before its new rank was seen
            job.rank = event.rank
        return
    if job is None:
        job = create_element(state, event.job)
    else:
        state.unwait(job)
        waiting_jobs.drop_claims(job)
    job.state = "offered"
    state.settle_past(job.lane)
    state.open_offer(job, event.rank)


def _recalled(state: QueueState, event: ev.OfferWithdrawn, at: EventPosition) -> None:
    job = state.jobs[event.job]
    if event.reason == "hold":
        job.hold, job.hold_by, job.changed_seq = True, event.by, at.sequence
    if job.open:
        job.withdrawal = event.reason
    elif event.reason == "hold" and job.state == "queued":
        # The offer came back while the hold was decided.
        state.unwait(job)
        job.end = AttemptEnd(at.id, None)
        state.owe(job)
    elif event.reason == "hold":
        job.hold, job.hold_by = False, ""  # too late: it was placed


def _held(state: QueueState, event: ev.JobHeld, at: EventPosition) -> None:
    job = state.jobs[event.job]
    state.unwait(job)
    waiting_jobs.give_up_claim(job)
    job.state, job.hold, job.hold_by, job.end = "held", False, "", None
    job.changed_seq = at.sequence


def _released(state: QueueState, event: ev.JobReleased, at: EventPosition) -> None:
    job = state.jobs[event.job]
    job.state, job.cause, job.since_ns = "queued", at.id, state.at_ns
    job.changed_seq = at.sequence
    wait_for_dependencies(state, job, at)


def _stop_requested(state: QueueState, event: ev.JobStopRequested, at: EventPosition) -> None:
    job = state.jobs[event.job]
    awaited = job.awaits_cancel
    job.stop, job.stop_by, job.stop_saves = event.reason, event.by, event.save
    was, job.state = job.state, "stopping"
    if isinstance(job, Array):
        stop_array(state, job, at)
        return
    if job.parent is not None and job.parent.state == "stopping" and awaited and not job.awaits_cancel:
        count_stopped_element(state, job.parent)
    if was == "queued":
        # The offer came back while the stop was decided: nothing is left to stop.
        state.unwait(job)
        job.end = AttemptEnd(at.id, None)
        state.owe(job)
    elif job.end is None:
        state.due.drop_timer(job)


#: Reasons of another attempt that use up one of the user's retries.
PAID_BY_RETRIES = ("retry", "oom", "gpu_memory")


def _requeued(state: QueueState, event: ev.JobRequeued, at: EventPosition) -> None:
    job = state.jobs[event.job]
    state.unwait(job)
    job.state, job.attempt, job.cause, job.end, job.since_ns = "queued", event.attempt, at.id, None, state.at_ns
    job.stop, job.stop_by, job.stop_saves = "", "", False
    lay_idle = event.reason == "idle" and bool(job.idle)
    state.set_idle_reclaims(job, ())
    if event.reason not in GOES_ON:
        job.used_ns = 0
    if job.deadline_ns:
        state.due.set_alarm(job)
    if event.reason in PAID_BY_RETRIES:
        job.failures += 1
    elif event.reason == "start_failed":
        job.starts += 1
    elif event.reason not in GOES_ON:
        job.losses += 1
    if job.aged:
        job.aged, aged = 0, job.aged
        renew_order(job, priority_of(job.order) - aged)
    if lay_idle or (event.reason == "preempted" and job.yields_by == "over_slice"):
        _go_behind(state, job)
    job.yields_by = ""
    if event.not_before_ns > at.time_ns:
        state.wait_until(job, event.not_before_ns)
    else:
        state.wait_in_line(job)


def _go_behind(state: QueueState, job: LiveJob) -> None:
    """Move the job behind others with equal claims, because it has had its slice or did not use its resources. Pools whose
    line is ordered by place alone are unchanged.
    """
    if not job.lane.request_class.pool.sequencer.by_order:
        renew_order(job, priority_of(job.order), place=state.next_place)
        state.next_place += 1


def _ended(end_state: str) -> EventHandler[QueueState]:
    assert end_state in END_STATES

    def handler(state: QueueState, event: Any, at: EventPosition) -> None:
        _finish(state, event.job, end_state, at, getattr(event, "by", ""))
        if state.dependents:
            dependency_ended(state, event.job, end_state, at)

    return handler


def _finish(state: QueueState, id_: str, end_state: str, at: EventPosition, by: str) -> None:
    job = state.jobs[id_]
    state.unwait(job)
    waiting_jobs.give_up_claim(job)
    if job.deadline_ns:
        state.due.set_deadline(job, 0)
    state.remove(job)
    state.finished[job.id] = end_state
    if job.parent is not None:
        element_ended(state, job, job.parent, end_state, at, by)


def _retired(state: QueueState, event: ev.JobsRetired, at: EventPosition) -> None:
    for job in event.jobs:
        del state.finished[job]


HANDLERS: EventHandlers[QueueState] = {
    ev.JobSubmitted: _submitted,
    ev.JobQueued: _queued,
    ev.JobMoved: _moved,
    ev.JobUpdated: _updated,
    ev.PriorityAged: _aged,
    ev.JobDeferred: _deferred,
    ev.DeadlineMissed: _deadline_missed,
    ev.ReservationRequested: _reservation_requested,
    ev.PreemptionRequested: _preemption_requested,
    ev.JobOffered: _offered,
    ev.OfferWithdrawn: _recalled,
    ev.JobHeld: _held,
    ev.JobReleased: _released,
    ev.JobStopRequested: _stop_requested,
    ev.JobRequeued: _requeued,
    ev.JobSucceeded: _ended("succeeded"),
    ev.JobFailed: _ended("failed"),
    ev.JobCancelled: _ended("cancelled"),
    ev.JobsRetired: _retired,
}
