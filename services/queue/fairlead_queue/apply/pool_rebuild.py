"""Rebuild of a pool from its settings and its jobs, after a change of its vectors, its sequencer or the separation of
users.

Outcomes recorded for a lane, and claims, are kept where they still have a meaning. Past usage stays with the queue.
Called by `evolve` only.
"""

from fairlead_queue.apply import claims
from fairlead_queue.apply.limits import limits_now, measure, resources_of
from fairlead_queue.apply.ordering_keys import renew_order
from fairlead_queue.fairness import users
from fairlead_queue.fairness.tree import Node
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Array
from fairlead_queue.waiting.lanes import Deferral, Lane
from fairlead_queue.waiting.order import priority_of
from fairlead_queue.waiting.pools import Pool
from fairlead_schemas.wire.lifecycle import CHARGED_STATES


def rebuild(state: State, pool: Pool) -> None:
    """A new tree from the settings and the jobs."""
    past = pool.past
    claimed = {node.path: node.claim.holder for node in pool.tree.nodes.values() if node.claim is not None}
    was = pool.sequencer
    pool.shape(resources_of(state, pool))
    measure(state, pool)
    for path, queue in sorted(state.queues.items()):
        if queue.pool is pool:
            queue.node = pool.tree.add(path)
            queue.leaves = {}
    for path, queue in sorted(state.queues.items()):
        if queue.pool is pool:
            pool.tree.limit(queue.node, limits_now(state, path))
    pool.waiting = 0
    for klass in pool.classes.values():
        klass.measure()
        klass.waiting = 0
    if (was.newest_first, was.stretch) != (pool.sequencer.newest_first, pool.sequencer.stretch):
        _renew_orders(state, pool, newest_first=was.newest_first)
    _relane(state, pool)
    if pool.past is not None:
        pool.past.begin(state.at_ns)
        if past is not None:
            pool.past.take_over(past, lambda path: heir(state, pool, path), state.at_ns)
        for node in pool.tree.nodes.values():
            if node.leaf is not None and any(node.usage):
                pool.past.settle(node, state.at_ns)
    for path, holder in sorted(claimed.items()):
        node, job = pool.tree.nodes.get(path), state.jobs[holder]
        if node is not None:
            claims.put(state, node, job)


def heir(state: State, pool: Pool, path: str) -> Node | None:
    """Return the node that now holds the usage recorded at a path of the former tree; None if the path has left the pool.

    Only a leaf of the tree may have a past of its own. Usage from before a queue's users were separated, or before there
    were queues below it, therefore stays below the queue under a user without a name.
    """
    above, user = users.split(path)
    queue = state.queues.get(above)
    if queue is None or queue.pool is not pool:
        return None
    if queue.settings.users:
        return pool.tree.nodes.get(path) or pool.tree.add(
            users.path_of(above, user), users.limits_of(queue.settings, user)
        )
    is_inner = any(not users.is_users(child) for child in queue.node.children.values())
    return pool.tree.add(users.path_of(above, "")) if is_inner else queue.node


def _renew_orders(state: State, pool: Pool, *, newest_first: bool) -> None:
    """Place every job of the pool by the new sequencer; its lines are rebuilt afterwards."""
    for job in state.jobs.values():
        if job.lane.klass.pool is pool:
            renew_order(job, priority_of(job.order), newest_first=newest_first)


def _relane(state: State, pool: Pool) -> None:
    """Move every job of the pool to a lane of the new tree."""
    for lane in list(state.unexplained):
        if lane.klass.pool is pool:
            del state.unexplained[lane]
    jobs = [job for job in state.jobs.values() if job.lane.klass.pool is pool]
    became: dict[Lane, set[Lane]] = {}
    for job in jobs:
        old = job.lane
        lane = job.lane = state.lane(old.leaf.queue.path, job.user, old.klass.request)
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
    for lane, said in _still_said(became).items():
        lane.deferral = said
    for job in jobs:
        if job.wait == "line":
            state.in_line -= 1
            state.due.age_no_more(job)
            state.wait_in_line(job)


def _still_said(became: dict[Lane, set[Lane]]) -> dict[Lane, Deferral]:
    """Return the deferrals of lanes that are not divided and not merged."""
    origins: dict[Lane, int] = {}
    for lanes in became.values():
        for lane in lanes:
            origins[lane] = origins.get(lane, 0) + 1
    said: dict[Lane, Deferral] = {}
    for old, lanes in became.items():
        for lane in lanes if len(lanes) == 1 and old.deferral is not None else ():
            if origins[lane] == 1 and old.deferral is not None:
                said[lane] = old.deferral
    return said
