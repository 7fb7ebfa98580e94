"""Effects of the queue's events about jobs and their offers.

Nodes that are kept for a job, and runs that yield to one: what was asked, and what came of it.
"""

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_placer.apply.runs import add_signal, stop
from fairlead_placer.cluster.entities import (
    JobRecord,
    Offer,
    PreemptionRequest,
    Reservation,
    ReservationRequest,
    Withdrawal,
    pool_of,
    run_key,
)
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev


def _job_submitted(state: ClusterState, event: ev.JobSubmitted, at: EventPosition) -> None:
    # The spec is copied: as decoded it is a view that would keep the whole commit's bytes alive.
    spec = event.spec.copy()
    request = state.intern(event.request)
    slice_ns = event.slice_ns if event.kind == "batch" else 0
    job = JobRecord(
        event.name,
        event.queue,
        event.user,
        event.grace_ns,
        request,
        spec,
        event.total_ns,
        slice_ns,
        event.on_partition,
        event.checkpoint,
        event.gang,
    )
    state.put(state.jobs, event.job, job)


def _job_moved(state: ClusterState, event: ev.JobMoved, at: EventPosition) -> None:
    job = state.jobs.get(event.job)
    if job is not None:
        state.set(job, "queue", event.queue)


def _job_updated(state: ClusterState, event: ev.JobUpdated, at: EventPosition) -> None:
    """Take over the time limit. Orders keep the name and the job file with which the job was submitted."""
    job = state.jobs.get(event.job)
    if job is not None and event.total_ns is not None:
        state.set(job, "total_ns", event.total_ns)


def _job_offered(state: ClusterState, event: ev.JobOffered, at: EventPosition) -> None:
    """Offered again, an open attempt gets another rank; one that was placed meanwhile is not open any more."""
    job, attempt, rank = event.job, event.attempt, event.rank
    kept = state.jobs.get(job if "_" not in job else array_of(job) or job)
    if kept is None or f"{job}.{attempt}" in state.runs or state.unanswered.get(job, 0) >= attempt:
        return
    offer, request = state.offers.get(job), kept.request
    if offer is not None and offer.attempt == attempt:
        state.rerank(job, rank)
        return
    if offer is not None:
        state.close_offer(job)
    if state.withdrawals:
        state.drop(state.withdrawals, job)
    if attempt == 1:
        state.arrive(request)
    state.open_offer(Offer(job, attempt, rank, at.id, request, at.time_ns))


def _job_recalled(state: ClusterState, event: ev.OfferWithdrawn, at: EventPosition) -> None:
    _want_back(state, event.job, event.attempt, at.id, "")


def _job_stop_requested(state: ClusterState, event: ev.JobStopRequested, at: EventPosition) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None:
        stop(
            state, run, event.reason, at.time_ns, notice=event.save or event.reason != "cancelled", ran_ns=event.ran_ns
        )
    else:
        _want_back(state, event.job, event.attempt, at.id, event.reason)


def _job_signal_requested(state: ClusterState, event: ev.JobSignalRequested, at: EventPosition) -> None:
    """A run that is gone, or has an end ordered, gets none any more."""
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and not run.is_stopping:
        add_signal(state, run, event.signal)


def _want_back(state: ClusterState, job: str, attempt: int, cause: str, reason: str) -> None:
    """Take the offer out of the running. A commit that places it may be under way: the withdrawal outlives it."""
    offer = state.offers.get(job)
    withdrawal = state.withdrawals.get(job)
    if offer is not None and offer.attempt == attempt:
        state.close_offer(job)
        state.drop(state.claims, job)
        state.drop(state.preemption_requests, job)
    elif withdrawal is None or withdrawal.attempt != attempt:
        return
    state.put(
        state.withdrawals, job, Withdrawal(job, attempt, cause, reason or (withdrawal.stop if withdrawal else ""))
    )


def _job_finished(
    state: ClusterState, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at: EventPosition
) -> None:
    job = event.job
    for table in (state.jobs, state.unanswered, state.failed_on, state.requeued, state.preemption_requests):
        table.pop(job, None)  # an event of the queue is only folded, never tried


def _job_requeued(state: ClusterState, event: ev.JobRequeued, at: EventPosition) -> None:
    state.drop(state.unanswered, event.job)
    state.put(state.requeued, event.job, event.reason)


def _jobs_retired(state: ClusterState, event: ev.JobsRetired, at: EventPosition) -> None:
    for job in event.jobs:
        state.drop(state.jobs, job)
        state.drop(state.unanswered, job)
        state.drop(state.failed_on, job)


