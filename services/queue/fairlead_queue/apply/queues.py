"""Effects of the events about queues, pools and nodes on the state; and effects of configured queues and pools on the
state: trees, limits, leaves, accounts.

Called by `evolve` only.

A change of amounts affects the queue and those above it. A pool is rebuilt from its jobs if the shape of the vectors
changes (a GPU model that is limited for the first time), or the sequencer, or the separation of users.
"""

from collections.abc import Iterable
from typing import Any

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_queue.apply import waiting_jobs
from fairlead_queue.apply.pool_tree import (
    limit_upwards,
    limit_users,
    measure_capacity,
    rebuild_pool,
    resources_in,
    resources_of,
)
from fairlead_queue.apply.reclaim_requests import note_reclaim
from fairlead_queue.fairness.budgets import Account
from fairlead_queue.fairness.quota import is_user_node, pool_name
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.nodes import NodeCapacity
from fairlead_queue.waiting.pending import LiveJob, LiveQueue, PoolState
from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    MODEL_LABEL,
    POOL_LABEL,
    RESOURCES,
    PoolSettings,
    QueueSettings,
)
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory


def set_pool(state: QueueState, name: str, settings: PoolSettings) -> None:
    """A pool has these settings now."""
    pool = state.pools.get(name)
    if pool is None:
        pool = state.pools[name] = PoolState(name, settings)
        measure_capacity(state, pool)
        if pool.past is not None:
            pool.past.begin(state.at_ns)
        return
    pool.settings = settings
    rebuild_pool(state, pool)


def drop_pool(state: QueueState, name: str) -> None:
    """A pool that no queue is in is gone."""
    del state.pools[name]


def set_queue(state: QueueState, path: str, settings: QueueSettings) -> None:
    """Give the queue these settings, and create it if it does not exist."""
    queue = state.queues.get(path)
    if queue is None:
        anew = _add(state, path, settings)
    else:
        anew = _change(state, queue, settings)
    pool = state.queues[path].pool
    _set_account(state, path, settings)
    if anew or not resources_in(settings) <= set(pool.resources):
        rebuild_pool(state, pool)
    else:
        limit_upwards(state, path)
        limit_users(state.queues[path])
    _limits_changed(state, pool)


def _add(state: QueueState, path: str, settings: QueueSettings) -> bool:
    """Add a queue. Return True if its pool must be rebuilt."""
    parent = state.queues.get(path.rpartition("/")[0])
    pool = parent.pool if parent is not None else state.pools[pool_name({path: settings}, path)]
    state.queues[path] = LiveQueue(path, settings, pool, pool.tree.add(path))
    if parent is None:
        return False
    parent.leaves.clear()  # it has no jobs: they wait below it from now on
    parent.node.leaf = None
    return pool.past is not None


def _change(state: QueueState, queue: LiveQueue, settings: QueueSettings) -> bool:
    """Change a queue's settings. Return True if its pool must be rebuilt."""
    told_apart = bool(queue.settings.users) != bool(settings.users)
    fewer = not (resources_in(queue.settings) - resources_in(settings)) <= set(RESOURCES)
    old, queue.settings = queue.pool, settings
    top = state.queues[queue.path.partition("/")[0]]
    pool = state.pools[pool_name({top.path: top.settings}, queue.path)]
    if old is not pool:
        for below in _subtree(state, queue.path):
            below.pool = pool
        rebuild_pool(state, old)
    fewer = fewer and resources_of(state, pool) != pool.resources
    return told_apart or fewer or old is not pool


