"""Arrays: their elements are born when they are offered, and the array's end is owed when nothing more will be. Called by
`evolve` only."""

from fairlead_queue.apply import claims
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Array, End, Job
from fairlead_queue.waiting.order import OFFSET_MASK
from fairlead_schemas.units.ids import array_of


def born(state: State, id_: str) -> Job:
    """Create the array's next element; the array then represents the one after it, or leaves the line."""
    array = state.jobs[array_of(id_) or ""]
    assert isinstance(array, Array)
    claims.give_up(array)
    job = Job(id_, array.order, array.lane, array.cause)
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


def element_ended(state: State, job: Job, array: Array, end_state: str, id_: str, by: str) -> None:
    """An element has left; where the array waited for that, its next one may be born."""
    del array.live[job.id]
    array.ended += 1
    array.failed += end_state == "failed"
    array.cancelled += end_state == "cancelled"
    if array.state == "stopping":
        if job.awaits_cancel:
            stopped_one(state, array)
    elif end_state == "cancelled":
        array.stop_by = by
    if array.wait == "array" and not array.full:
        state.unwait(array)
        array.since_ns = state.at_ns  # until now it was its own limit that it waited for
        state.wait_in_line(array)
    _step(state, array, id_)


def stop(state: State, array: Array, id_: str) -> None:
    """No more are born; those that live are to be stopped one by one."""
    state.unwait(array)
    claims.give_up(array)
    array.cause = id_
    array.unstopped = sum(1 for element in array.live.values() if element.awaits_cancel)
    if array.unstopped:
        state.stopping[array.id] = array
    _step(state, array, id_)


def stopped_one(state: State, array: Array) -> None:
    """Count down by one the elements of a stopping array that still need a stop request."""
    array.unstopped -= 1
    if not array.unstopped:
        del state.stopping[array.id]


def _step(state: State, array: Array, id_: str) -> None:
    """Record that the array's end is due, once no element lives and none will be created."""
    if array.is_over:
        array.end = End(id_, None)
        state.owe(array)