#: Jobs of a pool that nodes are kept for because they have waited long: each takes nodes from all others.
RESERVATIONS_MAX = 1
#: Runs that one preemption request may name; the rest is ignored.
VICTIMS_MAX = 256


def _reservation_requested(state: ClusterState, event: ev.ReservationRequested, at: EventPosition) -> None:
    """Remembered until it is answered, where it needs an answer. A claim under a queue's limit (`queue`) is the
    queue's business until the job is offered; beyond RESERVATIONS_MAX it asks again."""
    offer = state.offers.get(event.job)
    if event.queue or offer is None or offer.attempt != event.attempt:
        return
    if event.job in state.reservations or starving(state, pool_of(offer.request)) >= RESERVATIONS_MAX:
        return
    state.put(state.claims, event.job, ReservationRequest(event.job, event.attempt, at.id))
    state.pools.stir_offers()


def starving(state: ClusterState, pool: str) -> int:
    """Jobs of the pool that nodes are, or shall be, kept for because they have waited long."""
    jobs = [*state.claims, *(job for job, kept in state.reservations.items() if not kept.hole)]
    return sum(pool_of(request) == pool for request in map(state.request_of, jobs) if request is not None)


def _reservation_made(state: ClusterState, event: ev.ReservationMade, at: EventPosition) -> None:
    claim, kept = state.drop(state.claims, event.job), state.reservations.get(event.job)
    _answered(state, event.job, event.cause)
    hole = claim is None or claim.cause != event.cause
    if kept is not None and kept.cause == event.cause:  # other nodes for the same request
        hole = kept.hole
    same = (
        kept if kept is not None and not hole else None
    )  # a hole has no guests: who is there by now is like any other
    sinces = tuple(
        [same.since_of(name) if same is not None and name in same.nodes else at.sequence for name in event.nodes]
    )
    state.reserve(
        Reservation(
            event.job, event.attempt, event.cause, event.nodes, at.sequence, hole, event.start_ns, event.basis, sinces
        )
    )


def _reservation_ended(state: ClusterState, event: ev.ReservationEnded, at: EventPosition) -> None:
    state.drop(state.claims, event.job)
    state.unreserve(event.job)


def _preemption_requested(state: ClusterState, event: ev.PreemptionRequested, at: EventPosition) -> None:
    """Remembered until it is answered. A job that lacks a place only, and has no open offer, lacks none any more."""
    offer = state.offers.get(event.job)
    if not event.amounts and (offer is None or offer.attempt != event.attempt):
        return
    victims = event.victims[:VICTIMS_MAX]
    state.put(
        state.preemption_requests,
        event.job,
        PreemptionRequest(event.job, event.attempt, (at.sequence, at.index), victims, event.amounts),
    )
    state.pools.stir_offers()


def _answered(state: ClusterState, job: str, cause: str) -> None:
    """Drop the job's preemption request as decided, unless the queue has replaced it meanwhile."""
    preemption = state.preemption_requests.get(job)
    if preemption is not None and preemption.cause == cause:
        state.drop(state.preemption_requests, job)


def _preemption_started(state: ClusterState, event: ev.PreemptionStarted, at: EventPosition) -> None:
    _answered(state, event.beneficiary, event.cause)
    stop(state, state.runs[run_key(event.job, event.attempt)], "preempted", at.time_ns)


def _preemption_declined(state: ClusterState, event: ev.PreemptionDeclined, at: EventPosition) -> None:
    _answered(state, event.job, event.cause)


HANDLERS: EventHandlers[ClusterState] = {
    ev.JobSubmitted: _job_submitted,
    ev.JobMoved: _job_moved,
    ev.JobUpdated: _job_updated,
    ev.JobOffered: _job_offered,
    ev.OfferWithdrawn: _job_recalled,
    ev.JobStopRequested: _job_stop_requested,
    ev.JobSignalRequested: _job_signal_requested,
    ev.JobRequeued: _job_requeued,
    ev.JobSucceeded: _job_finished,
    ev.JobFailed: _job_finished,
    ev.JobCancelled: _job_finished,
    ev.JobsRetired: _jobs_retired,
    ev.ReservationRequested: _reservation_requested,
    ev.ReservationMade: _reservation_made,
    ev.ReservationEnded: _reservation_ended,
    ev.PreemptionRequested: _preemption_requested,
    ev.PreemptionStarted: _preemption_started,
    ev.PreemptionDeclined: _preemption_declined,
}