def remove_queue(state: QueueState, path: str, move_to: str) -> None:
    """A queue is gone; what waited in it waits in another."""
    queue = state.queues[path]
    pool, above = queue.pool, path.rpartition("/")[0]
    if move_to:
        for job in [job for job in state.jobs.values() if job.lane.leaf.queue is queue]:
            waiting_jobs.give_up_claim(job)
            move_job(state, job, move_to)
    del state.queues[path]
    state.closures.release(path)
    _close_account(state, path)
    for node in [*queue.node.children.values(), queue.node]:
        pool.tree.remove(node)
        pool.ranking.remove(node)
        if pool.past is not None:
            pool.past.forget(node)
    left = state.queues[above].node.children.values() if above else ()
    is_leaf_again = bool(left) and all(is_user_node(child) for child in left)
    if is_leaf_again or resources_of(state, pool) != pool.resources:
        rebuild_pool(state, pool)
    else:
        limit_upwards(state, above)
    _limits_changed(state, pool)


def move_job(state: QueueState, job: LiveJob, path: str) -> None:
    """A waiting job waits in another queue of the same pool."""
    old = job.lane
    wait = job.wait
    if wait == "line":
        state.unwait(job)
    new = state.lane(path, job.user, old.request_class.request)
    new.jobs += 1
    new.request_class.jobs += 1
    state.leave(job)
    job.lane = new
    if wait == "line":
        state.wait_in_line(job)


def _limits_changed(state: QueueState, pool: PoolState) -> None:
    """Return jobs withdrawn for quota to the line, so that they may be offered again, and forget all refusals."""
    for job in [job for job in state.returned.values() if job.lane.request_class.pool is pool]:
        state.unwait(job)
        state.wait_in_line(job)
    pool.forget_all()
    waiting_jobs.lapse_claims(state, pool)


def _subtree(state: QueueState, path: str) -> Iterable[LiveQueue]:
    return [queue for other, queue in state.queues.items() if _is_under(other, path)]


# ---------------------------------------------------------------------------------------- accounts


def limit_again(state: QueueState, path: str) -> None:
    """Update the limits after a change of the spent state of the queue's budget: a queue that is demoted for it comes behind
    all others.
    """
    limit_upwards(state, path)
    state.queues[path].pool.forget_all()
    waiting_jobs.lapse_claims(state, state.queues[path].pool)


def _set_account(state: QueueState, path: str, settings: QueueSettings) -> None:
    """Set the queue's account. Usage of the running period continues if the period is unchanged; the mark is published again."""
    account = state.accounts.get(path)
    if account is not None and settings.budget is not None and account.budget.period == settings.budget.period:
        account.budget = settings.budget
    else:
        _close_account(state, path)
        if settings.budget is None:
            return
        account = state.accounts[path] = Account(path, settings.budget, state.at_ns)
        account.rate = sum(job.price for job in state.jobs.values() if _is_under(job.lane.leaf.queue.path, path))
    state.due.await_mark(account, state.at_ns)


def _close_account(state: QueueState, path: str) -> None:
    account = state.accounts.pop(path, None)
    if account is not None:
        state.due.drop_mark(account)


