"""Rebuild of a pool from its settings and its jobs, after a change of its vectors, its sequencer or the separation of
users.

Outcomes recorded for a lane, and claims, are kept where they still have a meaning. Past usage stays with the queue.

The limits of queues as the tree gets them: from the settings, what those below are guaranteed, and spent budgets.
Called by `evolve` only.
"""

from collections.abc import Iterator, Mapping

from fairlead_queue.apply import waiting_jobs
from fairlead_queue.apply.waiting_jobs import renew_order
from fairlead_queue.fairness import quota
from fairlead_queue.fairness.quota import queue_limits
from fairlead_queue.fairness.tree import Limits, QueueNode
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array, Deferral, Lane, LiveQueue, PoolState
from fairlead_schemas.queuefile.settings import RESOURCES, QueueSettings
from fairlead_schemas.wire.lifecycle import CHARGED_STATES

#: A demoted queue comes behind its siblings, whatever they are guaranteed and whether or not they can use anything now.
DEMOTION = 1 << 22


class _Settings(Mapping[str, QueueSettings]):
    """{path: settings} of the queues as they are."""

    def __init__(self, state: QueueState) -> None:
        self.queues = state.queues

    def __getitem__(self, path: str) -> QueueSettings:
        return self.queues[path].settings

    def __iter__(self) -> Iterator[str]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)


class _Below(Mapping[str, list[str]]):
    """{path: paths directly below it}; as little of it as is asked for."""

    def __init__(self, state: QueueState) -> None:
        self.queues = state.queues

    def __getitem__(self, path: str) -> list[str]:
        children = self.queues[path].node.children.values()
        return sorted(child.path for child in children if not quota.is_user_node(child))

    def __iter__(self) -> Iterator[str]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)


def current_limits(state: QueueState, path: str) -> Limits:
    """Return the limits of a queue for the tree."""
    limits = queue_limits(_Settings(state), _Below(state), path)
    account = state.accounts.get(path)
    if account is None or not account.is_spent("demote"):
        return limits
    return limits._replace(priority=limits.priority - DEMOTION)


def limit_upwards(state: QueueState, path: str) -> None:
    """Limits of a queue and of those above it, whose guarantee may be the sum of theirs."""
    while path:
        queue = state.queues[path]
        queue.pool.tree.limit(queue.node, current_limits(state, path))
        path = path.rpartition("/")[0]


def limit_users(queue: LiveQueue) -> None:
    """Limits of the users that the queue tells apart."""
    for leaf in queue.leaves.values():
        if leaf.user:
            queue.pool.tree.limit(leaf.node, quota.user_limits(queue.settings, leaf.user))


def resources_of(state: QueueState, pool: PoolState) -> tuple[str, ...]:
    """The resources that some queue of the pool limits or is guaranteed, the ordinary three first."""
    named: set[str] = set()
    for queue in state.queues.values():
        if queue.pool is pool:
            named |= resources_in(queue.settings)
    return (*RESOURCES, *sorted(named.difference(RESOURCES)))


def resources_in(settings: QueueSettings) -> set[str]:
    """Return the resources that one queue's settings name."""
    named: set[str] = set()
    named.update(settings.guaranteed, settings.maximum, settings.borrowing, settings.lending)
    for amounts in settings.users.values():
        named.update(amounts)
    return named


def measure_capacity(state: QueueState, pool: PoolState) -> None:
    """The pool's capacity, from the nodes that are in it."""
    totals = dict.fromkeys(pool.resources, 0)
    for shape, count in state.nodes.count(pool.name).items():
        totals["gpu"] += count * shape.gpu_milli
        totals["cpu"] += count * shape.cpu_milli
        totals["memory"] += count * shape.memory_mib
        model = f"gpu:{shape.model}"
        if model in totals:
            totals[model] += count * shape.gpu_milli
    pool.tree.capacity = [totals[name] for name in pool.resources]
    pool.forget_all()


