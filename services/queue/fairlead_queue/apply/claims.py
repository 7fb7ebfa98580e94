"""Capacity kept free for a waiting job: quota under a limit, or (`Pool.claimant`) a place. Called by `evolve` only.

One job at a time claims under a limit. If two block each other (one under a limit of a limit), the job that has waited
longer goes first. A lane's jobs are alike, so one of them claims at a time; a job ahead of it in the lane takes the
claim over.
"""

from fairlead_queue.fairness.tree import Claim, Node
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.pools import Pool


def put(state: State, node: Node, job: Job) -> None:
    """Keep the free capacity under this node for the job."""
    lane = job.lane
    for other in (node.claim.holder if node.claim is not None else "", lane.claim):
        if other not in ("", job.id):
            drop(state.jobs[other])
    node.claim = Claim(job.id, lane.leaf.node, lane.klass.need, job.since_ns)
    lane.claim = job.id
    Pool.forget_refusals(node)


def drop(job: Job) -> None:
    """Nothing is kept for the job under any limit."""
    lane = job.lane
    if lane.claim != job.id:
        return
    lane.claim = ""
    for node in lane.leaf.node.up():
        if node.claim is not None and node.claim.holder == job.id:
            node.claim = None
    Pool.forget_refusals(lane.leaf.node)


def give_up(job: Job) -> None:
    """Drop the job's claim: nothing is kept for the job, and no run need make room for it."""
    lane = job.lane
    if lane.claim == job.id:
        drop(job)
    if lane.klass.pool.claimant == job.id:
        lane.klass.pool.claimant = ""
    job.asked, job.asks = "", 0
