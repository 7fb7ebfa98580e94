"""Dry run of a submit: the outcome for a job if it were submitted now, computed by the code that would decide. Pure; the
state is afterwards as it was before.

The start is estimated from the time limits of the runs and of the waiting jobs before it, labelled with its basis. The pool
is taken as one machine, and so is the capacity that each limit above the job allows. Every run is taken to run to its time
limit. Then the jobs ahead get their turns in order, each as early as the resources that it needs are free.
"""

from bisect import insort
from collections.abc import Iterator

import msgspec

from fairlead_queue.decide.admission import future_order, request_in_pool, submit_refusal
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.gates import ClosedGate, is_within_capacity
from fairlead_queue.decide.preemption_candidates import CandidateFinder, StarvingJob
from fairlead_queue.decide.starvation import idle_on_demand
from fairlead_queue.explain.explain import ahead_of, closed_gate, explain
from fairlead_queue.explain.remedies import smaller_request
from fairlead_queue.fairness.quota import queue_of, user_of
from fairlead_queue.fairness.tree import Amounts, QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob
from fairlead_schemas.queries.explainer import DryRunOutcome, DryRunQuota, Estimate, Explanation
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.events import Victim

#: The id of a job that is not there.
TRIED = "0"
#: Jobs ahead that are laid out in time.
LAID_OUT_MAX = 500


def dry_run(state: QueueState, command: SubmitJob, now_ns: int) -> DryRunOutcome:
    """Return the outcome of one submit at a moment."""
    plan = QueueDraft(state, now_ns, 0)
    refused = submit_refusal(plan, command)
    if refused is not None:
        return DryRunOutcome(code=refused.code, field=refused.field, message=refused.message)
    queue = state.queues[command.queue]
    request = request_in_pool(plan, command)
    order = future_order(plan, command, state.next_place)
    with state.speculating():
        job = LiveJob(TRIED, order, state.lane(command.queue, command.user, request), "clock")
        job.user, job.total_ns, job.since_ns = command.user, command.total_ns, now_ns
        state.try_in_line(job, set())
        told, closed = explain(state, job), closed_gate(state, job.lane)
        return DryRunOutcome(
            pool=queue.pool.name,
            quota=tuple(_quota(job)),
            borrows=_borrows(job),
            waits=told if closed is not None else _offered(told, job),
            displaces=_displaces(state, job, closed, now_ns),
            estimate=_estimate(state, job, closed, command, now_ns),
        )


def _offered(told: Explanation, job: LiveJob) -> Explanation:
    """Explain the wait of a job that would be offered at once: it waits for a place if the pool is full, or if other jobs with
    equal requests found no place.
    """
    no_place = "pool_full" if _is_full(job) else "class_refused" if job.lane.request_class.parked else ""
    if not no_place:
        return msgspec.structs.replace(told, reason="next")
    return msgspec.structs.replace(told, reason="place", no_place=no_place, changes=tuple(smaller_request(job)))


def _quota(job: LiveJob) -> Iterator[DryRunQuota]:
    """Yield every limit and guarantee on the way up that the job counts on, with it counted."""
    pool = job.lane.request_class.pool
    for node in job.lane.leaf.node.up():
        for at, more in enumerate(job.lane.request_class.need) if node.parent is not None else ():
            if more and (node.has_ceiling(at) or node.guaranteed[at]):
                yield DryRunQuota(
                    queue=queue_of(node),
                    user=user_of(node),
                    resource=pool.resources[at],
                    used=node.usage[at],
                    after=node.usage[at] + more,
                    guaranteed=node.guaranteed[at],
                    maximum=node.ceiling[at] if node.has_ceiling(at) else None,
                )


def _borrows(job: LiveJob) -> dict[str, int]:
    """Return the amounts that the job's queue would use beyond its guarantee, of resources for which it has a guarantee."""
    node, pool = job.lane.leaf.queue.node, job.lane.request_class.pool
    borrowed: dict[str, int] = {}
    for at, more in enumerate(job.lane.request_class.need):
        beyond = node.usage[at] + more - node.guaranteed[at]
        if more and node.guaranteed[at] and beyond > 0:
            borrowed[pool.resources[at]] = min(more, beyond)
    return borrowed


