"""What each event means for the queue's state. The only code that changes it; no rules, no refusals.

A placer's event about a job or attempt that the queue has already closed says nothing here, except
that capacity came back. The legal moves are the table in `fairlead_schemas.lifecycle`; the tests
hold every handler against it.
"""

from collections.abc import Callable
from typing import Any

from fairlead_queue.jobs import Array, End, Job
from fairlead_queue.lanes import Queue
from fairlead_queue.ranks import offset_of, rank_of
from fairlead_queue.state import Shape, State
from fairlead_schemas import events as ev
from fairlead_schemas.commit import Commit
from fairlead_schemas.ids import array_of
from fairlead_schemas.resources import Inventory

type Handler = Callable[[State, Any, str, int], None]


def evolve(state: State, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    at_ns = commit.at_ns
    for index, event in enumerate(commit.events):
        handler = HANDLERS.get(type(event))
        if handler is None:
            continue
        handler(state, event, f"{seq}.{index}", at_ns)
    if state.just_offered:
        for path, ranks in state.just_offered.items():
            _count_passes(state, state.queues[path], ranks)
        state.just_offered.clear()


# -- queues


def _queue_configured(state: State, event: ev.QueueConfigured, id_: str, at_ns: int) -> None:
    queue = state.queues.get(event.path)
    if queue is None:
        state.queues[event.path] = Queue(event.path, event.gpu_quota_milli)
        return
    queue.quota = event.gpu_quota_milli
    for job in [job for job in state.returned.values() if job.lane.queue is queue]:
        state.unwait(job)
        state.wait_in_line(job)


def _count_passes(state: State, queue: Queue, ranks: list[int]) -> None:
    """After a commit's offers: how long the queue's first waiting job has been passed over."""
    if queue.quota is None:
        return
    rank = state.first_waiting(queue)
    if rank == queue.first_rank:
        queue.passed += sum(1 for other in ranks if other > rank) if rank else 0
    else:
        queue.first_rank, queue.passed = rank, 0


# -- jobs, as the queue decides


def _submitted(state: State, event: ev.JobSubmitted, id_: str, at_ns: int) -> None:
    number = int(event.job)
    state.next_number = number + 1
    lane = state.lane(event.queue, event.request)
    rank = rank_of(event.priority, number)
    if event.array is None:
        job = Job(event.job, rank, lane, id_)
    else:
        job = Array(event.job, rank, lane, id_, event.array)
    job.retries, job.total_ns, job.start_at_ns = event.retries, event.total_ns, event.start_at_ns
    state.add(job)
    if event.key:
        state.remember_key(event.key, event.job, event.digest)
    if event.start_at_ns > at_ns:
        job.state = "scheduled"
        state.wait_until(job, event.start_at_ns)
    else:
        state.wait_in_line(job)


def _job_queued(state: State, event: ev.JobQueued, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    state.unwait(job)
    job.state, job.cause = "queued", id_
    state.wait_in_line(job)


def _offered(state: State, event: ev.JobOffered, id_: str, at_ns: int) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        job = _born(state, event.job)
    else:
        state.unwait(job)
    job.state = "offered"
    state.open_offer(job)
    queue = job.lane.queue
    if queue.quota is not None:
        state.just_offered.setdefault(queue.path, []).append(job.rank)


def _born(state: State, id_: str) -> Job:
    """The array's next element; the array stands for the one after it, or leaves the line."""
    array = state.jobs[array_of(id_) or ""]
    assert isinstance(array, Array)
    job = Job(id_, array.rank, array.lane, array.cause)
    job.retries, job.total_ns, job.parent = array.retries, array.total_ns, array
    if offset_of(array.rank) == array.last - array.first:
        state.unwait(array)
    else:
        array.rank += 1
        state.refront(array.lane)
    array.live[id_] = job
    state.add(job)
    return job


def _recalled(state: State, event: ev.JobRecalled, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    if event.reason == "hold":
        job.hold, job.hold_by = True, event.by
    if job.open:
        job.recall = event.reason
    elif event.reason == "hold" and job.state == "queued":
        # The offer came back while the hold was decided.
        state.unwait(job)
        job.end = End(id_, None)
        state.owe(job)
    elif event.reason == "hold":
        job.hold, job.hold_by = False, ""  # too late: it was placed


def _held(state: State, event: ev.JobHeld, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    state.unwait(job)
    job.state, job.hold, job.hold_by, job.end = "held", False, "", None


def _released(state: State, event: ev.JobReleased, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    job.state, job.cause = "queued", id_
    if job.start_at_ns > at_ns:
        state.wait_until(job, job.start_at_ns)
    else:
        state.wait_in_line(job)


def _stop_requested(state: State, event: ev.JobStopRequested, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    job.stop, job.stop_by = event.reason, event.by
    was, job.state = job.state, "stopping"
    if isinstance(job, Array):
        state.unwait(job)
        job.cause = id_
        job.unstopped = sum(1 for element in job.live.values() if element.state != "stopping")
        if job.unstopped:
            state.stopping[job.id] = job
        _array_step(state, job, id_)
        return
    if job.parent is not None and job.parent.state == "stopping":
        _stopped_one(state, job.parent)
    if was == "queued":
        # The offer came back while the stop was decided: nothing is left to stop.
        state.unwait(job)
        job.end = End(id_, None)
        state.owe(job)
    elif job.end is None:
        state.drop_timer(job)


def _stopped_one(state: State, array: Array) -> None:
    """One element less of a stopping array is to be asked to stop."""
    array.unstopped -= 1
    if not array.unstopped:
        del state.stopping[array.id]


def _requeued(state: State, event: ev.JobRequeued, id_: str, at_ns: int) -> None:
    job = state.jobs[event.job]
    state.unwait(job)
    job.state, job.attempt, job.cause, job.end = "queued", event.attempt, id_, None
    if event.reason == "retry":
        job.failures += 1
    elif event.reason == "start_failed":
        job.starts += 1
    elif event.reason != "drained":
        job.losses += 1
    if event.not_before_ns > at_ns:
        state.wait_until(job, event.not_before_ns)
    else:
        state.wait_in_line(job)


def _succeeded(state: State, event: ev.JobSucceeded, id_: str, at_ns: int) -> None:
    _finish(state, event.job, "succeeded", id_)


def _failed(state: State, event: ev.JobFailed, id_: str, at_ns: int) -> None:
    _finish(state, event.job, "failed", id_)


def _cancelled(state: State, event: ev.JobCancelled, id_: str, at_ns: int) -> None:
    _finish(state, event.job, "cancelled", id_, event.by)


def _finish(state: State, id_: str, end_state: str, event_id: str, by: str = "") -> None:
    job = state.jobs[id_]
    state.unwait(job)
    state.remove(job)
    state.finished[job.id] = end_state
    array = job.parent
    if array is not None:
        del array.live[job.id]
        array.ended += 1
        array.failed += end_state == "failed"
        array.cancelled += end_state == "cancelled"
        if array.state == "stopping":
            if job.state != "stopping":
                _stopped_one(state, array)
        elif end_state == "cancelled":
            array.stop_by = by
        _array_step(state, array, event_id)


def _array_step(state: State, array: Array, id_: str) -> None:
    """When nothing of an array lives and nothing more will be born, its end is owed."""
    if not array.live and (array.unborn == 0 or array.state == "stopping"):
        array.end = End(id_, None)
        state.owe(array)


def _retired(state: State, event: ev.JobsRetired, id_: str, at_ns: int) -> None:
    for job in event.jobs:
        del state.finished[job]


# -- jobs, as the placer says


def _attempt(state: State, event: Any) -> Job | None:
    """The live job that a placer's event speaks of, if that attempt is its current one."""
    job = state.jobs.get(event.job)
    return job if job is not None and job.attempt == event.attempt else None


def _placed(state: State, event: ev.JobPlaced, id_: str, at_ns: int) -> None:
    job = _attempt(state, event)
    if job is None or not job.open:
        return
    state.unpark(job.lane.klass)
    state.close_offer(job)
    job.hold, job.hold_by = False, ""
    if job.state == "offered":
        job.state = "placed"


def _unplaceable(state: State, event: ev.JobUnplaceable, id_: str, at_ns: int) -> None:
    job = _attempt(state, event)
    if job is not None and job.open:
        state.park(job.lane.klass)


def _returned(state: State, event: ev.OfferReturned, id_: str, at_ns: int) -> None:
    job = _attempt(state, event)
    if job is None or not job.open:
        return
    recall = job.recall
    state.close_offer(job)
    if job.state == "stopping":
        state.settled(job, End(id_, None))
        return
    job.state, job.cause = "queued", id_
    if job.hold:
        state.settled(job, End(id_, None))
    elif recall == "quota":
        state.uncharge(job)
        state.wait_for_capacity(job)
    else:
        state.uncharge(job)
        state.wait_in_line(job)


def _run_started(state: State, event: ev.RunStarted, id_: str, at_ns: int) -> None:
    job = _attempt(state, event)
    if job is None or job.state != "placed":
        return
    job.state = "running"
    if job.total_ns:
        state.wait_until(job, at_ns + job.total_ns)


def _run_ended(state: State, event: ev.RunEnded, id_: str, at_ns: int) -> None:
    if event.released:
        state.capacity_changed()
    job = _attempt(state, event)
    if job is None or job.open or job.end is not None or job.state not in ("placed", "running", "stopping"):
        return
    end = End(id_, event.outcome, event.exit_code, event.signal, event.message, event.drained)
    state.settled(job, end)


def _rank_ended(state: State, event: ev.RankEnded, id_: str, at_ns: int) -> None:
    if event.released:
        state.capacity_changed()


def _capacity(state: State, event: Any, id_: str, at_ns: int) -> None:
    state.capacity_changed()


def _node(state: State, event: ev.NodeJoined | ev.NodeChanged, id_: str, at_ns: int) -> None:
    state.set_node(event.node, shape_of(event.inventory))
    state.capacity_changed()


def shape_of(inventory: Inventory) -> Shape:
    """What a node has, in integers."""
    return Shape(1000 * len(inventory.gpus), inventory.cpu_milli, inventory.memory_mib)


#: What is not listed changes nothing here.
HANDLERS: dict[type[ev.EventBase], Handler] = {
    ev.QueueConfigured: _queue_configured,
    ev.JobSubmitted: _submitted,
    ev.JobQueued: _job_queued,
    ev.JobOffered: _offered,
    ev.JobRecalled: _recalled,
    ev.JobHeld: _held,
    ev.JobReleased: _released,
    ev.JobStopRequested: _stop_requested,
    ev.JobRequeued: _requeued,
    ev.JobSucceeded: _succeeded,
    ev.JobFailed: _failed,
    ev.JobCancelled: _cancelled,
    ev.JobsRetired: _retired,
    ev.JobPlaced: _placed,
    ev.JobUnplaceable: _unplaceable,
    ev.OfferReturned: _returned,
    ev.RunStarted: _run_started,
    ev.RunEnded: _run_ended,
    ev.RankEnded: _rank_ended,
    ev.AllocationReleased: _capacity,
    ev.NodeReturned: _capacity,
    ev.NodeUncordoned: _capacity,
    ev.NodeJoined: _node,
    ev.NodeChanged: _node,
}
