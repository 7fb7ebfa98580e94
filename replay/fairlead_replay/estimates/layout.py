"""A future of a long line, laid out in time: the pool as one machine, and so what each limit above the job allows. Pure.

Playing thousands of waiting jobs takes minutes; this takes milliseconds and knows nothing of nodes, of preemption or of
arrivals. The line starts in its order; a job that does not fit lets those behind it go first that do.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from fairlead_queue.explain.explain import ahead_of
from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob

#: Jobs of a line that are laid out.
LINE_MAX = 10_000
#: Kinds of jobs that are looked at each time something ends.
KINDS_MAX = 24

type Amounts = tuple[int, ...]
type LengthOf = Callable[[str], int | None]


class Line(NamedTuple):
    """A pool as one machine, and who waits there up to a job."""

    free: Amounts
    #: (job, what it holds)
    running: list[tuple[str, Amounts]]
    #: (job, what it needs), in the order of their turns, the job itself last.
    waiting: list[tuple[str, Amounts]]
    #: There are jobs ahead that were left out.
    more: bool


def line_of(state: QueueState, job: LiveJob) -> Line:
    """Return what a job of a pool waits for, reduced to resources that are short."""
    pool = job.lane.request_class.pool
    tree = pool.tree
    nodes: list[QueueNode] = [
        tree.root,
        *(each for each in job.lane.leaf.node.up() if each.bounded and each is not tree.root),
    ]
    places = {id(node): at for at, node in enumerate(nodes)}
    width = len(tree.capacity)

    def at_nodes(other: LiveJob, amounts: Sequence[int]) -> list[int]:
        found = [0] * (width * len(nodes))
        for node in other.lane.leaf.node.up():
            at = places.get(id(node))
            if at is not None:
                found[at * width : (at + 1) * width] = amounts
        return found

    free = [*tree.capacity, *(amount for node in nodes[1:] for amount in node.ceiling)]
    running: list[tuple[str, list[int]]] = []
    for queue in state.queues.values():
        if queue.pool is pool:
            for leaf in queue.leaves.values():
                for lane in leaf.lanes.values():
                    for run in lane.running.values():
                        held = at_nodes(run, pool.holds(run))
                        running.append((run.id, held))
                        free = [have - less for have, less in zip(free, held, strict=True)]
    ahead = ahead_of(state, job, LINE_MAX)
    waiting = [(other.id, at_nodes(other, other.lane.request_class.need)) for other in ahead.jobs if other is not job]
    waiting.append((job.id, at_nodes(job, job.lane.request_class.need)))
    wanted = [sum(each) for each in zip(*(need for _, need in waiting), strict=True)]
    short = [at for at, amount in enumerate(wanted) if amount > free[at] and amount]
    return Line(
        tuple(free[at] for at in short),
        [(id_, tuple(held[at] for at in short)) for id_, held in running],
        [(id_, tuple(need[at] for at in short)) for id_, need in waiting],
        ahead.more,
    )


def lay_out(line: Line, now_ns: int, end_of: LengthOf, length_of: LengthOf) -> int | None:
    """Return when the last job of a line starts; None: never. `end_of`: when a run ends (Unix ns; None: never); `length_of`: how
    long a waiting job runs (ns)."""
    free = list(line.free)
    ends = [(end_ns, held) for id_, held in line.running if (end_ns := end_of(id_)) is not None]
    heapify(ends)
    kinds: dict[Amounts, deque[tuple[int, str]]] = {}
    for place, (id_, need) in enumerate(line.waiting):
        kinds.setdefault(need, deque()).append((place, id_))
    last = len(line.waiting) - 1
    at_ns = now_ns
    while True:
        fitting = [
            (jobs[0][0], need)
            for need, jobs in kinds.items()
            if all(have >= more or not more for have, more in zip(free, need, strict=True))
        ]
        if fitting:
            need = min(fitting)[1]
            jobs = kinds[need]
            place, id_ = jobs.popleft()
            if place == last:
                return at_ns
            if not jobs:
                del kinds[need]
            free = [have - more for have, more in zip(free, need, strict=True)]
            length_ns = length_of(id_)
            if length_ns is not None:
                heappush(ends, (at_ns + max(1, length_ns), need))
            continue
        if not ends:
            return None
        at_ns = max(at_ns, ends[0][0])
        while ends and ends[0][0] <= at_ns:
            free = [have + more for have, more in zip(free, heappop(ends)[1], strict=True)]
