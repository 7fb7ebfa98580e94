"""Explanation of a job's wait, in numbers; the changes that would start it are in `remedies.py`. Pure: the same gates that
decide.

Only the placer knows if the nodes have room in the right places. "Could start" means that the job would be offered at
once and that its pool has as much left as it needs.

Estimate of a job's start from the time limits of the runs and the waiting jobs before it, labelled with its basis.

The pool is taken as one machine, and so is the capacity that each limit above the job allows. Every run is taken to run
to its time limit. Then the jobs ahead get their turns in order, each as early as the resources that it needs are free.
Where a job has no time limit, or nodes must fit, no better estimate is known.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import islice

from fairlead_queue.decide.gates import ClosedGate, Gates
from fairlead_queue.explain.jobs_ahead import AHEAD_MAX, ahead_of
from fairlead_queue.explain.remedies import limit_remedies, placement_remedies
from fairlead_queue.fairness.quota import user_of
from fairlead_queue.fairness.tree import Amounts, QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Lane, LiveJob, PoolState
from fairlead_schemas.queries.explainer import Estimate, Explanation, SuggestedChange
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.wire.commands import SubmitJob

#: Jobs ahead that are named.
NAMED_MAX = 10


def explain(state: QueueState, job: LiveJob) -> Explanation:
    """Explain the present state of this live job from the queue's side."""
    if job.open:
        return _offered(state, job)
    if job.wait not in ("line", "returned"):
        return Explanation(reason="")
    lane = job.lane
    closed = closed_gate(state, lane)
    if job.wait == "returned" and closed is None:
        message = "it fitted nowhere, and its quota went to others; it has its turn again when capacity or limits have changed"
        return Explanation(reason="place", message=message, changes=tuple(placement_remedies(job)))
    ahead = ahead_of(state, job, AHEAD_MAX).jobs if job.wait == "line" else []
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes: list[SuggestedChange] = []
    if closed is None:
        message = "it is next" if not ahead else f"{_jobs(len(ahead))} before it"
        reason = "next" if not ahead else "turn"
    else:
        reason, message = closed.reason, _message(closed)
        numbers |= _numbers(closed)
        if closed.refusal is not None:
            changes = list(limit_remedies(state, job, closed.refusal, ahead))
        elif reason == "turn":
            message = f"the placer has as many offers as it looks ahead over; {_jobs(len(ahead))} before it"
    return Explanation(
        reason=reason,
        message=message,
        numbers=numbers,
        changes=tuple(changes),
        ahead=len(ahead),
        first_ahead=_first(ahead),
    )


def closed_gate(state: QueueState, lane: Lane) -> ClosedGate | None:
    """Return the gate that is closed for the lane's jobs now; None if they could be offered."""
    gates = Gates(state, lane.request_class.pool)
    gates.pool.forget_refused()
    return gates.closed(lane)


def _offered(state: QueueState, job: LiveJob) -> Explanation:
    ahead = ahead_of(state, job, AHEAD_MAX).jobs
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes = list(placement_remedies(job))
    message = f"it has its turn and waits for a place; {_jobs(len(ahead))} before it"
    if job.yielders:
        numbers["asked_to_yield"] = job.yielders
        asked = "1 job was" if job.yielders == 1 else f"{job.yielders} jobs were"
        message += f"; {asked} asked to yield to it"
    return Explanation(
        reason="place",
        message=message,
        numbers=numbers,
        changes=tuple(changes),
        ahead=len(ahead),
        first_ahead=_first(ahead),
    )


def _first(ahead: Sequence[LiveJob]) -> tuple[str, ...]:
    """The first of them; an array once, however many of its elements go before."""
    return tuple(islice(dict.fromkeys(other.id for other in ahead), NAMED_MAX))


def _jobs(count: int) -> str:
    if count >= AHEAD_MAX:
        return f"{AHEAD_MAX} jobs or more are"
    return "1 job is" if count == 1 else f"{count} jobs are"


# ---------------------------------------------------------------------------------------- words


def _message(closed: ClosedGate) -> str:
    refusal = closed.refusal
    if closed.reason == "budget":
        return f"the budget of queue {closed.queue} is spent"
    if refusal is None:
        return "others go first"
    held, needed = number(refusal.resource, refusal.held), number(refusal.resource, refusal.needed)
    ceiling = counted(refusal.resource, refusal.ceiling)
    match closed.reason:
        case "user_limit":
            user = user_of(refusal.node)
            return f"{user} holds {held} of the {ceiling} that one user may hold in {closed.queue}; this needs {needed}"
        case "reserved":
            where = f"queue {closed.queue}" if closed.queue else "the pool"
            return f"what {where} has left of {ceiling} is kept for queues that do not lend it; this needs {needed}"
        case "claimed":
            return f"what is free is kept for job {refusal.holder}, which has waited longer"
        case _:
            return f"queue {closed.queue} holds {held} of {ceiling}; this needs {needed}"


def _numbers(closed: ClosedGate) -> dict[str, int | str]:
    refusal = closed.refusal
    if refusal is None:
        return {"queue": closed.queue} if closed.queue else {}
    numbers: dict[str, int | str] = {
        "queue": closed.queue,
        "resource": refusal.resource,
        "held": refusal.held,
        "needed": refusal.needed,
        "ceiling": refusal.ceiling,
    }
    if refusal.holder:
        numbers["holder"] = refusal.holder
    return numbers


