"""Conditions that a job waits for before it is in line: the ends of other jobs, then its start time; and capacity kept
free for a waiting job: quota under a limit, or (`PoolState.claimant`) a place. Called by `evolve` only.

One job at a time claims under a limit. A claim holds against no job that is within its queue's guarantee, unless its
holder is, too; and it lapses when its holder can no longer start (a lowered limit, a node gone, a spent budget, a held queue). If two block each other (one under a limit of a limit), the job that has waited
longer goes first. A lane's jobs are alike, so one of them claims at a time; a job ahead of it in the lane takes the
claim over.

A job's place in its line, when what it depends on has changed. Called by `evolve` only.
"""

from fairlead_bus.core import EventPosition
from fairlead_queue.fairness.budgets import refusing_account
from fairlead_queue.fairness.tree import QueueNode, QuotaClaim
from fairlead_queue.fairness.waiting_line import offset_of, place_of
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import AttemptEnd
from fairlead_queue.waiting.pending import NEVER, Array, LiveJob, PoolState
from fairlead_schemas.wire import events as ev


def pending_dependencies(state: QueueState, after: tuple[ev.Dependency, ...]) -> dict[str, str] | None:
    """Return the dependencies still to be waited for, among jobs that are live or have ended lately; None if there are none."""
    found: dict[str, str] = {}
    for each in after:
        end = state.finished.get(each.job)
        if end is None:
            found[each.job] = each.state
        elif not is_dependency_met(each.state, end):
            found[each.job] = NEVER
    return found or None


def is_dependency_met(wanted: str, end: str) -> bool:
    """Return True if this end of a job satisfies the wanted state."""
    return wanted == "ended" or wanted == end or (wanted == "failed" and end == "cancelled")


def wait_for_dependencies(state: QueueState, job: LiveJob, at: EventPosition) -> None:
    """Set the job to wait for other jobs, then for its start time, then in line."""
    if job.after:
        if NEVER in job.after.values():
            job.end = AttemptEnd(at.id, None)
            state.owe(job)
        else:
            job.wait = "jobs"
    elif job.start_at_ns > at.time_ns:
        state.wait_until(job, job.start_at_ns)
    else:
        state.wait_in_line(job)


def dependency_ended(state: QueueState, ended: str, end_state: str, at: EventPosition) -> None:
    """Let the jobs that waited for this one continue after its end, or mark them as never able to."""
    for job in state.dependents.of(ended):
        after = job.after
        assert after is not None
        if not is_dependency_met(after[ended], end_state):
            after[ended] = NEVER
        elif len(after) > 1:
            state.dependents.drop_one(job, ended)
            continue
        else:
            state.dependents.drop(job)
        if job.wait == "jobs":
            _go_on(state, job, at)


def _go_on(state: QueueState, job: LiveJob, at: EventPosition) -> None:
    if not job.after and job.start_at_ns > at.time_ns:
        state.wait_until(job, job.start_at_ns)
    else:
        job.end = AttemptEnd(at.id, None)
        state.owe(job)


def put_claim(state: QueueState, node: QueueNode, job: LiveJob) -> None:
    """Keep the free capacity under this node for the job."""
    lane = job.lane
    for other in (node.claim.holder if node.claim is not None else "", lane.claim):
        if other not in ("", job.id):
            drop_claims(state.jobs[other])
    node.claim = QuotaClaim(job.id, lane.leaf.node, lane.request_class.need, job.since_ns)
    lane.claim = job.id
    PoolState.forget_refusals(node)


def drop_claims(job: LiveJob) -> None:
    """Drop every claim of the job."""
    lane = job.lane
    if lane.claim != job.id:
        return
    lane.claim = ""
    for node in lane.leaf.node.up():
        if node.claim is not None and node.claim.holder == job.id:
            node.claim = None
    PoolState.forget_refusals(lane.leaf.node)


def lapse_claims(state: QueueState, pool: PoolState) -> None:
    """Drop the claims under limits whose holders cannot be offered as long as limits, capacity, budgets
    and holds are as they are."""
    for node in list(pool.tree.nodes.values()):
        if node.claim is None:
            continue
        job = state.jobs[node.claim.holder]
        leaf, need = job.lane.leaf, job.lane.request_class.need
        path = leaf.queue.path
        if (
            refusing_account(state.accounts, path)
            or state.closures.holding(path)
            or not pool.tree.can_ever_fit(leaf.node, need)
        ):
            drop_claims(job)


def give_up_claim(job: LiveJob) -> None:
    """Drop the job's claim: nothing is kept for the job, and no run need make room for it."""
    lane = job.lane
    if lane.claim == job.id:
        drop_claims(job)
    if lane.request_class.pool.claimant == job.id:
        lane.request_class.pool.claimant = ""
    job.asked, job.asks = "", 0


def renew_order(job: LiveJob, priority: int, *, place: int = -1, newest_first: bool | None = None) -> None:
    """Recompute the job's order with another priority, deadline or place (-1: the present one, counted as `newest_first`
    requires).
    """
    pool = job.lane.request_class.pool
    if place < 0:
        was = pool.sequencer.newest_first if newest_first is None else newest_first
        place = place_of(job.order, newest_first=was)
    offset = offset_of(job.order) if isinstance(job, Array) or job.parent is not None else 0
    job.order = pool.order(
        priority, place, offset, deadline_ns=job.deadline_ns, submitted_ns=job.submitted_ns, total_ns=job.total_ns
    )
