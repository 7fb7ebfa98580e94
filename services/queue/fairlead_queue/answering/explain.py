"""Why a job waits, in numbers, and the smallest changes that would start it now. Pure: the same gates that decide.

Whether the nodes have room in the right places only the placer can say; "could start" means that the job would be
offered at once and that its pool has as much left as it needs.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

from fairlead_queue.answering.ahead import ahead_of
from fairlead_queue.deciding.gates import Closed
from fairlead_queue.deciding.turns import Turns
from fairlead_queue.fairness.tree import Amounts, Node, Refusal
from fairlead_queue.fairness.users import user_of
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.lanes import Lane, Queue
from fairlead_schemas.ask import Change, Explanation
from fairlead_schemas.queuewords import counted, is_are, number

#: Jobs ahead that are counted, and those that are named.
AHEAD_MAX = 10_000
NAMED_MAX = 10
#: Other queues that are looked at and named.
QUEUES_MAX = 200
OTHERS_MAX = 3


def explain(state: State, job: Job) -> Explanation:
    """Why this live job is where it is, as far as the queue goes."""
    if job.open:
        return _offered(state, job)
    if job.wait not in ("line", "returned"):
        return Explanation(reason="")
    lane = job.lane
    closed = gate(state, lane)
    if job.wait == "returned" and closed is None:
        message = "it fitted nowhere, and its quota went to others; it has its turn again when capacity or limits have changed"
        return Explanation(reason="place", message=message, changes=tuple(for_place(job)))
    ahead = ahead_of(state, job, AHEAD_MAX).jobs if job.wait == "line" else []
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes: list[Change] = []
    if closed is None:
        message = "it is next" if not ahead else f"{_jobs(len(ahead))} before it"
        reason = "next" if not ahead else "turn"
    else:
        reason, message = closed.reason, _message(closed)
        numbers |= _numbers(closed)
        if closed.refusal is not None:
            changes = list(_changes(state, job, closed.refusal, closed.queue))
        elif reason == "turn":
            message = f"the placer has as many offers as it looks ahead over; {_jobs(len(ahead))} before it"
    return Explanation(
        reason=reason, message=message, numbers=numbers, changes=tuple(changes), ahead=len(ahead),
        first_ahead=tuple(other.id for other in ahead[:NAMED_MAX]),
    )  # fmt: skip


def gate(state: State, lane: Lane) -> Closed | None:
    """Which gate is closed for the lane's jobs now; None: they could be offered."""
    turns = Turns(state, lane.klass.pool)
    turns.pool.forget_refused()
    return turns.gates.closed(lane)


def _offered(state: State, job: Job) -> Explanation:
    ahead = ahead_of(state, job, AHEAD_MAX).jobs
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes = list(for_place(job))
    message = f"it has its turn and waits for a place; {_jobs(len(ahead))} before it"
    if job.yielders:
        numbers["asked_to_yield"] = job.yielders
        asked = "1 job was" if job.yielders == 1 else f"{job.yielders} jobs were"
        message += f"; {asked} asked to yield to it"
    return Explanation(
        reason="place", message=message, numbers=numbers, changes=tuple(changes), ahead=len(ahead),
        first_ahead=tuple(other.id for other in ahead[:NAMED_MAX]),
    )  # fmt: skip


def _jobs(count: int) -> str:
    if count >= AHEAD_MAX:
        return f"{AHEAD_MAX} jobs or more are"
    return "1 job is" if count == 1 else f"{count} jobs are"


# ---------------------------------------------------------------------------------------- words


def _message(closed: Closed) -> str:
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


def _numbers(closed: Closed) -> dict[str, int | str]:
    refusal = closed.refusal
    if refusal is None:
        return {"queue": closed.queue} if closed.queue else {}
    numbers: dict[str, int | str] = {
        "queue": closed.queue, "resource": refusal.resource, "held": refusal.held, "needed": refusal.needed,
        "ceiling": refusal.ceiling,
    }  # fmt: skip
    if refusal.holder:
        numbers["holder"] = refusal.holder
    return numbers