#: Jobs ahead that are laid out in time.
LAID_OUT_MAX = 500
#: {closed gate: reason why no estimate is possible}
_KEPT = {
    "reserved": "what it needs is kept for queues that do not lend it, and it is unknown when they will use less",
    "claimed": "what it needs is kept for a job that has waited longer",
}


def estimate(state: QueueState, job: LiveJob, command: SubmitJob, now_ns: int) -> Estimate:
    """For a job that waits in line."""
    pool = job.lane.request_class.pool
    begin_ns = max(now_ns, command.start_at_ns)
    if command.after:
        return Estimate(basis="it waits for other jobs, whose end is unknown")
    if not pool.is_known():
        return Estimate(basis="no node of the pool is known yet")
    closed = closed_gate(state, job.lane)
    if closed is not None and closed.reason in _KEPT:
        return Estimate(basis=_KEPT[closed.reason])
    plan = _Layouts(job, begin_ns)
    unlimited = 0
    for run in _runs(state, pool):
        left_ns = run.total_ns - run.used_ns - (now_ns - run.started_ns if run.started_ns else 0)
        plan.occupy(run, now_ns + max(0, left_ns) if run.total_ns else None)
        unlimited += not run.total_ns
    ahead = ahead_of(state, job, LAID_OUT_MAX)
    for other in ahead.jobs:
        start_ns = plan.start(other)
        if start_ns is None:
            continue
        end_ns = start_ns + other.total_ns - other.used_ns if other.total_ns else None
        unlimited += end_ns is None
        plan.occupy(other, end_ns, start_ns)
    return Estimate(basis=_basis(len(ahead.jobs), ahead.more, unlimited), start_ns=plan.start(job) or 0)


def _runs(state: QueueState, pool: PoolState) -> Iterator[LiveJob]:
    for queue in state.queues.values():
        if queue.pool is pool:
            for leaf in queue.leaves.values():
                for lane in leaf.lanes.values():
                    yield from lane.running.values()


def _basis(ahead: int, more: bool, unlimited: int) -> str:
    before = f"{'at least ' if more and ahead else ''}{ahead or 'no'} {_job_word(ahead)} before it"
    runs_on = "is taken to run on" if unlimited == 1 else "are taken to run on"
    without = f"; {unlimited} {_job_word(unlimited)} without a limit {runs_on}" if unlimited else ""
    return f"time limits of all that runs, with {before}, in the order of now; the pool as one machine{without}"


def _job_word(count: int) -> str:
    return "job" if count == 1 else "jobs"


class _Layouts:
    """Free resources over time of the pool, and under each limit above a job."""

    def __init__(self, job: LiveJob, now_ns: int) -> None:
        tree = job.lane.request_class.pool.tree
        #: {node: what may be used below it}
        self._layouts: dict[QueueNode, _Layout] = {tree.root: _Layout(tree.capacity, now_ns)}
        for node in job.lane.leaf.node.up():
            if node.bounded:
                self._layouts[node] = _Layout(node.ceiling, now_ns)

    def _above(self, job: LiveJob) -> Iterator["_Layout"]:
        return (self._layouts[node] for node in job.lane.leaf.node.up() if node in self._layouts)

    def occupy(self, job: LiveJob, end_ns: int | None, start_ns: int | None = None) -> None:
        """Occupy every layout above the job, with the same times as for one layout."""
        for layout in self._above(job):
            layout.occupy(job.lane.request_class.pool.holds(job), end_ns, start_ns)

    def start(self, job: LiveJob) -> int | None:
        """The earliest time from which each of them has what it needs free for good; None when one never has."""
        starts = [layout.start(job.lane.request_class.need) for layout in self._above(job)]
        known = [start_ns for start_ns in starts if start_ns is not None]
        return max(known) if len(known) == len(starts) else None


class _Layout:
    """Free amounts of one capacity over time. Times are Unix ns; None is never."""

    def __init__(self, capacity: list[int], now_ns: int) -> None:
        self.now_ns = now_ns
        self._free = list(capacity)
        #: (time, what comes free then), rising; a start in the future takes, as a negative amount.
        self._changes: list[tuple[int, Amounts]] = []

    def occupy(self, need: Amounts, end_ns: int | None, start_ns: int | None = None) -> None:
        """Occupy this much from a start (now, if None) to an end."""
        taken = tuple(-amount for amount in need)
        if start_ns is None or start_ns <= self.now_ns:
            self._free = [have + more for have, more in zip(self._free, taken, strict=True)]
        else:
            insort(self._changes, (start_ns, taken))
        if end_ns is not None:
            insort(self._changes, (max(end_ns, self.now_ns), need))

    def start(self, need: Amounts) -> int | None:
        """The earliest time from which this much is free for good; None when it never is."""
        free = list(self._free)
        start_ns: int | None = self.now_ns if _fits(free, need) else None
        for at_ns, change in self._changes:
            free = [have + more for have, more in zip(free, change, strict=True)]
            if not _fits(free, need):
                start_ns = None
            elif start_ns is None:
                start_ns = at_ns
        return start_ns


def _fits(free: list[int], need: Amounts) -> bool:
    return all(not more or have >= more for have, more in zip(free, need, strict=True))
