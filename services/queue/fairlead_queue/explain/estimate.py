"""Estimate of a job's start from the time limits of the runs and the waiting jobs before it, labelled with its basis.

The pool is taken as one machine, and so is the capacity that each limit above the job allows. Every run is taken to run
to its time limit. Then the jobs ahead get their turns in order, each as early as the resources that it needs are free.
Where a job has no time limit, or nodes must fit, no better estimate is known.
"""

from bisect import insort
from collections.abc import Iterator

from fairlead_queue.explain.explain import gate
from fairlead_queue.explain.jobs_ahead import ahead_of
from fairlead_queue.fairness.tree import Amounts, Node
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.pools import Pool
from fairlead_schemas.queries.explainer import Estimate
from fairlead_schemas.wire.commands import SubmitJob

#: Jobs ahead that are laid out in time.
LAID_OUT_MAX = 500
#: {closed gate: reason why no estimate is possible}
_KEPT = {
    "reserved": "what it needs is kept for queues that do not lend it, and when they use less nobody knows",
    "claimed": "what it needs is kept for a job that has waited longer",
}


def estimate(state: State, job: Job, command: SubmitJob, now_ns: int) -> Estimate:
    """For a job that waits in line."""
    pool = job.lane.klass.pool
    begin_ns = max(now_ns, command.start_at_ns)
    if command.after:
        return Estimate(basis="it waits for other jobs, whose end nobody knows")
    if not pool.is_known():
        return Estimate(basis="no node of the pool is known yet")
    closed = gate(state, job.lane)
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


def _runs(state: State, pool: Pool) -> Iterator[Job]:
    for queue in state.queues.values():
        if queue.pool is pool:
            for leaf in queue.leaves.values():
                for lane in leaf.lanes.values():
                    yield from lane.running.values()


def _basis(ahead: int, more: bool, unlimited: int) -> str:
    before = f"{'at least ' if more and ahead else ''}{ahead or 'no'} {_jobs(ahead)} before it"
    runs_on = "is taken to run on" if unlimited == 1 else "are taken to run on"
    without = f"; {unlimited} {_jobs(unlimited)} without a limit {runs_on}" if unlimited else ""
    return f"time limits of all that runs, with {before}, in the order of now; the pool as one machine{without}"


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"


class _Layouts:
    """Free resources over time of the pool, and under each limit above a job."""

    def __init__(self, job: Job, now_ns: int) -> None:
        tree = job.lane.klass.pool.tree
        #: {node: what may be used below it}
        self._layouts: dict[Node, _Layout] = {tree.root: _Layout(tree.capacity, now_ns)}
        for node in job.lane.leaf.node.up():
            if node.bounded:
                self._layouts[node] = _Layout(node.ceiling, now_ns)

    def _above(self, job: Job) -> Iterator["_Layout"]:
        return (self._layouts[node] for node in job.lane.leaf.node.up() if node in self._layouts)

    def occupy(self, job: Job, end_ns: int | None, start_ns: int | None = None) -> None:
        """Occupy every layout above the job, with the same times as for one layout."""
        for layout in self._above(job):
            layout.occupy(job.lane.klass.pool.holds(job), end_ns, start_ns)

    def start(self, job: Job) -> int | None:
        """The earliest time from which each of them has what it needs free for good; None when one never has."""
        starts = [layout.start(job.lane.klass.need) for layout in self._above(job)]
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
