"""Effects of the events about queues, pools and nodes on the state."""

from collections.abc import Callable
from typing import Any

from fairlead_queue.apply import queue_config
from fairlead_queue.apply.limits import measure
from fairlead_queue.apply.reclaim_requests import note_wish
from fairlead_queue.state import State
from fairlead_queue.waiting.nodes import Shape
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, MODEL_LABEL, POOL_LABEL, QueueSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory


def _pool_configured(state: State, event: ev.PoolConfigured, id_: str, at_ns: int) -> None:
    queue_config.set_pool(state, event.pool, event.settings)


def _pool_removed(state: State, event: ev.PoolRemoved, id_: str, at_ns: int) -> None:
    queue_config.drop_pool(state, event.pool)


def _queue_configured(state: State, event: ev.QueueConfigured, id_: str, at_ns: int) -> None:
    settings = event.settings
    if settings is None:  # a log of before queues had settings
        quota = event.gpu_quota_milli
        settings = QueueSettings(maximum={} if quota is None else {"gpu": quota})
        _grow_parents(state, event.path)
    queue_config.set_queue(state, event.path, settings)


def _grow_parents(state: State, path: str) -> None:
    """Queues of old logs were flat: "a/b" stood without "a"."""
    parent = path.rpartition("/")[0]
    if parent and parent not in state.queues:
        _grow_parents(state, parent)
        queue_config.set_queue(state, parent, QueueSettings())


def _queues_applied(state: State, event: ev.QueuesApplied, id_: str, at_ns: int) -> None:
    """Record the reclaim request of the event; its changes precede it in the same commit."""
    if event.reclaim:
        note_wish(state, id_, event.by)


def _queue_removed(state: State, event: ev.QueueRemoved, id_: str, at_ns: int) -> None:
    queue_config.remove_queue(state, event.path, event.move_to)


def _budget_reached(state: State, event: ev.BudgetReached, id_: str, at_ns: int) -> None:
    account = state.accounts[event.queue]
    account.reached = event.percent
    state.due.await_mark(account, state.at_ns)
    queue_config.limit_again(state, event.queue)


# -- nodes


def _node(state: State, event: ev.NodeJoined | ev.NodeChanged, id_: str, at_ns: int) -> None:
    old = state.nodes.shapes.get(event.node)
    shape = shape_of(event.inventory)
    pools = {shape.pool, old.pool if old is not None else shape.pool}
    if old != shape:
        state.nodes.set(event.node, shape)
    for name in sorted(pools):
        pool = state.pools.get(name)
        if pool is not None:
            if old != shape:
                measure(state, pool)
            state.capacity_changed(pool)


def _node_removed(state: State, event: ev.NodeRemoved, id_: str, at_ns: int) -> None:
    pool = state.pools.get(state.nodes.pool_of(event.node))
    state.nodes.remove(event.node)
    if pool is not None:
        measure(state, pool)
        state.capacity_changed(pool)


def shape_of(inventory: Inventory) -> Shape:
    """Return a node's resources, in integers, with its pool and model."""
    labels = inventory.labels
    return Shape(
        1000 * len(inventory.gpus), inventory.cpu_milli, inventory.memory_mib,
        labels.get(POOL_LABEL, DEFAULT_POOL), labels.get(MODEL_LABEL, ""),
    )  # fmt: skip


def _capacity(state: State, event: Any, id_: str, at_ns: int) -> None:
    """Something of a node came free."""
    pool = state.pool_of_node(event.node)
    if pool is not None:
        state.capacity_changed(pool)


HANDLERS: dict[type[ev.EventBase], Callable[[State, Any, str, int], None]] = {
    ev.PoolConfigured: _pool_configured,
    ev.PoolRemoved: _pool_removed,
    ev.QueueConfigured: _queue_configured,
    ev.QueueRemoved: _queue_removed,
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
