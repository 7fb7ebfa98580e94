"""Effects of the events about taints, health, quarantine and the breaker on the state. The module holds no rules."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import Node, Run
from fairlead_placer.evolve_runs import send_away, stop
from fairlead_placer.state import State
from fairlead_schemas.units.taints import evicts, parse_pattern
from fairlead_schemas.wire import events as ev

#: For how long the breaker counts a node that was taken out of work by itself.
ACTS_WITHIN_NS = 5 * 60 * 1_000_000_000


def _node_tainted(state: State, seq: int, index: int, at_ns: int, event: ev.NodeTainted) -> None:
    node, new = state.nodes[event.node], parse_pattern(event.taint)
    kept = [
        (taint, setter)
        for taint, setter in node.tainted
        if setter != event.setter or (parse_pattern(taint).key, parse_pattern(taint).effect) != (new.key, new.effect)
    ]
    state.change(node, tainted=tuple(sorted([*kept, (event.taint, event.setter)])))
    heed_taints(state, node, at_ns)
    if event.setter != "person":
        _acted(state, event.node, at_ns)


def _node_untainted(state: State, seq: int, index: int, at_ns: int, event: ev.NodeUntainted) -> None:
    node = state.nodes[event.node]
    state.change(node, tainted=tuple(each for each in node.tainted if each != (event.taint, event.setter)))


def heed_taints(state: State, node: Node, at_ns: int) -> None:
    """Stop the runs that the node's taints evict; they go elsewhere."""
    if evicts(node.taints, ()):
        send_away(state, node, at_ns, lambda run: _must_leave(state, node, run))


def _must_leave(state: State, node: Node, run: Run) -> bool:
    request = state.request_of(run.job)
    return evicts(node.taints, () if request is None else request.tolerations)


def _gpu_faulted(state: State, seq: int, index: int, at_ns: int, event: ev.GpuFaulted) -> None:
    node = state.nodes[event.node]
    _mark_gpus(state, node, {**node.faulted, event.gpu: event.code})
    for key, rank in sorted(node.held.items()) if event.stop else ():
        run = state.runs[key]
        if event.gpu in run.parts[rank].gpus and run.ended != run.all_ranks:
            stop(state, run, "gpu_fault", at_ns, notice=False)  # there is nothing to save on a faulted GPU
            state.set(run, "gpu_fault", run.gpu_fault or event.code)


def _gpu_restored(state: State, seq: int, index: int, at_ns: int, event: ev.GpuRestored) -> None:
    node = state.nodes[event.node]
    _mark_gpus(state, node, {uuid: code for uuid, code in node.faulted.items() if uuid != event.gpu})


def _node_ailed(state: State, seq: int, index: int, at_ns: int, event: ev.NodeUnhealthy) -> None:
    node = state.nodes[event.node]
    state.change(node, ills=tuple(sorted({*node.ills, event.code})))


def _node_recovered(state: State, seq: int, index: int, at_ns: int, event: ev.NodeRecovered) -> None:
    node = state.nodes[event.node]
    state.change(node, ills=tuple([code for code in node.ills if code != event.code]))


def _mark_gpus(state: State, node: Node, faulted: dict[str, str]) -> None:
    state.change(node, faulted=faulted)


def _node_suspected(state: State, seq: int, index: int, at_ns: int, event: ev.NodeSuspected) -> None:
    node = state.nodes[event.node]
    until_ns = event.rests_until_ns
    state.change(node, suspect=True, resting=until_ns > 0, rest_ns=until_ns or node.rest_ns)


def _node_cleared(state: State, seq: int, index: int, at_ns: int, event: ev.NodeCleared) -> None:
    state.change(state.nodes[event.node], suspect=False, resting=False, rest_ns=0)


def _node_quarantined(state: State, seq: int, index: int, at_ns: int, event: ev.NodeQuarantined) -> None:
    state.change(state.nodes[event.node], quarantined=True, resting=False)
    if event.setter != "person":
        _acted(state, event.node, at_ns)


def _node_released(state: State, seq: int, index: int, at_ns: int, event: ev.NodeUnquarantined) -> None:
    state.drop(state.failing, event.node)
    state.change(state.nodes[event.node], quarantined=False, suspect=False, resting=False, rest_ns=0)


def _acted(state: State, name: str, at_ns: int) -> None:
    for old in [node for node, when in state.acts.items() if when <= at_ns - ACTS_WITHIN_NS]:
        state.drop(state.acts, old)
    state.put(state.acts, name, at_ns)


def _breaker_tripped(state: State, seq: int, index: int, at_ns: int, event: ev.BreakerTripped) -> None:
    state.put(state.tripped, event.kind, at_ns)
    state.pools.stir_offers()


def _breaker_reset(state: State, seq: int, index: int, at_ns: int, event: ev.BreakerReset) -> None:
    for kind in sorted(state.tripped):
        state.drop(state.tripped, kind)
    for node in sorted(state.acts):
        state.drop(state.acts, node)
    state.set(state, "reset_ns", at_ns)
    state.pools.stir_offers()


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.NodeTainted: _node_tainted,
    ev.NodeUntainted: _node_untainted,
    ev.GpuFaulted: _gpu_faulted,
    ev.GpuRestored: _gpu_restored,
    ev.NodeUnhealthy: _node_ailed,
    ev.NodeRecovered: _node_recovered,
    ev.NodeSuspected: _node_suspected,
    ev.NodeCleared: _node_cleared,
    ev.NodeQuarantined: _node_quarantined,
    ev.NodeUnquarantined: _node_released,
    ev.BreakerTripped: _breaker_tripped,
    ev.BreakerReset: _breaker_reset,
}
