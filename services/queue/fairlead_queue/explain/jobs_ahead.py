"""Jobs that come before a job in the order of its pool, whatever limits hold it back. Pure; the state is afterwards as it
was before.
"""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from fairlead_queue.decide.turns import Turns
from fairlead_queue.fairness.tree import UNLIMITED
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob

#: Jobs ahead that are counted.
AHEAD_MAX = 10_000


class JobsAhead(NamedTuple):
    """Jobs ahead, in the order of their turns. `more` is True if there are others that were not counted."""

    jobs: list[LiveJob]
    more: bool


def ahead_of(state: QueueState, job: LiveJob, most: int) -> JobsAhead:
    """Open offers, then those in line who get their turn before it: `most` of these at most."""
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
    """A limit that is in its way is in the way of others, too: without them all have their turns, in order."""
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
