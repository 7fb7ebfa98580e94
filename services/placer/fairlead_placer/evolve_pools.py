"""Pool settings from the queue's events: moving runs to make room, and the policy that chooses nodes."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.state import State
from fairlead_schemas.queuefile.settings import PoolSettings
from fairlead_schemas.wire import events as ev


def _configured(state: State, seq: int, index: int, at_ns: int, event: ev.PoolConfigured) -> None:
    _set(state, event.pool, event.settings)


def _removed(state: State, seq: int, index: int, at_ns: int, event: ev.PoolRemoved) -> None:
    _set(state, event.pool, PoolSettings())  # its nodes, if any, continue with the defaults


def _set(state: State, pool: str, settings: PoolSettings) -> None:
    if settings.defragment:
        state.put(state.defragmented, pool, True)
    else:
        state.drop(state.defragmented, pool)
    state.pack(pool, settings.packing)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.PoolConfigured: _configured,
    ev.PoolRemoved: _removed,
}
