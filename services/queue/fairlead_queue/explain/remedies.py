"""Smallest changes that would each, alone, start a waiting job. Pure; the state is afterwards as it was before.

A limit is seldom alone: another may follow behind the one that refuses, and jobs ahead would take the resources that
come free. So every limit in the way is found with the gates' own check. The check lifts one limit after the other, with
the jobs ahead charged. The explanation covers all limits together.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from fairlead_queue.decide.admission import drained_refusal, spent_budget, unnamed_model_refusal
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.fairness.quota import queue_of, user_of
from fairlead_queue.fairness.tree import Amounts, LimitRefusal, QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array, LiveJob
from fairlead_schemas.queries.explainer import MissingAmount, PossibleChange, RaisedLimit

#: Other queues that are looked at and named.
QUEUES_MAX = 200
OTHERS_MAX = 3


def limit_remedies(
    state: QueueState, job: LiveJob, refusal: LimitRefusal, ahead: Sequence[LiveJob]
) -> Iterator[PossibleChange]:
    """Yield the changes for a job that a limit refuses. `ahead`: the jobs that would get a turn before it without that limit."""
    before, lacks, room = _in_the_way(job, refusal, ahead)
    if all(lack.kind != "claimed" and lack.needed <= lack.ceiling for lack in (*lacks, *room)):
        # With others before it the pool is short of what they will have, too, and gets it back from them.
        yield _wait(lacks if before else [*lacks, *room], before, job.lane.request_class.pool.resources)
    yield from smaller_request(job)
    yield from _elsewhere(state, job)
    if not room and all(lack.kind == "maximum" for lack in lacks):
        yield PossibleChange(kind="quota", raised=tuple(_raised(state, lack) for lack in lacks), before=before)


def _in_the_way(
    job: LiveJob, refusal: LimitRefusal, ahead: Sequence[LiveJob]
) -> tuple[int, list[LimitRefusal], list[LimitRefusal]]:
    """Return (the number of jobs that would take resources that come free first; every limit that refuses the job after them;
    the resources that the pool lacks).
    """
    top = refusal.node
    while True:
        # A limit that is lifted is lifted for all below it.
        before = [other for other in ahead if not other.open and other.lane.leaf.node.is_within(top)]
        with _charged(before):
            lacks = _lacks(job)
            room = list(_short(job, job.lane.request_class.need))
        last = lacks[-1].node
        if last is top or not top.is_within(last):
            return len(before), lacks, room
        top = last


@contextmanager
def _charged(jobs: Sequence[LiveJob], times: int = 1) -> Generator[None]:
    """Charge the jobs as if they had had their turns (`times` -1: as if they had not) within the context."""
    for job in jobs:
        job.lane.request_class.pool.charge(job.lane, times)
    try:
        yield
    finally:
        for job in jobs:
            job.lane.request_class.pool.charge(job.lane, -times)


def _lacks(job: LiveJob) -> list[LimitRefusal]:
    """Everything that refuses it, from its own queue up; a claim, or what is reserved at the root, ends the list."""
    lane = job.lane
    tree = lane.request_class.pool.tree
    since = job.since_ns if lane.claim else 0
    lifted: list[tuple[QueueNode, int, int]] = []
    found: list[LimitRefusal] = []
    try:
        while (
            lack := tree.refusal(lane.leaf.node, lane.request_class.need, holder=lane.claim, since=since)
        ) is not None:
            found.append(lack)
            if lack.kind == "claimed" or lack.node.parent is None:
                break
            at = tree.resources.index(lack.resource)
            lifted.append((lack.node, at, lack.node.ceiling[at]))
            lack.node.ceiling[at] = lack.held + lack.needed
    finally:
        for node, at, ceiling in reversed(lifted):
            node.ceiling[at] = ceiling
    return found


def _wait(lacks: Sequence[LimitRefusal], before: int, resources: Sequence[str]) -> PossibleChange:
    """Return the change that must come free. With other jobs ahead, that is the job's whole need, for resources that come free
    first are theirs.
    """
    short = [
        MissingAmount(
            queue=queue_of(lack.node),
            user=user_of(lack.node),
            resource=lack.resource,
            amount=lack.needed if before else _over(lack),
            lent=not before and lack.held > lack.node.usage[resources.index(lack.resource)],
        )
        for lack in lacks
        if before or not _comes_with(lack, lacks)
    ]
    return PossibleChange(kind="wait", short=tuple(short), before=before)


def _over(lack: LimitRefusal) -> int:
    return lack.held + lack.needed - lack.ceiling


def _comes_with(lack: LimitRefusal, lacks: Sequence[LimitRefusal]) -> bool:
    """Return True if giving back another lack also gives back this one: usage freed in a queue is freed in the queues above it,
    too.
    """
    return any(
        other.node is not lack.node
        and other.node.is_within(lack.node)
        and other.resource == lack.resource
        and _over(other) >= _over(lack)
        for other in lacks
    )


def _raised(state: QueueState, lack: LimitRefusal) -> RaisedLimit:
    """Raise a queue's maximum, its borrowing limit, or both, by as little as would do: whichever is too low."""
    queue, resource, most = queue_of(lack.node), lack.resource, lack.held + lack.needed
    settings = state.queues[queue].settings
    borrowed = most - lack.node.guaranteed[state.queues[queue].pool.resources.index(resource)]
    return RaisedLimit(
        queue=queue,
        resource=resource,
        use=most,
        maximum=most if settings.maximum.get(resource, most) < most else 0,
        borrowing=borrowed if settings.borrowing.get(resource, borrowed) < borrowed else 0,
    )


