"""Explanation of a job's wait, in numbers, by the same gates that decide. Pure; the state is afterwards as it was before.

Only the placer knows if the nodes have room in the right places. "Could start" means that the job would be offered at
once and that its pool has as much left as it needs.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from fairlead_queue.decide.gates import ClosedGate, Gates
from fairlead_queue.decide.turns import Turns
from fairlead_queue.explain.remedies import limit_remedies, smaller_request
from fairlead_queue.fairness.tree import UNLIMITED
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Lane, LiveJob
from fairlead_schemas.queries.explainer import AHEAD_MAX, Explanation, PossibleChange

#: Jobs ahead that are named.
NAMED_MAX = 10


def explain(state: QueueState, job: LiveJob) -> Explanation:
    """Explain the present state of this live job from the queue's side."""
    if not job.open and job.wait not in ("line", "returned"):
        return Explanation(reason="")
    closed = None if job.open else closed_gate(state, job.lane)
    ahead = ahead_of(state, job, AHEAD_MAX).jobs if job.open or job.wait == "line" else []
    changes: Iterable[PossibleChange] = ()
    reason = "turn" if ahead else "next"
    if closed is not None:
        reason = closed.reason
        if closed.refusal is not None:
            changes = limit_remedies(state, job, closed.refusal, ahead)
    elif job.open or job.wait == "returned":
        reason, changes = "place", smaller_request(job)
    return Explanation(
        reason=reason,
        limit=closed.limit if closed is not None else None,
        changes=tuple(changes),
        ahead=len(ahead),
        # An array is named once, however many of its elements go before.
        first_ahead=tuple(islice(dict.fromkeys(other.id for other in ahead), NAMED_MAX)),
    )


def closed_gate(state: QueueState, lane: Lane) -> ClosedGate | None:
    """Return the gate that is closed for the lane's jobs now; None if they could be offered."""
    gates = Gates(state, lane.request_class.pool)
    gates.pool.forget_refused()
    return gates.closed(lane)


class JobsAhead(NamedTuple):
    """Jobs ahead, in the order of their turns. `more` is True if there are others that were not counted."""

    jobs: list[LiveJob]
    more: bool


def ahead_of(state: QueueState, job: LiveJob, most: int) -> JobsAhead:
    """Return the jobs before a job in the order of its pool, whatever limits hold it back: the open offers, then at most `most`
    of those in line.
    """
    pool = job.lane.request_class.pool
    offers = sorted(pool.offers.values(), key=lambda other: other.rank)
    if job.open:
        return JobsAhead([other for other in offers if other.rank < job.rank], False)
    with _without_its_limits(job), state.speculating():
        turns = Turns(state, pool, unbounded=True)
        for _, candidate in islice(iter(turns.next, None), most + 1):
            if candidate.job is job:
                return JobsAhead(offers, False)
            offers.append(candidate.job)
    return JobsAhead(offers, True)


@contextmanager
def _without_its_limits(job: LiveJob) -> Generator[None]:
    """Lift the limits above the job within the context. A limit in its way is in the way of others, too: without them all
    have their turns, in order.
    """
    nodes = list(job.lane.leaf.node.up())
    limits = [(node.ceiling, node.bounded) for node in nodes]
    pool = job.lane.request_class.pool
    pool.forget_refused()
    for node in nodes:
        node.ceiling, node.bounded = [UNLIMITED] * len(node.ceiling), False
    try:
        yield
    finally:
        for node, (ceiling, bounded) in zip(nodes, limits, strict=True):
            node.ceiling, node.bounded = ceiling, bounded
        pool.forget_refused()
