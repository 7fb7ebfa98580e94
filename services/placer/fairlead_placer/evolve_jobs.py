"""Effects of the queue's events about jobs and their offers."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import Job, Offer, Withdrawal, run_key
from fairlead_placer.evolve_runs import stop
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev


def _job_submitted(state: State, seq: int, index: int, at_ns: int, event: ev.JobSubmitted) -> None:
    # The spec is copied: as decoded it is a view that would keep the whole commit's bytes alive.
    spec = event.spec.copy()
    request = state.intern(event.request)
    slice_ns = event.slice_ns if event.kind == "batch" else 0
    job = Job(
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


def _job_moved(state: State, seq: int, index: int, at_ns: int, event: ev.JobMoved) -> None:
    job = state.jobs.get(event.job)
    if job is not None:
        state.set(job, "queue", event.queue)


def _job_offered(state: State, seq: int, index: int, at_ns: int, event: ev.JobOffered) -> None:
    """Offered again, an open attempt gets another rank; one that was placed meanwhile is not open any more."""
    request = state.request_of(event.job)
    placed = run_key(event.job, event.attempt) in state.runs or state.unanswered.get(event.job, 0) >= event.attempt
    if request is None or placed:
        return
    offer = state.offers.get(event.job)
    if offer is not None and offer.attempt == event.attempt:
        state.rerank(event.job, event.rank)
        return
    if offer is not None:
        state.close_offer(event.job)
    if state.withdrawals:
        state.drop(state.withdrawals, event.job)
    if event.attempt == 1:
        state.arrive(request)
    state.open_offer(Offer(event.job, event.attempt, event.rank, f"{seq}.{index}", request, at_ns))


def _job_recalled(state: State, seq: int, index: int, at_ns: int, event: ev.OfferWithdrawn) -> None:
    _want_back(state, event.job, event.attempt, f"{seq}.{index}", "")


def _job_stop_requested(state: State, seq: int, index: int, at_ns: int, event: ev.JobStopRequested) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None:
        stop(state, run, event.reason, at_ns, notice=event.save or event.reason != "cancelled", ran_ns=event.ran_ns)
    else:
        _want_back(state, event.job, event.attempt, f"{seq}.{index}", event.reason)


def _want_back(state: State, job: str, attempt: int, cause: str, reason: str) -> None:
    """Take the offer out of the running. A commit that places it may be under way: the withdrawal outlives it."""
    offer = state.offers.get(job)
    withdrawal = state.withdrawals.get(job)
    if offer is not None and offer.attempt == attempt:
        state.close_offer(job)
        state.drop(state.claims, job)
        state.drop(state.pleas, job)
    elif withdrawal is None or withdrawal.attempt != attempt:
        return
    state.put(
        state.withdrawals, job, Withdrawal(job, attempt, cause, reason or (withdrawal.stop if withdrawal else ""))
    )


def _job_finished(
    state: State, seq: int, index: int, at_ns: int, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled
) -> None:
    state.drop(state.jobs, event.job)
    state.drop(state.unanswered, event.job)
    state.drop(state.failed_on, event.job)
    state.drop(state.requeued, event.job)
    if state.pleas:
        state.drop(state.pleas, event.job)


def _job_requeued(state: State, seq: int, index: int, at_ns: int, event: ev.JobRequeued) -> None:
    state.drop(state.unanswered, event.job)
    state.put(state.requeued, event.job, event.reason)


def _jobs_retired(state: State, seq: int, index: int, at_ns: int, event: ev.JobsRetired) -> None:
    for job in event.jobs:
        state.drop(state.jobs, job)
        state.drop(state.unanswered, job)
        state.drop(state.failed_on, job)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.JobSubmitted: _job_submitted,
    ev.JobMoved: _job_moved,
    ev.JobOffered: _job_offered,
    ev.OfferWithdrawn: _job_recalled,
    ev.JobStopRequested: _job_stop_requested,
    ev.JobRequeued: _job_requeued,
    ev.JobSucceeded: _job_finished,
    ev.JobFailed: _job_finished,
    ev.JobCancelled: _job_finished,
    ev.JobsRetired: _jobs_retired,
}
