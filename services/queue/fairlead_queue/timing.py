"""What is due by the clock: starts and delays that are over, time limits, deadlines, budgets, and rising priorities."""

from fairlead_queue.budgets import UNIT
from fairlead_queue.jobs import Job
from fairlead_queue.limits import AGED_CHUNK
from fairlead_queue.order import priority_of
from fairlead_queue.plan import Plan
from fairlead_queue.pools import Pool
from fairlead_queue.state import State
from fairlead_schemas.events import BudgetReached, DeadlineMissed, JobQueued, JobsAged, JobStopRequested
from fairlead_schemas.jobspec import PRIORITY_MAX


def act_on_time(plan: Plan) -> None:
    """Emit what has come due, as far as there is room."""
    state = plan.state
    if state.timers and state.timers[0][0] <= plan.now_ns:
        _timers(plan)
    if state.deadlines and state.deadlines[0][0] <= plan.now_ns:
        _deadlines(plan)
    if state.accounts:
        _budgets(plan)
    for _, pool in sorted(state.pools.items()):
        if pool.settings.ageing is not None:
            _age(plan, pool)


def next_time(state: State, now_ns: int) -> int | None:
    """When something of this will be due, nothing being due now."""
    times = [each[0][0] for each in (state.timers, state.deadlines) if each]
    for account in state.accounts.values():
        at_ns = account.next_ns(now_ns)
        if at_ns is not None:
            times.append(at_ns)
    for pool in state.pools.values():
        if pool.settings.ageing is not None:
            times.extend(_ages_at(pool, job) for job in _heads(pool) if _may_age(pool, job))
    return min(times, default=None)


def _timers(plan: Plan) -> None:
    """Start times and delays that are over, and running attempts whose time is up."""
    for at_ns, id_ in plan.state.timers:
        if at_ns > plan.now_ns:
            return
        if plan.room() <= 0:
            plan.full = True
            return
        job = plan.state.jobs[id_]
        if id_ in plan.states:  # moved by this very decision
            continue
        if job.state == "running":
            plan.emit(JobStopRequested(cause="clock", job=id_, attempt=job.attempt, reason="time_limit"))
            plan.states[id_] = "stopping"
        else:
            plan.emit(JobQueued(cause="clock", job=id_))
            plan.states[id_] = "queued"


def _deadlines(plan: Plan) -> None:
    for at_ns, id_ in plan.state.deadlines:
        job = plan.state.jobs[id_]
        if at_ns > plan.now_ns:
            return
        if id_ in plan.states:
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        plan.emit(DeadlineMissed(cause="clock", job=id_, deadline_ns=job.deadline_ns))


def _budgets(plan: Plan) -> None:
    """Marks that are reached; and that are not any more, in a new period or because the budget was raised."""
    for path, account in sorted(plan.state.accounts.items()):
        begin_ns, used = account.at(plan.now_ns)
        mark = account.mark(plan.now_ns)
        if mark == account.reached:
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        plan.reshaped = True
        plan.emit(
            BudgetReached(
                cause="clock", queue=path, percent=mark, spent=used // UNIT, budget=account.budget.gpu_milli_s,
                period_ns=begin_ns,
            )
        )  # fmt: skip


# ---------------------------------------------------------------------------------------- ageing


def _heads(pool: Pool) -> list[Job]:
    """The job of each line that has waited longest."""
    return [
        line.first()
        for node in pool.tree.nodes.values()
        if node.leaf is not None
        for _, front in node.leaf.fronts
        for line in front.lane.lines.values()
    ]


def _may_age(pool: Pool, job: Job) -> bool:
    ageing = pool.settings.ageing
    assert ageing is not None
    return job.aged < ageing.most and priority_of(job.order) < PRIORITY_MAX


def _ages_at(pool: Pool, job: Job) -> int:
    ageing = pool.settings.ageing
    assert ageing is not None
    return job.since_ns + (job.aged + 1) * ageing.every_ns


def _age(plan: Plan, pool: Pool) -> None:
    """Jobs whose priority rises by one. In a line the oldest stand first, so a line is left at the first that does not."""
    due: list[str] = []
    for head in _heads(pool):
        for job in head.lane.lines[priority_of(head.order)]:
            if len(due) >= AGED_CHUNK or not _may_age(pool, job) or _ages_at(pool, job) > plan.now_ns:
                break
            if job.id not in plan.states:
                due.append(job.id)
    if not due:
        return
    if plan.room() <= 0:
        plan.full = True
        return
    plan.emit(JobsAged(cause="clock", jobs=tuple(due)), extra_bytes=sum(len(job) + 3 for job in due))
