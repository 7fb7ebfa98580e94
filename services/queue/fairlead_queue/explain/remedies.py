"""Smallest changes that would each, alone, start a waiting job. Pure; the state is afterwards as it was before.

A limit is seldom alone: another may follow behind the one that refuses, and jobs ahead would take the resources that
come free. So every limit in the way is found with the gates' own check. The check lifts one limit after the other, with
the jobs ahead charged. The explanation covers all limits together.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from fairlead_queue.decide.admission import spent_budget, unnamed_model_refusal
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.explain.jobs_ahead import AHEAD_MAX
from fairlead_queue.fairness.quota import queue_of, user_of
from fairlead_queue.fairness.tree import Amounts, LimitRefusal, QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array, LiveJob, LiveQueue
from fairlead_schemas.queries.explainer import SuggestedChange
from fairlead_schemas.queuefile.amounts import counted, is_are
from fairlead_schemas.wire.resource_requests import gpus, places

#: Other queues that are looked at and named.
QUEUES_MAX = 200
OTHERS_MAX = 3


def limit_remedies(
    state: QueueState, job: LiveJob, refusal: LimitRefusal, ahead: Sequence[LiveJob]
) -> Iterator[SuggestedChange]:
    """For a job that a limit refuses; `ahead`: who gets a turn before it, were it not for that limit."""
    before, lacks, room = _in_the_way(job, refusal, ahead)
    if all(lack.kind != "claimed" and lack.needed <= lack.ceiling for lack in (*lacks, *room)):
        # With others before it the pool is short of what they will have, too, and gets it back from them.
        yield _wait(lacks if before else [*lacks, *room], before, job.lane.request_class.pool.resources)
    yield from smaller_request(job)
    yield from _elsewhere(state, job)
    if not room and all(lack.kind == "maximum" for lack in lacks):
        yield _quota(state, lacks, before)


def _in_the_way(
    job: LiveJob, refusal: LimitRefusal, ahead: Sequence[LiveJob]
) -> tuple[int, list[LimitRefusal], list[LimitRefusal]]:
    """Return (the number of jobs that would take resources that come free first; every limit that refuses the job after them;
    the resources that the pool lacks).
    """
    pool, top = job.lane.request_class.pool, refusal.node
    while True:
        # A limit that is lifted is lifted for all below it.
        before = [other for other in ahead if not other.open and top in other.lane.leaf.node.up()]
        with _charged(before):
            lacks = _lacks(job)
            room = list(_short(pool.tree.root, job.lane.request_class.need, job))
        last = lacks[-1].node
        if last is top or last not in top.up():
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


# ---------------------------------------------------------------------------------------- in words


def _over(lack: LimitRefusal) -> int:
    return lack.held + lack.needed - lack.ceiling


def _wait(lacks: Sequence[LimitRefusal], before: int, resources: Sequence[str]) -> SuggestedChange:
    """Return the change that must come free. With other jobs ahead, that is the job's whole need, for resources that come free
    first are theirs.
    """
    first = lacks[0]
    told: dict[tuple[QueueNode, bool], list[LimitRefusal]] = {}
    for lack in lacks:
        if before or not _comes_with(lack, lacks):
            kept = not before and lack.held > lack.node.usage[resources.index(lack.resource)]
            told.setdefault((lack.node, kept), []).append(lack)
    clauses = [_clause(parts, before, kept) for (_, kept), parts in told.items()]
    then = ""
    if before:
        verb = is_are(first.resource, first.needed) if len(lacks) == 1 else "are"
        then = f" {verb} left by {_before(before)}"
    return SuggestedChange(
        kind="wait",
        message=f"starts when {' and '.join(clauses)}{then}",
        queue=queue_of(first.node),
        resource=first.resource,
        amount=_missing(first, before),
    )


def _missing(lack: LimitRefusal, before: int) -> int:
    return lack.needed if before else _over(lack)


def _clause(parts: Sequence[LimitRefusal], before: int, kept: bool) -> str:
    """ "4 GPUs and 6 CPUs of research are given back". `kept`: what is given back might be kept for others."""
    first = parts[0]
    amounts = " and ".join(counted(part.resource, _missing(part, before)) for part in parts)
    whose = _whose(first.node)
    if before:
        return f"{amounts} of {whose}"
    verb = "are" if len(parts) > 1 else is_are(first.resource, _missing(first, before))
    return f"{amounts} more of {whose} {verb} left to lend" if kept else f"{amounts} of {whose} {verb} given back"


def _comes_with(lack: LimitRefusal, lacks: Sequence[LimitRefusal]) -> bool:
    """Return True if giving back another lack also gives back this one: usage freed in a queue is freed in the queues above it,
    too.
    """
    return any(
        other.node is not lack.node
        and lack.node in other.node.up()
        and other.resource == lack.resource
        and _over(other) >= _over(lack)
        for other in lacks
    )


def _whose(node: QueueNode) -> str:
    queue, user = queue_of(node), user_of(node)
    return f"{user} in {queue}" if user else queue or "the pool"


def _before(count: int) -> str:
    if count >= AHEAD_MAX:
        return f"the {AHEAD_MAX} jobs or more before it"
    return "the job before it" if count == 1 else f"the {count} jobs before it"


def _quota(state: QueueState, lacks: Sequence[LimitRefusal], before: int) -> SuggestedChange:
    """Each limit raised by as little as would do, for those before the job, too."""
    told = " and ".join(_raised(state, lack) for lack in lacks) + (f", with {_before(before)}" if before else "")
    first = lacks[0]
    return SuggestedChange(
        kind="quota",
        message=f"could start now if {told}",
        queue=queue_of(first.node),
        resource=first.resource,
        amount=first.held + first.needed,
    )


def _raised(state: QueueState, lack: LimitRefusal) -> str:
    """A queue's maximum, its borrowing limit, or both: whichever is too low."""
    queue, most = queue_of(lack.node), lack.held + lack.needed
    at = state.queues[queue].pool.resources.index(lack.resource)
    settings = state.queues[queue].settings
    words: list[str] = []
    if settings.maximum.get(lack.resource, most) < most:
        words.append(f"hold {counted(lack.resource, most)}")
    borrowed = most - lack.node.guaranteed[at]
    if settings.borrowing.get(lack.resource, borrowed) < borrowed:
        words.append(f"borrow {counted(lack.resource, borrowed)}")
    return f"{queue} might {' and '.join(words)}"


