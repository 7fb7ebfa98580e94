"""Work due by the clock: starts and delays that are over, time limits, deadlines, budgets, and rising priorities."""

from fairlead_bus.core import names_bytes
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.fairness.budgets import UNIT
from fairlead_queue.limits import AGED_CHUNK
from fairlead_queue.state import QueueState
from fairlead_schemas.wire.events import BudgetReached, DeadlineMissed, JobQueued, JobStopRequested, PriorityAged


def emit_due(draft: QueueDraft) -> None:
    """Emit the events that have come due while the commit has room."""
    state = draft.state
    if state.due.timers and state.due.timers[0][0] <= draft.now_ns:
        _timers(draft)
    if state.due.deadlines and state.due.deadlines[0][0] <= draft.now_ns:
        _deadlines(draft)
    if state.due.marks and draft.outlook is None:  # a change of queues in this decision may be one of budgets
        _budgets(draft)
    if state.due.ages and state.due.ages[0][0] <= draft.now_ns:
        _age(draft)


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
    for name in state.restless:
        at_ns = state.plan_of(state.services[name], now_ns).next_ns
        if at_ns is not None:
            times.append(at_ns)
    return min(times, default=None)


def _timers(draft: QueueDraft) -> None:
    """Start times and delays that are over, and running attempts whose time is up."""
    for at_ns, id_ in draft.state.due.timers:
        if at_ns > draft.now_ns:
            return
        if not draft.has_room():
            return
        job = draft.state.jobs[id_]
        if id_ in draft.states:  # moved by this very decision
            continue
        if job.state == "running":
            ran_ns = max(0, job.total_ns - job.used_ns - job.notice_ns)
            event = JobStopRequested(cause="clock", job=id_, attempt=job.attempt, reason="time_limit", ran_ns=ran_ns)
            draft.emit(event)
            draft.states[id_] = "stopping"
        else:
            draft.emit(JobQueued(cause="clock", job=id_))
            draft.states[id_] = "queued"


def _deadlines(draft: QueueDraft) -> None:
    for at_ns, id_ in draft.state.due.deadlines:
        job = draft.state.jobs[id_]
        if at_ns > draft.now_ns:
            return
        if id_ in draft.states:
            continue
        if not draft.has_room():
            return
        draft.emit(DeadlineMissed(cause="clock", job=id_, deadline_ns=job.deadline_ns))


def _budgets(draft: QueueDraft) -> None:
    """Marks that are reached; and that are not any more, in a new period or because the budget was raised."""
    for at_ns, path in draft.state.due.marks:
        if at_ns > draft.now_ns:
            return
        account = draft.state.accounts[path]
        begin_ns, used = account.at(draft.now_ns)
        mark = account.mark(draft.now_ns)
        if mark == account.reached:
            continue
        if not draft.has_room():
            return
        draft.reshaped = True
        draft.emit(
            BudgetReached(
                cause="clock",
                queue=path,
                percent=mark,
                spent=used // UNIT,
                budget=account.budget.gpu_milli_s,
                period_ns=begin_ns,
            )
        )


def _age(draft: QueueDraft) -> None:
    """Jobs whose priority rises by one, as many as one event takes."""
    due: list[str] = []
    for at_ns, id_ in draft.state.due.ages:
        if at_ns > draft.now_ns or len(due) >= AGED_CHUNK:
            break
        if id_ not in draft.states:
            due.append(id_)
    if not due:
        return
    if not draft.has_room():
        return
    draft.emit(PriorityAged(cause="clock", jobs=tuple(due)), extra_bytes=names_bytes(due))