# ---------------------------------------------------------------------------------------- what would change it


def _changes(state: State, job: Job, refusal: Refusal, queue: str) -> Iterator[Change]:
    resource, over = refusal.resource, refusal.held + refusal.needed - refusal.ceiling
    if refusal.needed <= refusal.ceiling and refusal.kind != "claimed":
        whose = f"{user_of(refusal.node)} in {queue}" if refusal.kind == "user_limit" else queue or "the pool"
        message = f"starts when {counted(resource, over)} of {whose} {is_are(resource, over)} given back"
        yield Change(kind="wait", message=message, queue=queue, resource=resource, amount=over)
    yield from smaller(job)
    yield from _elsewhere(state, job)
    if refusal.kind == "maximum" and _has_room(job.lane.klass.pool.tree.root, job.lane.klass.need, job):
        most = refusal.ceiling + over
        yield Change(
            kind="quota", message=f"could start now if {queue} might hold {counted(resource, most)}", queue=queue,
            resource=resource, amount=most,
        )  # fmt: skip


def smaller(job: Job) -> Iterator[Change]:
    """Fewer GPUs with which the limits and the pool's room would do."""
    klass, leaf = job.lane.klass, job.lane.leaf
    request = klass.request
    gpus = request.gpu_milli // 1000
    for fewer in range(gpus - 1, 0, -1):
        asked = msgspec.structs.replace(request, gpu_milli=fewer * 1000)
        need = klass.pool.need(asked).amounts
        if klass.pool.tree.refusal(leaf.node, need) is None and _has_room(klass.pool.tree.root, need, job):
            each = " on each node" if request.nodes > 1 else ""
            message = f"could start now with {fewer} GPU{'' if fewer == 1 else 's'} instead of {gpus}{each}"
            yield Change(kind="smaller", message=message, resource="gpu", amount=fewer * 1000)
            return


def for_place(job: Job) -> Iterator[Change]:
    """What a job that has its turn waits for."""
    request = job.lane.klass.request
    if request.gpu_milli:
        nodes = f"each of {request.nodes} nodes" if request.nodes > 1 else "one node"
        free = f"{counted('gpu', request.gpu_milli)} {is_are('gpu', request.gpu_milli)} free on {nodes}"
        yield Change(kind="wait", message=f"starts when {free}", resource="gpu", amount=request.gpu_milli_total)
    yield from smaller(job)


def _has_room(root: Node, need: Amounts, job: Job) -> bool:
    """Whether the pool as a whole has that much that nobody holds."""
    pool = job.lane.klass.pool
    if not pool.is_known():
        return True
    for at, more in enumerate(need):
        offered = sum(other.lane.klass.need[at] for other in pool.offers.values())
        if more and root.usage[at] - offered + more > pool.tree.capacity[at]:
            return False
    return True


def _elsewhere(state: State, job: Job) -> Iterator[Change]:
    """Other queues of the pool under whose limits it would come now."""
    pool, need = job.lane.klass.pool, job.lane.klass.need
    if not _has_room(pool.tree.root, need, job):
        return
    named = 0
    for path, queue in islice(sorted(state.queues.items()), QUEUES_MAX):
        if queue.pool is not pool or queue is job.lane.leaf.queue or not _takes_jobs(queue):
            continue
        node = _node_for(queue, job.user)
        if node is not None and pool.tree.refusal(node, need) is None:
            named += 1
            yield Change(kind="other_queue", message=f"could start now in queue {path}", queue=path)
            if named == OTHERS_MAX:
                return


def _takes_jobs(queue: Queue) -> bool:
    return not queue.node.children or bool(queue.settings.users)


def _node_for(queue: Queue, user: str) -> Node | None:
    """Where a user's job would be charged; None where it would be the user's first in a queue that limits users."""
    if not queue.settings.users:
        return queue.node
    leaf = queue.leaves.get(user)
    return leaf.node if leaf is not None else None
