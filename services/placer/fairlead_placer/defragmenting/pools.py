"""Pools that ask for it, as the queue has said."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.state import State
from fairlead_schemas import events as ev


def _pool_configured(state: State, seq: int, index: int, at_ns: int, event: ev.PoolConfigured) -> None:
    if event.settings.defragment:
        state.put(state.defragmented, event.pool, True)
    else:
        state.drop(state.defragmented, event.pool)


def _pool_removed(state: State, seq: int, index: int, at_ns: int, event: ev.PoolRemoved) -> None:
    state.drop(state.defragmented, event.pool)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.PoolConfigured: _pool_configured,
    ev.PoolRemoved: _pool_removed,
}
