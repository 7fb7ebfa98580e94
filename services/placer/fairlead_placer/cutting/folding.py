"""Effects of the events about MIG layouts on the state. The module holds no rules."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.cutting.plans import SPOILT_MAX, LayoutPlan, after_failure
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev


def _planned(state: State, seq: int, index: int, at_ns: int, event: ev.MigLayoutPlanned) -> None:
    plan = LayoutPlan(event.gpu, seq, at_ns, event.jobs, event.mode, event.destroy, event.create)
    state.lay_out(state.nodes[event.node], plan)
    state.touch(event.node)


def _changed(state: State, seq: int, index: int, at_ns: int, event: ev.MigLayoutChanged) -> None:
    _end(state, event.node)
    state.drop(state.spoilt, event.gpu)


def _failed(state: State, seq: int, index: int, at_ns: int, event: ev.MigLayoutFailed) -> None:
    _end(state, event.node)
    _spoil(state, event.node, event.gpu, at_ns)


def _dropped(state: State, seq: int, index: int, at_ns: int, event: ev.MigLayoutDropped) -> None:
    _end(state, event.node)
    if event.reason == "late":
        _spoil(state, event.node, event.gpu, at_ns)


def _end(state: State, name: str) -> None:
    state.lay_out(state.nodes[name], None)
    state.touch(name)


def _spoil(state: State, node: str, gpu: str, at_ns: int) -> None:
    if gpu not in state.spoilt and len(state.spoilt) >= SPOILT_MAX:
        state.drop(state.spoilt, min(state.spoilt, key=lambda uuid: (state.spoilt[uuid].until_ns, uuid)))
    state.put(state.spoilt, gpu, after_failure(state.spoilt.get(gpu), node, at_ns))


def forget_failures(state: State, node: str) -> None:
    """Forget the failed plans of a node that restarted: its GPUs may be tried again."""
    for gpu in sorted(uuid for uuid, each in state.spoilt.items() if each.node == node):
        state.drop(state.spoilt, gpu)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.MigLayoutPlanned: _planned,
    ev.MigLayoutChanged: _changed,
    ev.MigLayoutFailed: _failed,
    ev.MigLayoutDropped: _dropped,
}
