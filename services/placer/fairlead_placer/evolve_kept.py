"""Nodes that are kept for a job, and runs that yield to one: what was asked, and what came of it."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import Claim, Plea, Reservation, pool_of, run_key
from fairlead_placer.evolve_runs import stop
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev

#: Jobs of a pool that nodes are kept for because they have waited long: each takes nodes from all others.
RESERVATIONS_MAX = 1
#: Runs that one preemption request may name; the rest is ignored.
VICTIMS_MAX = 256


def _reservation_requested(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationRequested) -> None:
    """Remembered until it is answered, where it needs an answer. A claim under a queue's limit (`queue`) is the
    queue's business until the job is offered; beyond RESERVATIONS_MAX it asks again."""
    offer = state.offers.get(event.job)
    if event.queue or offer is None or offer.attempt != event.attempt:
        return
    if event.job in state.reservations or starving(state, pool_of(offer.request)) >= RESERVATIONS_MAX:
        return
    state.put(state.claims, event.job, Claim(event.job, event.attempt, f"{seq}.{index}"))
    state.pools.stir_offers()


def starving(state: State, pool: str) -> int:
    """Jobs of the pool that nodes are, or shall be, kept for because they have waited long."""
    jobs = [*state.claims, *(job for job, kept in state.reservations.items() if not kept.hole)]
    return sum(pool_of(request) == pool for request in map(state.request_of, jobs) if request is not None)


def _reservation_made(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationMade) -> None:
    claim, kept = state.drop(state.claims, event.job), state.reservations.get(event.job)
    _answered(state, event.job, event.cause)
    hole = claim is None or claim.cause != event.cause
    if kept is not None and kept.cause == event.cause:  # other nodes for the same request
        hole = kept.hole
    same = (
        kept if kept is not None and not hole else None
    )  # a hole has no guests: who is there by now is like any other
    sinces = tuple([same.since_of(name) if same is not None and name in same.nodes else seq for name in event.nodes])
    state.reserve(
        Reservation(event.job, event.attempt, event.cause, event.nodes, seq, hole, event.start_ns, event.basis, sinces)
    )


def _reservation_ended(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationEnded) -> None:
    state.drop(state.claims, event.job)
    state.unreserve(event.job)


def _preemption_requested(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionRequested) -> None:
    """Remembered until it is answered. A job that lacks a place only, and has no open offer, lacks none any more."""
    offer = state.offers.get(event.job)
    if not event.amounts and (offer is None or offer.attempt != event.attempt):
        return
    victims = event.victims[:VICTIMS_MAX]
    state.put(state.pleas, event.job, Plea(event.job, event.attempt, (seq, index), victims, event.amounts))
    state.pools.stir_offers()


def _answered(state: State, job: str, cause: str) -> None:
    """Drop the job's preemption request as decided, unless the queue has replaced it meanwhile."""
    plea = state.pleas.get(job)
    if plea is not None and plea.cause == cause:
        state.drop(state.pleas, job)


def _preemption_started(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionStarted) -> None:
    _answered(state, event.beneficiary, event.cause)
    stop(state, state.runs[run_key(event.job, event.attempt)], "preempted", at_ns)


def _preemption_declined(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionDeclined) -> None:
    _answered(state, event.job, event.cause)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.ReservationRequested: _reservation_requested,
    ev.ReservationMade: _reservation_made,
    ev.ReservationEnded: _reservation_ended,
    ev.PreemptionRequested: _preemption_requested,
    ev.PreemptionStarted: _preemption_started,
    ev.PreemptionDeclined: _preemption_declined,
}