def rebuild_pool(state: QueueState, pool: PoolState) -> None:
    """A new tree from the settings and the jobs."""
    past = pool.past
    claimed = {node.path: node.claim.holder for node in pool.tree.nodes.values() if node.claim is not None}
    was = pool.sequencer
    pool.shape(resources_of(state, pool))
    measure_capacity(state, pool)
    for path, queue in sorted(state.queues.items()):
        if queue.pool is pool:
            queue.node = pool.tree.add(path)
            queue.leaves = {}
    for path, queue in sorted(state.queues.items()):
        if queue.pool is pool:
            pool.tree.limit(queue.node, current_limits(state, path))
    pool.waiting = 0
    for request_class in pool.classes.values():
        request_class.measure()
        request_class.waiting = 0
    if (was.newest_first, was.stretch) != (pool.sequencer.newest_first, pool.sequencer.stretch):
        _renew_orders(state, pool, newest_first=was.newest_first)
    _relane(state, pool)
    if pool.past is not None:
        pool.past.begin(state.at_ns)
        if past is not None:
            pool.past.take_over(past, lambda path: heir_of(state, pool, path), state.at_ns)
        for node in pool.tree.nodes.values():
            if node.leaf is not None and any(node.usage):
                pool.past.settle(node, state.at_ns)
    for path, holder in sorted(claimed.items()):
        node, job = pool.tree.nodes.get(path), state.jobs[holder]
        if node is not None:
            waiting_jobs.put_claim(state, node, job)


def heir_of(state: QueueState, pool: PoolState, path: str) -> QueueNode | None:
    """Return the node that now holds the usage recorded at a path of the former tree; None if the path has left the pool.

    Only a leaf of the tree may have a past of its own. Usage from before a queue's users were separated, or before there
    were queues below it, therefore stays below the queue under a user without a name.
    """
    above, user = quota.split_user(path)
    queue = state.queues.get(above)
    if queue is None or queue.pool is not pool:
        return None
    if queue.settings.users:
        return pool.tree.nodes.get(path) or pool.tree.add(
            quota.user_path(above, user), quota.user_limits(queue.settings, user)
        )
    is_inner = any(not quota.is_user_node(child) for child in queue.node.children.values())
    return pool.tree.add(quota.user_path(above, "")) if is_inner else queue.node


def _renew_orders(state: QueueState, pool: PoolState, *, newest_first: bool) -> None:
    """Place every job of the pool by the new sequencer; its lines are rebuilt afterwards."""
    for job in state.jobs.values():
        if job.lane.request_class.pool is pool:
            renew_order(job, priority_of(job.order), newest_first=newest_first)


def _relane(state: QueueState, pool: PoolState) -> None:
    """Move every job of the pool to a lane of the new tree."""
    for lane in list(state.unreported):
        if lane.request_class.pool is pool:
            del state.unreported[lane]
    jobs = [job for job in state.jobs.values() if job.lane.request_class.pool is pool]
    became: dict[Lane, set[Lane]] = {}
    for job in jobs:
        old = job.lane
        lane = job.lane = state.lane(old.leaf.queue.path, job.user, old.request_class.request)
        lane.jobs += 1
        became.setdefault(old, set()).add(lane)
        if job.open:
            lane.offers[job.id] = job
        if job.id in old.running:
            lane.running[job.id] = job
        if job.state in CHARGED_STATES and job.end is None and not isinstance(job, Array):
            pool.charge(lane, 1)
            if job.missing:
                pool.charge_missing(job, -1)
    for lane, deferral in _kept_deferrals(became).items():
        lane.deferral = deferral
    for job in jobs:
        if job.wait == "line":
            state.in_line -= 1
            state.due.age_no_more(job)
            state.wait_in_line(job)


def _kept_deferrals(became: dict[Lane, set[Lane]]) -> dict[Lane, Deferral]:
    """Return the deferrals of lanes that are not divided and not merged."""
    origins: dict[Lane, int] = {}
    for lanes in became.values():
        for lane in lanes:
            origins[lane] = origins.get(lane, 0) + 1
    kept: dict[Lane, Deferral] = {}
    for old, lanes in became.items():
        for lane in lanes if len(lanes) == 1 and old.deferral is not None else ():
            if origins[lane] == 1 and old.deferral is not None:
                kept[lane] = old.deferral
    return kept