def _is_under(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def count_use(state: QueueState, job: LiveJob, price: int, at_ns: int) -> None:
    """From this moment on the job counts so much more (or less) on its queue's account and on those above."""
    path = job.lane.leaf.queue.path if state.accounts else ""
    while path:
        account = state.accounts.get(path)
        if account is not None:
            account.settle(at_ns)
            account.rate += price
            state.due.await_mark(account, state.at_ns)
        path = path.rpartition("/")[0]


def _pool_configured(state: QueueState, event: ev.PoolConfigured, at: EventPosition) -> None:
    set_pool(state, event.pool, event.settings)
    state.pools[event.pool].changed_seq = at.sequence


def _pool_removed(state: QueueState, event: ev.PoolRemoved, at: EventPosition) -> None:
    drop_pool(state, event.pool)
    state.removed_seq = at.sequence


def _queue_configured(state: QueueState, event: ev.QueueConfigured, at: EventPosition) -> None:
    settings = event.settings
    if settings is None:  # a log of before queues had settings
        quota = event.gpu_quota_milli
        settings = QueueSettings(maximum={} if quota is None else {"gpu": quota})
        _grow_parents(state, event.path)
    set_queue(state, event.path, settings)
    state.queues[event.path].changed_seq = at.sequence


def _grow_parents(state: QueueState, path: str) -> None:
    """Queues of old logs were flat: "a/b" stood without "a"."""
    parent = path.rpartition("/")[0]
    if parent and parent not in state.queues:
        _grow_parents(state, parent)
        set_queue(state, parent, QueueSettings())


def _queues_applied(state: QueueState, event: ev.QueuesApplied, at: EventPosition) -> None:
    """Record the reclaim request of the event; its changes precede it in the same commit."""
    if event.reclaim:
        note_reclaim(state, at.id, event.by)


def _queue_held(state: QueueState, event: ev.QueueHeld, at: EventPosition) -> None:
    state.closures.held.add(event.path)
    waiting_jobs.lapse_claims(state, state.queues[event.path].pool)


def _queue_drained(state: QueueState, event: ev.QueueDrained, at: EventPosition) -> None:
    state.closures.drained.add(event.path)


def _queue_released(state: QueueState, event: ev.QueueReleased, at: EventPosition) -> None:
    state.closures.release(event.path)


def _queue_removed(state: QueueState, event: ev.QueueRemoved, at: EventPosition) -> None:
    remove_queue(state, event.path, event.move_to)
    state.removed_seq = at.sequence


def _budget_reached(state: QueueState, event: ev.BudgetReached, at: EventPosition) -> None:
    account = state.accounts[event.queue]
    account.reached = event.percent
    state.due.await_mark(account, state.at_ns)
    limit_again(state, event.queue)


# -- nodes


def _node(state: QueueState, event: ev.NodeJoined | ev.NodeChanged, at: EventPosition) -> None:
    old = state.nodes.shapes.get(event.node)
    shape = shape_of(event.inventory)
    pools = {shape.pool, old.pool if old is not None else shape.pool}
    if old != shape:
        state.nodes.set(event.node, shape)
    for name in sorted(pools):
        pool = state.pools.get(name)
        if pool is not None:
            if old != shape:
                measure_capacity(state, pool)
                waiting_jobs.lapse_claims(state, pool)
            state.capacity_changed(pool)


def _node_removed(state: QueueState, event: ev.NodeRemoved, at: EventPosition) -> None:
    pool = state.pools.get(state.nodes.pool_of(event.node))
    state.nodes.remove(event.node)
    if pool is not None:
        measure_capacity(state, pool)
        waiting_jobs.lapse_claims(state, pool)
        state.capacity_changed(pool)


def shape_of(inventory: Inventory) -> NodeCapacity:
    """Return a node's resources, in integers, with its pool and model."""
    labels = inventory.labels
    return NodeCapacity(
        1000 * len(inventory.gpus),
        inventory.cpu_milli,
        inventory.memory_mib,
        labels.get(POOL_LABEL, DEFAULT_POOL),
        labels.get(MODEL_LABEL, ""),
    )


def _capacity(state: QueueState, event: Any, at: EventPosition) -> None:
    """Something of a node came free."""
    pool = state.pool_of_node(event.node)
    if pool is not None:
        state.capacity_changed(pool)


HANDLERS: EventHandlers[QueueState] = {
    ev.PoolConfigured: _pool_configured,
    ev.PoolRemoved: _pool_removed,
    ev.QueueConfigured: _queue_configured,
    ev.QueueRemoved: _queue_removed,
    ev.QueueHeld: _queue_held,
    ev.QueueDrained: _queue_drained,
    ev.QueueReleased: _queue_released,
    ev.QueuesApplied: _queues_applied,
    ev.BudgetReached: _budget_reached,
    ev.AllocationReleased: _capacity,
    ev.NodeReturned: _capacity,
    ev.NodeUncordoned: _capacity,
    ev.NodeUntainted: _capacity,
    ev.NodeUnquarantined: _capacity,
    ev.GpuRestored: _capacity,
    ev.NodeJoined: _node,
    ev.NodeRemoved: _node_removed,
    ev.NodeChanged: _node,
}