# ---------------------------------------------------------------------------------------- less, or elsewhere


def smaller_request(job: LiveJob) -> Iterator[SuggestedChange]:
    """Fewer GPUs with which the limits and the pool's room would do."""
    request_class, leaf = job.lane.request_class, job.lane.leaf
    request = request_class.request
    whole = 0 if request.gpu_parts or request.also else request.gpu_milli // 1000
    for fewer in range(whole - 1, 0, -1):
        asked = msgspec.structs.replace(request, gpu_milli=fewer * 1000)
        need = request_class.pool.need(asked).amounts
        with _charged([job] if job.open else [], -1):  # what an open offer holds is its own
            refused = request_class.pool.tree.refusal(leaf.node, need)
        if refused is None and _has_room(request_class.pool.tree.root, need, job):
            each = f" {'for each task' if request.tasks else 'on each node'}" if request.nodes > 1 else ""
            message = f"could start now with {fewer} GPU{'' if fewer == 1 else 's'} instead of {whole}{each}"
            yield SuggestedChange(kind="smaller", message=message, resource="gpu", amount=fewer * 1000)
            return


def placement_remedies(job: LiveJob) -> Iterator[SuggestedChange]:
    """Yield the changes that a job with its turn waits for."""
    request = job.lane.request_class.request
    if request.gpu_milli:
        verb = is_are("gpu", request.gpu_milli if not request.gpu_parts else request.gpu_parts * 1000)
        free = f"{gpus(request)} {verb} free {places(request, tasks=request.tasks)}"
        yield SuggestedChange(
            kind="wait", message=f"starts when {free}", resource="gpu", amount=request.gpu_milli_total
        )
    yield from smaller_request(job)


def _has_room(root: QueueNode, need: Amounts, job: LiveJob) -> bool:
    """Return True if the pool as a whole has that much free."""
    return not any(_short(root, need, job))


def _short(root: QueueNode, need: Amounts, job: LiveJob) -> Iterator[LimitRefusal]:
    """Yield a refusal for each resource of which the pool as a whole has too little, apart from the amounts of open offers."""
    pool = job.lane.request_class.pool
    for at, more in enumerate(need) if pool.is_known() else ():
        held = root.usage[at] - sum(other.lane.request_class.need[at] for other in pool.offers.values())
        if more and held + more > pool.tree.capacity[at]:
            yield LimitRefusal(root, pool.resources[at], held, more, pool.tree.capacity[at])


def _elsewhere(state: QueueState, job: LiveJob) -> Iterator[SuggestedChange]:
    """Other queues of the pool to which it could be moved, and under whose limits it would come now."""
    pool, need, plan = job.lane.request_class.pool, job.lane.request_class.need, QueueDraft(state, state.at_ns, 0)
    has_begun = job.parent is not None or (isinstance(job, Array) and job.live)
    if has_begun or not _has_room(pool.tree.root, need, job):
        return
    named = 0
    for path, queue in islice(sorted(state.queues.items()), QUEUES_MAX):
        if queue.pool is not pool or queue is job.lane.leaf.queue or not _takes_jobs(queue):
            continue
        node = _node_for(queue, job.user)
        if node is None or pool.tree.refusal(node, need) is not None:
            continue
        if spent_budget(plan, path) or unnamed_model_refusal(plan, path, job.lane.request_class.request):
            continue
        named += 1
        yield SuggestedChange(kind="other_queue", message=f"could start now in queue {path}", queue=path)
        if named == OTHERS_MAX:
            return


def _takes_jobs(queue: LiveQueue) -> bool:
    return not queue.node.children or bool(queue.settings.users)


def _node_for(queue: LiveQueue, user: str) -> QueueNode | None:
    """Return the node that a user's job would be charged to; None where it would be the user's first in a queue that limits
    users.
    """
    if not queue.settings.users:
        return queue.node
    leaf = queue.leaves.get(user)
    return leaf.node if leaf is not None else None