# ---------------------------------------------------------------------------------------- less, or elsewhere


def smaller_request(job: LiveJob) -> Iterator[PossibleChange]:
    """Yield the most GPUs with which the limits and the pool's room would do."""
    klass, leaf = job.lane.request_class, job.lane.leaf
    request = klass.request
    whole = 0 if request.gpu_parts or request.also else request.gpu_milli // 1000
    for fewer in range(whole - 1, 0, -1):
        need = klass.pool.need(msgspec.structs.replace(request, gpu_milli=fewer * 1000)).amounts
        with _charged([job] if job.open else [], -1):  # what an open offer holds is its own
            refused = klass.pool.tree.refusal(leaf.node, need)
        if refused is None and not any(_short(job, need)):
            yield PossibleChange(kind="smaller", gpu_milli=fewer * 1000)
            return


def _short(job: LiveJob, need: Amounts) -> Iterator[LimitRefusal]:
    """Yield a refusal for each resource of which the job's pool as a whole has too little, apart from the amounts of open
    offers.
    """
    pool = job.lane.request_class.pool
    root = pool.tree.root
    for at, more in enumerate(need) if pool.is_known() else ():
        held = root.usage[at] - sum(other.lane.request_class.need[at] for other in pool.offers.values())
        if more and held + more > pool.tree.capacity[at]:
            yield LimitRefusal(root, pool.resources[at], held, more, pool.tree.capacity[at])


def _elsewhere(state: QueueState, job: LiveJob) -> Iterator[PossibleChange]:
    """Yield other queues of the pool to which it could be moved, and under whose limits it would come now."""
    need = job.lane.request_class.need
    has_begun = job.parent is not None or (isinstance(job, Array) and job.live)
    if not has_begun and not any(_short(job, need)):
        paths = (path for path in islice(sorted(state.queues), QUEUES_MAX) if _would_take(state, path, job))
        yield from (PossibleChange(kind="other_queue", queue=path) for path in islice(paths, OTHERS_MAX))


def _would_take(state: QueueState, path: str, job: LiveJob) -> bool:
    """Return True if a queue's limits and budgets would take the job now. A queue that limits users counts only if it has
    jobs of the job's user already.
    """
    queue, lane, users = state.queues[path], job.lane, state.queues[path].settings.users
    leaf = queue.leaves.get(job.user)
    node = queue.node if not users else leaf.node if leaf is not None else None
    if queue.pool is not lane.request_class.pool or queue is lane.leaf.queue or node is None:
        return False
    if (queue.node.children and not users) or queue.pool.tree.refusal(node, lane.request_class.need) is not None:
        return False
    plan = QueueDraft(state, state.at_ns, 0)
    closed = state.closures.holding(path) or drained_refusal(plan, path) or spent_budget(plan, path)
    return not (closed or unnamed_model_refusal(plan, path, lane.request_class.request))
