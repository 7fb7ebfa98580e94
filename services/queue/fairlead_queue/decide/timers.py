"""Work due by the clock: starts and delays that are over, time limits, deadlines, budgets, and rising priorities."""

from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.fairness.budgets import UNIT
from fairlead_queue.limits import AGED_CHUNK
from fairlead_queue.state import QueueState
from fairlead_schemas.wire.events import BudgetReached, DeadlineMissed, JobQueued, JobStopRequested, PriorityAged


def emit_due(plan: QueueDraft) -> None:
    """Emit the events that have come due while the commit has room."""
    state = plan.state
    if state.due.timers and state.due.timers[0][0] <= plan.now_ns:
        _timers(plan)
    if state.due.deadlines and state.due.deadlines[0][0] <= plan.now_ns:
        _deadlines(plan)
    if state.due.marks and plan.outlook is None:  # a change of queues in this decision may be one of budgets
        _budgets(plan)
    if state.due.ages and state.due.ages[0][0] <= plan.now_ns:
        _age(plan)


def next_due_ns(state: QueueState, now_ns: int) -> int | None:
    """Return when the next timed event will be due, provided that none is due now; None when there is none."""
    times = [each[0][0] for each in (state.due.timers, state.due.deadlines, state.due.ages) if each]
    for at_ns, path in state.due.marks:
        if at_ns > now_ns:
            times.append(at_ns)
            break
        again_ns = state.accounts[path].next_ns(now_ns)  # a period has ended without anything to report
        if again_ns is not None:
            times.append(again_ns)
    return min(times, default=None)


def _timers(plan: QueueDraft) -> None:
    """Start times and delays that are over, and running attempts whose time is up."""
    for at_ns, id_ in plan.state.due.timers:
        if at_ns > plan.now_ns:
            return
        if plan.room() <= 0:
            plan.full = True
            return
        job = plan.state.jobs[id_]
        if id_ in plan.states:  # moved by this very decision
            continue
        if job.state == "running":
            ran_ns = max(0, job.total_ns - job.used_ns - job.notice_ns)
            event = JobStopRequested(cause="clock", job=id_, attempt=job.attempt, reason="time_limit", ran_ns=ran_ns)
            plan.emit(event)
            plan.states[id_] = "stopping"
        else:
            plan.emit(JobQueued(cause="clock", job=id_))
            plan.states[id_] = "queued"


def _deadlines(plan: QueueDraft) -> None:
    for at_ns, id_ in plan.state.due.deadlines:
        job = plan.state.jobs[id_]
        if at_ns > plan.now_ns:
            return
        if id_ in plan.states:
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        plan.emit(DeadlineMissed(cause="clock", job=id_, deadline_ns=job.deadline_ns))


def _budgets(plan: QueueDraft) -> None:
    """Marks that are reached; and that are not any more, in a new period or because the budget was raised."""
    for at_ns, path in plan.state.due.marks:
        if at_ns > plan.now_ns:
            return
        account = plan.state.accounts[path]
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
                cause="clock",
                queue=path,
                percent=mark,
                spent=used // UNIT,
                budget=account.budget.gpu_milli_s,
                period_ns=begin_ns,
            )
        )


def _age(plan: QueueDraft) -> None:
    """Jobs whose priority rises by one, as many as one event takes."""
    due: list[str] = []
    for at_ns, id_ in plan.state.due.ages:
        if at_ns > plan.now_ns or len(due) >= AGED_CHUNK:
            break
        if id_ not in plan.states:
            due.append(id_)
    if not due:
        return
    if plan.room() <= 0:
        plan.full = True
        return
    plan.emit(PriorityAged(cause="clock", jobs=tuple(due)), extra_bytes=sum(len(job) + 3 for job in due))
