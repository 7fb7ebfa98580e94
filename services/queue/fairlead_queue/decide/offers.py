"""Offers made now: turn by turn, pool by pool, within the gates and the commit's room."""

from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.gates import has_room
from fairlead_queue.decide.offer_review import is_settled, recall_for_quota, reorder, stuck_offers
from fairlead_queue.decide.pending_reasons import emit_array_reasons, emit_changed_reasons, emit_pending_reasons
from fairlead_queue.decide.starvation import StarvationPolicy
from fairlead_queue.decide.turns import Turns
from fairlead_queue.fairness.waiting_line import RANK_STEP
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, PoolState
from fairlead_schemas.wire.events import JobOffered
from fairlead_schemas.wire.resources import Request


def make_offers(draft: QueueDraft, *, reviewing: bool) -> int | None:
    """Offer what may be offered now, in order, and say of lanes that begin to wait why they do. `reviewing`: hold what
    the placer has against the order, and help those who starve; then the time at which to look again (None: never)."""
    if draft.reshaped:
        draft.full = True
        return None
    if draft.state.unreported_arrays:
        emit_array_reasons(draft)
    with draft.state.speculating():
        _try_fresh(draft)
        times = [
            _offer(draft, pool, reviewing)
            for _, pool in sorted(draft.state.pools.items())
            if pool.waiting or pool.offers
        ]
    return min((at_ns for at_ns in times if at_ns is not None), default=None)


def _try_fresh(draft: QueueDraft) -> None:
    """Put the jobs that this very decision accepts in line. Of a class that the placer has enough of, none could be
    offered."""
    state, imaged, full = draft.state, set[Lane | Leaf](), dict[Request, bool]()
    for fresh in draft.fresh:
        is_full = full.get(fresh.request)
        if is_full is None:
            is_full = full[fresh.request] = _is_full(state, fresh.request)
        if is_full:
            continue
        job = LiveJob(fresh.id, fresh.order, state.lane(fresh.queue, fresh.user, fresh.request), fresh.cause)
        job.user, job.since_ns = fresh.user, draft.now_ns
        state.try_in_line(job, imaged)
        draft.tried.add(fresh.id)


def _is_full(state: QueueState, request: Request) -> bool:
    request_class = state.classes.get(request)
    return request_class is not None and not has_room(
        request_class, request_class.open, len(request_class.pool.offers) - request_class.pool.parked_open
    )


def _offer(draft: QueueDraft, pool: PoolState, reviewing: bool) -> int | None:
    settled = pool.settled if is_settled(draft, pool) else None
    is_free = settled is not None and settled.is_free
    if is_free and not (reviewing or draft.state.unreported):
        return None
    stuck = stuck_offers(draft, pool) if reviewing and not is_free else []
    turns = Turns(draft.state, pool, draft.states)
    if settled is not None and (stuck or is_free):
        turns.gates.resume(settled)
    else:
        _take_turns(draft, turns, stuck, reviewing=reviewing)
    times: list[int | None] = []
    if not draft.full:
        emit_pending_reasons(draft, turns)
    if reviewing:
        starving = StarvationPolicy(draft, turns)
        times = [
            recall_for_quota(draft, turns, starving.offers()),
            emit_changed_reasons(draft, turns),
            starving.limits(),
        ]
    return min((at_ns for at_ns in times if at_ns is not None), default=None)


def _take_turns(draft: QueueDraft, turns: Turns, stuck: list[LiveJob], *, reviewing: bool) -> None:
    if reviewing:
        turns.pool.forget_refused()
    if stuck:
        reorder(draft, turns, stuck)
    else:
        _in_turn(draft, turns)


def _in_turn(draft: QueueDraft, turns: Turns) -> None:
    room = draft.room()
    while room > 0:
        turn = turns.next()
        if turn is None:
            return
        _, candidate = turn
        cause = candidate.job.cause
        draft.emit(JobOffered(cause=cause, job=candidate.id, attempt=candidate.attempt, rank=draft.next_rank))
        draft.next_rank += RANK_STEP
        room -= 1
    draft.full = True
