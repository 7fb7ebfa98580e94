"""Effect of an event on the order of its pool: whether a review could find anything new after it.

An event unsettles the order unless its entry here shows that the review has foreseen it, or that it changes nothing that
turns depend on: the jobs in line and their places, open offers, charges, refused classes, claims, limits and capacity.
An event type without an entry always unsettles.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairlead_queue.limits import PARKED_OFFERS_MAX
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob, PoolState, pool_of
from fairlead_queue.waiting.settled_order import SettledOrder
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev


def is_settled(state: QueueState) -> bool:
    """Return True if the order of any pool is known, so that events can have an effect on it."""
    for pool in state.pools.values():  # noqa: SIM110 -- a generator costs more than the usual one or two pools
        if pool.settled is not None:
            return True
    return False


def note_effect(state: QueueState, event: Any) -> None:
    """Forget what is known of the order of the event's pool, if the event could change it; to be called before it is
    applied. An event that names no live job counts for all pools."""
    kind: type[Any] = event.__class__
    keeps = KEEPS.get(kind)
    if keeps is _always:
        return
    for pool in _pools_of(state, event):
        settled = pool.settled
        if settled is not None and not (keeps is not None and keeps(state, pool, settled, event)):
            pool.settled = None


def _pools_of(state: QueueState, event: Any) -> Collection[PoolState]:
    job_id = getattr(event, "job", None)
    job = state.jobs.get(job_id) if job_id is not None else None
    if job is not None:
        return (job.lane.request_class.pool,)
    if isinstance(event, ev.JobSubmitted):
        pool = state.pools.get(pool_of(event.request))
        return (pool,) if pool is not None else ()
    return state.pools.values()


def _always(state: QueueState, pool: PoolState, settled: SettledOrder, event: Any) -> bool:
    return True


def _submitted(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.JobSubmitted) -> bool:
    if event.job not in settled.fresh:
        return False
    settled.fresh.discard(event.job)
    return True


def _offered(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.JobOffered) -> bool:
    """An offer that the review has made; what its job claimed under a limit is free for others from then on."""
    job = state.jobs.get(event.job) or state.jobs.get(array_of(event.job) or "")
    return settled.ranks.pop(event.job, None) == event.rank and job is not None and job.lane.claim != job.id


def _placed(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.JobPlaced) -> bool:
    """The first in order has its place, or one that had no turn: the others stay in order, unless a gate was closed."""
    job = state.jobs.get(event.job)
    if job is None:
        return False
    request_class = job.lane.request_class
    if job.attempt != event.attempt or not job.open or request_class.parked or request_class.request.nodes_min:
        return False
    return _leaves_order(settled, job)


def _leaves_order(settled: SettledOrder, job: LiveJob) -> bool:
    """Let a job that stays charged have no turn any more; True if the others stay in order. What is charged for the first in order is
    charged before all other turns anyway."""
    if not settled.is_free:
        return False
    if settled.picks and settled.picks[0] == job.id:
        settled.picks.popleft()
        return True
    return job.id not in settled.picks


def _reserved(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.ReservationRequested) -> bool:
    job = state.jobs.get(event.job)
    return job is not None and event.cause == job.cause and _helped(state, settled, job)


def _asked(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.PreemptionRequested) -> bool:
    job = state.jobs.get(event.job)
    return job is not None and not event.amounts and _helped(state, settled, job)


def _helped(state: QueueState, settled: SettledOrder, job: LiveJob) -> bool:
    """An open offer that is helped to a place keeps its rank and has no turn in a review. Its leaf must still want the same
    resources for another offer: by these it is ordered, and so are the queues above it."""
    if not job.open or job.withdrawal or not _leaves_order(settled, job):
        return False
    leaf, mask = job.lane.leaf, job.lane.request_class.mask
    lanes = (other.lane for other in map(state.jobs.get, settled.picks) if other is not None)
    return any(lane.leaf is leaf and lane.request_class.mask == mask for lane in lanes)


def _yields(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.PreemptionStarted) -> bool:
    """A run yields to a job, which is helped as before."""
    job = state.jobs.get(event.job)
    return job is not None and job.attempt == event.attempt and job.end is None and not job.yields_to


def _unplaceable(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.JobUnplaceable) -> bool:
    """A refused class may have few offers; if it has not more, none of them is withdrawn."""
    job = state.jobs.get(event.job)
    return settled.is_free and job is not None and job.lane.request_class.open <= PARKED_OFFERS_MAX


def _rank_ended(state: QueueState, pool: PoolState, settled: SettledOrder, event: ev.RankEnded) -> bool:
    """Capacity without a charge: it matters to refused classes and to jobs that wait for it."""
    return not event.released or not (pool.parked_classes or state.returned)


def _ended(state: QueueState, pool: PoolState, settled: SettledOrder, event: Any) -> bool:
    """A run's job leaves: its charge is released before, and nothing was kept for it."""
    job = state.jobs.get(event.job)
    return job is not None and job.wait == "owed" and job.parent is None and not job.open and _claims_nothing(pool, job)


def _claims_nothing(pool: PoolState, job: LiveJob) -> bool:
    return job.lane.claim != job.id and pool.claimant != job.id


type _Keeps = Callable[[QueueState, PoolState, SettledOrder, Any], bool]

#: {event type: True if the order stays settled}
KEEPS: Mapping[type[ev.EventBase], _Keeps] = {
    ev.JobSubmitted: _submitted,
    ev.JobOffered: _offered,
    ev.ReservationRequested: _reserved,
    ev.PreemptionRequested: _asked,
    ev.PreemptionStarted: _yields,
    ev.JobPlaced: _placed,
    ev.JobUnplaceable: _unplaceable,
    ev.RankEnded: _rank_ended,
    ev.JobSucceeded: _ended,
    ev.JobFailed: _ended,
    ev.JobCancelled: _ended,
    ev.JobDeferred: _always,
    ev.JobsRetired: _always,
    ev.RunStarted: _always,
    ev.CheckpointSaved: _always,
}
