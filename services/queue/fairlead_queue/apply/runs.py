"""Effects of the placer's events about offers and runs on the state.

An event about a job or attempt that the queue has already closed has no effect, except that capacity came back.
"""

from collections.abc import Iterable
from typing import Any

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_queue.apply import queues, waiting_jobs
from fairlead_queue.limits import BACK_NS
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import AttemptEnd
from fairlead_queue.waiting.pending import LiveJob, PoolState
from fairlead_schemas.wire import events as ev

#: Of a model that the pool names no price for, in thousandths.
PRICE = 1000


def _attempt(state: QueueState, event: Any) -> LiveJob | None:
    """The live job that a placer's event speaks of, if that attempt is its current one."""
    job = state.jobs.get(event.job)
    return job if job is not None and job.attempt == event.attempt else None


def _placed(state: QueueState, event: ev.JobPlaced, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is None or not job.open:
        return
    lane = job.lane
    state.unpark(lane.request_class)
    state.close_offer(job)
    waiting_jobs.give_up_claim(job)
    lane.running[job.id] = job
    request = lane.request_class.request
    if request.nodes_min and event.units < request.units:
        state.shrink(job, request.units - event.units)
    if job.deadline_ns:
        state.due.set_alarm(job)
    job.price = _price(state, job, event.parts)
    job.nodes = tuple([part.node for part in event.parts for _ in range(part.tasks)])
    if state.accounts:
        queues.count_use(state, job, job.price, at.time_ns)
    job.hold, job.hold_by = False, ""
    if job.state == "offered":
        job.state = "placed"


def _price(state: QueueState, job: LiveJob, parts: Iterable[ev.Part]) -> int:
    """milli-GPU times the price of their models: of each part what its units are charged."""
    prices, price = job.lane.request_class.pool.settings.prices, 0
    kinds = job.lane.request_class.request.without(job.missing).kinds
    at, left = 0, kinds[0].nodes
    for part in parts:
        while not left and at + 1 < len(kinds):  # the parts of a kind come after those of the kinds before it
            at += 1
            left = kinds[at].nodes
        each = prices.get(state.nodes.model_of(part.node), PRICE) if prices else PRICE
        price += part.tasks * kinds[at].gpu_milli * each
        left -= part.tasks
    return price


def _unplaceable(state: QueueState, event: ev.JobUnplaceable, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is not None and job.open:
        state.park(job.lane.request_class)


def _returned(state: QueueState, event: ev.OfferReturned, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is None or not job.open:
        return
    withdrawal = job.withdrawal
    state.close_offer(job)
    waiting_jobs.give_up_claim(job)
    state.settle_past(job.lane)
    if job.state == "stopping":
        state.settled(job, AttemptEnd(at.id, None))
        return
    job.state, job.cause = "queued", at.id
    if job.hold:
        state.settled(job, AttemptEnd(at.id, None))
        return
    state.uncharge(job)
    if withdrawal == "quota":
        state.wait_for_capacity(job)
        if not job.lane.request_class.parked:
            state.wait_until(job, state.at_ns + BACK_NS)
    else:
        state.wait_in_line(job)


def _run_started(state: QueueState, event: ev.RunStarted, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is None or job.state not in ("placed", "stopping"):
        return
    job.started_ns = state.at_ns
    if job.state == "stopping":
        return
    job.state = "running"
    if job.total_ns:
        # Its notice is over when its time is.
        state.wait_until(job, state.at_ns + max(0, job.total_ns - job.used_ns - job.notice_ns))


def _saved(state: QueueState, event: ev.CheckpointSaved, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is not None and job.started_ns:
        job.saved_ns = state.at_ns


def _run_ended(state: QueueState, event: ev.RunEnded, at: EventPosition) -> None:
    job = _attempt(state, event)
    _freed(state, event.released)
    if job is None or job.open or job.end is not None or job.state not in ("placed", "running", "stopping"):
        return
    if job.started_ns:
        job.used_ns += event.ran_ns or state.at_ns - job.started_ns
        job.started_ns = job.saved_ns = 0
    _give_back(state, job, at.time_ns)
    end = AttemptEnd(
        at.id,
        event.outcome,
        event.exit_code,
        event.signal,
        event.message,
        event.drained,
        event.preempted,
        event.alike,
        event.fault,
        bool(event.gpu_fault),
    )
    state.settled(job, end)


def _give_back(state: QueueState, job: LiveJob, at_ns: int) -> None:
    """Return the capacity counted for a run, and release the job that it was to yield to."""
    state.settle_past(job.lane)
    if state.accounts:
        queues.count_use(state, job, -job.price, at_ns)
    job.price, job.nodes = 0, ()
    if not job.yields_to:
        job.lane.request_class.pool.freed_ns = state.at_ns
    if job.yields_to:
        beneficiary = state.jobs.get(job.yields_to)
        job.yields_to = ""
        if beneficiary is not None and beneficiary.yielders:
            beneficiary.yielders -= 1


def _freed(state: QueueState, nodes: Iterable[str]) -> None:
    freed: PoolState | None = None
    for node in nodes:
        pool = state.pool_of_node(node)
        if pool is not freed and pool is not None:
            state.capacity_changed(pool)
            freed = pool


def _rank_ended(state: QueueState, event: ev.RankEnded, at: EventPosition) -> None:
    job = state.jobs.get(event.job)
    if event.released:
        for pool in [job.lane.request_class.pool] if job is not None else state.pools.values():
            state.capacity_changed(pool)


def _preemption_started(state: QueueState, event: ev.PreemptionStarted, at: EventPosition) -> None:
    job = _attempt(state, event)
    beneficiary = state.jobs.get(event.beneficiary)
    if beneficiary is not None:
        beneficiary.asked = ""
    if job is None or job.end is not None or job.yields_to:
        return
    job.yields_to, job.yields_by = event.beneficiary, event.rule
    if beneficiary is not None:
        beneficiary.yielders += 1


def _preemption_declined(state: QueueState, event: ev.PreemptionDeclined, at: EventPosition) -> None:
    job = _attempt(state, event)
    if job is not None and job.asked:
        _no_help(state, job, "declined")
        waiting_jobs.drop_claims(job)


def _no_help(state: QueueState, job: LiveJob, why: str) -> None:
    """Record that preemption gave no help; the job may ask again later."""
    job.asked, job.asked_ns = why, state.at_ns
    job.asks += 1


def _reservation_ended(state: QueueState, event: ev.ReservationEnded, at: EventPosition) -> None:
    """The nodes that were kept take any work again. A job that still waits found none that could be kept."""
    job = _attempt(state, event)
    for pool in [job.lane.request_class.pool] if job is not None else state.pools.values():
        state.capacity_changed(pool)
    if job is not None and job.lane.request_class.pool.claimant == job.id:
        job.lane.request_class.pool.claimant = ""
        _no_help(state, job, "unkept")


HANDLERS: EventHandlers[QueueState] = {
    ev.JobPlaced: _placed,
    ev.JobUnplaceable: _unplaceable,
    ev.OfferReturned: _returned,
    ev.RunStarted: _run_started,
    ev.CheckpointSaved: _saved,
    ev.RunEnded: _run_ended,
    ev.RankEnded: _rank_ended,
    ev.PreemptionStarted: _preemption_started,
    ev.PreemptionDeclined: _preemption_declined,
    ev.ReservationEnded: _reservation_ended,
}