def _displaces(state: QueueState, job: LiveJob, closed: ClosedGate | None, now_ns: int) -> tuple[Victim, ...]:
    """Return the runs that might be requested to yield to it once it starves."""
    pool = job.lane.request_class.pool
    node, missing = pool.tree.root, dict[str, int]()
    if closed is not None and (lacking := closed.refusal) is not None:
        if lacking.needed > lacking.ceiling:
            return ()
        node, missing = lacking.node, {lacking.resource: lacking.held + lacking.needed - lacking.ceiling}
    elif (closed is None and not _is_full(job)) or (closed is not None and closed.reason == "queue_held"):
        return ()
    starving = StarvingJob(job, job.lane, node, missing, False)
    return CandidateFinder(pool, starving, now_ns, idle=idle_on_demand(state, pool)).find().victims


def _is_full(job: LiveJob) -> bool:
    pool = job.lane.request_class.pool
    return pool.is_known() and not is_within_capacity(pool, job.lane.request_class.need)


# ---------------------------------------------------------------------------------------- estimate of the start


def _estimate(state: QueueState, job: LiveJob, closed: ClosedGate | None, command: SubmitJob, now_ns: int) -> Estimate:
    pool = job.lane.request_class.pool
    if command.after:
        return Estimate(unknown="after")
    if not pool.is_known():
        return Estimate(unknown="no_node")
    if closed is not None and closed.reason in ("reserved", "claimed", "queue_held"):
        return Estimate(unknown=closed.reason)
    plan = _Layout(job, max(now_ns, command.start_at_ns))
    unlimited = 0
    leaves = (leaf for queue in state.queues.values() if queue.pool is pool for leaf in queue.leaves.values())
    for run in (run for leaf in leaves for lane in leaf.lanes.values() for run in lane.running.values()):
        left_ns = run.total_ns - run.used_ns - (now_ns - run.started_ns if run.started_ns else 0)
        plan.occupy(run, now_ns + max(0, left_ns) if run.total_ns else None)
        unlimited += not run.total_ns
    ahead = ahead_of(state, job, LAID_OUT_MAX)
    for other in ahead.jobs:
        start_ns = plan.start(other)
        if start_ns is not None:
            unlimited += not other.total_ns
            plan.occupy(other, start_ns + other.total_ns - other.used_ns if other.total_ns else None, start_ns)
    return Estimate(start_ns=plan.start(job) or 0, ahead=len(ahead.jobs), more=ahead.more, unlimited=unlimited)


class _Layout:
    """Free amounts over time of a job's pool, and under each limit above the job: one vector, node by node. Times are Unix ns;
    None is never.
    """

    def __init__(self, job: LiveJob, now_ns: int) -> None:
        tree = job.lane.request_class.pool.tree
        bounded = [node for node in job.lane.leaf.node.up() if node.bounded and node is not tree.root]
        self._nodes: list[QueueNode] = [tree.root, *bounded]
        self._now_ns = now_ns
        self._free = [*tree.capacity, *(amount for node in bounded for amount in node.ceiling)]
        #: (time, what comes free then), rising; a start in the future takes, as a negative amount.
        self._changes: list[tuple[int, Amounts]] = []

    def _at_nodes(self, job: LiveJob, amounts: Amounts) -> Amounts:
        """Return a job's amounts as they count at each node: 0 where the node is not above the job."""
        above = set(job.lane.leaf.node.up())
        return tuple(amount if node in above else 0 for node in self._nodes for amount in amounts)

    def occupy(self, job: LiveJob, end_ns: int | None, start_ns: int | None = None) -> None:
        """Occupy what the job holds from a start (now, if None) to an end."""
        need = self._at_nodes(job, job.lane.request_class.pool.holds(job))
        taken = tuple(-amount for amount in need)
        if start_ns is None or start_ns <= self._now_ns:
            self._free = _sum(self._free, taken)
        else:
            insort(self._changes, (start_ns, taken))
        if end_ns is not None:
            insort(self._changes, (max(end_ns, self._now_ns), need))

    def start(self, job: LiveJob) -> int | None:
        """Return the earliest time from which all that the job needs is free for good; None when it never is."""
        need, free = self._at_nodes(job, job.lane.request_class.need), self._free
        start_ns: int | None = self._now_ns if _fits(free, need) else None
        for at_ns, change in self._changes:
            free = _sum(free, change)
            if not _fits(free, need):
                start_ns = None
            elif start_ns is None:
                start_ns = at_ns
        return start_ns


def _sum(free: list[int], change: Amounts) -> list[int]:
    return [have + more for have, more in zip(free, change, strict=True)]


def _fits(free: list[int], need: Amounts) -> bool:
    return all(not more or have >= more for have, more in zip(free, need, strict=True))
