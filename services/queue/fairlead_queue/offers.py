"""What is offered now: turn by turn, pool by pool, as far as the gates and the commit's room go; and what is said to
those who are not."""

from heapq import nsmallest

from fairlead_queue.jobs import Job
from fairlead_queue.lanes import Lane
from fairlead_queue.limits import NEWS_MAX
from fairlead_queue.order import RANK_STEP
from fairlead_queue.plan import Plan
from fairlead_queue.pools import Pool
from fairlead_queue.review import give_quota, help_starving, renew_news, reorder, stuck_offers
from fairlead_queue.turns import Closed, Turns
from fairlead_schemas.events import JobDeferred, JobOffered


def make_offers(plan: Plan, *, reviewing: bool) -> int | None:
    """Offer what may be offered now, in order, and say of lanes that begin to wait why they do. `reviewing`: hold what
    the placer has against the order, and help those who starve; then the time at which to look again (None: never)."""
    tried = _try_fresh(plan)
    times = [
        _offer(plan, pool, reviewing) for _, pool in sorted(plan.state.pools.items()) if pool.waiting or pool.offers
    ]
    for job in reversed(tried):
        plan.state.unwait(job)
        plan.state.remove(job)
    return min((at_ns for at_ns in times if at_ns is not None), default=None)


def _try_fresh(plan: Plan) -> list[Job]:
    """Jobs that this very decision accepts wait in line like the others, until it is made."""
    state, tried = plan.state, list[Job]()
    for fresh in plan.fresh:
        queue = state.queues.get(fresh.queue)
        if queue is None or (queue.node.leaf is None and queue.node.children and not queue.settings.users):
            continue  # configured by this very decision: the next one offers
        job = Job(fresh.id, fresh.order, state.lane(fresh.queue, fresh.user, fresh.request), fresh.cause)
        job.user = fresh.user
        state.add(job)
        state.wait_in_line(job)
        tried.append(job)
    return tried


def _offer(plan: Plan, pool: Pool, reviewing: bool) -> int | None:
    if reviewing:
        pool.forget_refused()
    stuck = stuck_offers(plan, pool) if reviewing else []
    turns = Turns(plan.state, pool, plan.states)
    if stuck:
        reorder(plan, turns, stuck)
    else:
        _in_turn(plan, turns)
    again_ns = None
    if not plan.full:
        _explain(plan, turns)
    if reviewing:
        give_quota(plan, turns)
        for lane, closed in renew_news(plan, turns):
            defer(plan, turns, lane, closed)
        again_ns = help_starving(plan, turns)
    turns.undo()
    return again_ns


def _in_turn(plan: Plan, turns: Turns) -> None:
    room = plan.room()
    while room > 0:
        turn = turns.next()
        if turn is None:
            return
        _, candidate = turn
        cause = candidate.job.cause
        plan.emit(JobOffered(cause=cause, job=candidate.id, attempt=candidate.attempt, rank=plan.next_rank))
        plan.next_rank += RANK_STEP
        room -= 1
    plan.full = True


def _explain(plan: Plan, turns: Turns) -> None:
    """Say why, of lanes in which somebody waits now and nothing was said yet."""
    pool = turns.pool
    silent = [lane for lane in plan.state.unexplained if lane.klass.pool is pool and lane not in turns.exhausted]
    for lane in nsmallest(NEWS_MAX, silent, key=_front):
        closed = turns.gate(lane)
        if closed is not None:
            defer(plan, turns, lane, closed)


def _front(lane: Lane) -> int:
    return lane.front


def defer(plan: Plan, turns: Turns, lane: Lane, closed: Closed) -> None:
    """Say why the first of a lane is not offered."""
    job = turns.first_of(lane)
    if job is None:
        return
    if plan.room() <= 0:
        plan.full = True
        return
    refusal = closed.refusal
    numbers: dict[str, int] = {}
    if refusal is not None:
        numbers = {"held": refusal.held, "needed": refusal.needed, "ceiling": refusal.ceiling}
    plan.emit(
        JobDeferred(
            cause=job.cause, job=job.id, attempt=max(1, job.attempt), reason=closed.reason, queue=closed.queue,
            resource=refusal.resource if refusal is not None else "",
            holder=refusal.holder if refusal is not None else "", **numbers,
        )
    )  # fmt: skip
