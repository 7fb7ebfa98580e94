"""Dry run of a submit: the outcome for a job if it were submitted now, computed by the code that would decide. Pure; the
state is afterwards as it was before.
"""

import msgspec

from fairlead_queue.decide.admission import submit_refusal
from fairlead_queue.decide.commands import future_order, request_in_pool
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.preemption_candidates import CandidateFinder, StarvingJob
from fairlead_queue.decide.starvation import idle_on_demand
from fairlead_queue.explain.explain import closed_gate, estimate, explain
from fairlead_queue.explain.remedies import placement_remedies
from fairlead_queue.fairness.quota import queue_of, user_of
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob
from fairlead_schemas.queries.explainer import DryRunOutcome, DryRunQuota, Explanation
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.events import Victim

#: The id of a job that is not there.
TRIED = "0"


def dry_run(state: QueueState, command: SubmitJob, now_ns: int) -> DryRunOutcome:
    """The outcome of one submit at a moment."""
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
        return DryRunOutcome(
            pool=queue.pool.name,
            quota=tuple(_quota(job)),
            borrows=_borrows(job),
            waits=_waits(state, job),
            displaces=_displaces(state, job, now_ns),
            estimate=estimate(state, job, command, now_ns),
        )


def _waits(state: QueueState, job: LiveJob) -> Explanation:
    """Explain the wait that the job would have. With all gates open it is offered at once. It then waits for a place if the
    pool is full, or if other jobs with equal requests found no place.
    """
    told = explain(state, job)
    if closed_gate(state, job.lane) is not None:
        return told
    if _is_full(job):
        message = f"pool {job.lane.request_class.pool.name} has less left than it needs"
    elif job.lane.request_class.parked:
        message = "others that ask for the same found no place, and nothing has come free since"
    else:
        return msgspec.structs.replace(told, reason="next", message="it is offered at once")
    return msgspec.structs.replace(told, reason="place", message=message, changes=tuple(placement_remedies(job)))


def _quota(job: LiveJob) -> list[DryRunQuota]:
    """Every limit and guarantee on the way up that the job counts on, with it counted."""
    pool, found = job.lane.request_class.pool, list[DryRunQuota]()
    for node in job.lane.leaf.node.up():
        if node.parent is None:
            continue
        for at, more in enumerate(job.lane.request_class.need):
            resource = pool.resources[at]
            ceiling = node.ceiling[at] if node.has_ceiling(at) else None
            if more and (ceiling is not None or node.guaranteed[at]):
                used = node.usage[at]
                found.append(
                    DryRunQuota(
                        queue=queue_of(node),
                        user=user_of(node),
                        resource=resource,
                        used=used,
                        after=used + more,
                        guaranteed=node.guaranteed[at],
                        maximum=ceiling,
                    )
                )
    return found


def _borrows(job: LiveJob) -> dict[str, int]:
    """Return the amounts that the job's queue would use beyond its guarantee, of resources for which it has a guarantee."""
    node, pool = job.lane.leaf.queue.node, job.lane.request_class.pool
    borrowed: dict[str, int] = {}
    for at, more in enumerate(job.lane.request_class.need):
        beyond = node.usage[at] + more - node.guaranteed[at]
        if more and node.guaranteed[at] and beyond > 0:
            borrowed[pool.resources[at]] = min(more, beyond)
    return borrowed


def _displaces(state: QueueState, job: LiveJob, now_ns: int) -> tuple[Victim, ...]:
    """Runs that might be asked to yield to it once it starves."""
    pool = job.lane.request_class.pool
    closed = closed_gate(state, job.lane)
    if closed is not None and closed.refusal is not None:
        lacking = closed.refusal
        if lacking.needed > lacking.ceiling:
            return ()
        missing = {lacking.resource: lacking.held + lacking.needed - lacking.ceiling}
        starving = StarvingJob(job, job.lane, lacking.node, missing, False)
    elif closed is None and not _is_full(job):
        return ()
    else:
        starving = StarvingJob(job, job.lane, pool.tree.root, {}, False)
    return CandidateFinder(pool, starving, now_ns, idle=idle_on_demand(state, pool)).find().victims


def _is_full(job: LiveJob) -> bool:
    pool = job.lane.request_class.pool
    usage, capacity = pool.tree.root.usage, pool.tree.capacity
    return pool.is_known() and any(
        more and usage[at] + more > capacity[at] for at, more in enumerate(job.lane.request_class.need)
    )
