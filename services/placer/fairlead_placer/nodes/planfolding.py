"""Effects of the events about windows and rollouts on the state. The module holds no rules."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import Node
from fairlead_placer.nodes.plans import InHand, Rollout, Window
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev


def _maintenance_scheduled(state: State, seq: int, index: int, at_ns: int, event: ev.MaintenanceScheduled) -> None:
    window = Window(
        event.name, event.cause, event.by, event.reason, event.nodes, event.starts_ns, event.ends_ns, event.notice_ns
    )
    state.put(state.windows, event.name, window)
    state.pools.stir_offers()


def _maintenance_started(state: State, seq: int, index: int, at_ns: int, event: ev.MaintenanceStarted) -> None:
    state.put(state.windows, event.name, state.windows[event.name]._replace(started=True))


def _maintenance_ended(state: State, seq: int, index: int, at_ns: int, event: ev.MaintenanceEnded) -> None:
    window = state.drop(state.windows, event.name)
    for name in window.nodes if window is not None else ():
        state.change(state.nodes[name])  # jobs that would have met it look again


def _rollout_started(state: State, seq: int, index: int, at_ns: int, event: ev.RolloutStarted) -> None:
    rollout = Rollout(
        name=event.name, cause=event.cause, by=event.by, reason=event.reason, nodes=event.nodes,
        budget_gpus=event.budget_gpus, nodes_max=event.nodes_max, want=event.want, deadline_ns=event.deadline_ns,
        stop_long=event.stop_long, pending=event.nodes,
    )  # fmt: skip
    state.put(state.rollouts, event.name, rollout)
    state.pools.stir_offers()


def _rollout_advanced(state: State, seq: int, index: int, at_ns: int, event: ev.RolloutAdvanced) -> None:
    rollout = state.rollouts[event.name]
    if event.step in ("draining", "skipped"):
        rollout = rollout._replace(pending=tuple(name for name in rollout.pending if name != event.node))
    if event.step == "draining":
        rollout = rollout._replace(in_hand=(*rollout.in_hand, InHand(event.node)))
    elif event.step != "skipped":
        rollout = rollout._replace(in_hand=tuple(each for each in rollout.in_hand if each.node != event.node))
    state.put(state.rollouts, event.name, rollout)
    state.pools.stir_offers()


def _rollout_paused(state: State, seq: int, index: int, at_ns: int, event: ev.RolloutPaused) -> None:
    state.put(state.rollouts, event.name, state.rollouts[event.name]._replace(paused=True))


def _rollout_resumed(state: State, seq: int, index: int, at_ns: int, event: ev.RolloutResumed) -> None:
    state.put(state.rollouts, event.name, state.rollouts[event.name]._replace(paused=False))
    state.pools.stir_offers()


def _rollout_ended(state: State, seq: int, index: int, at_ns: int, event: ev.RolloutEnded) -> None:
    state.drop(state.rollouts, event.name)


def mark_drained(state: State, node: Node) -> None:
    """Record the node's boot and journal with the rollouts that have it in hand: the node is empty."""
    for rollout in [state.rollouts[name] for name in sorted(state.rollouts)]:
        if any(each.node == node.name for each in rollout.in_hand):
            marked = tuple(
                each._replace(mark=mark_of(node)) if each.node == node.name else each for each in rollout.in_hand
            )
            state.put(state.rollouts, rollout.name, rollout._replace(in_hand=marked))


def strike_out(state: State, name: str) -> None:
    """The node is gone from every window and rollout."""
    for window in [state.windows[each] for each in sorted(state.windows)]:
        if name in window.nodes:
            state.put(state.windows, window.name, window._replace(nodes=_without(window.nodes, name)))
    for rollout in [state.rollouts[each] for each in sorted(state.rollouts)]:
        if name in rollout.nodes:
            rest = rollout._replace(
                nodes=_without(rollout.nodes, name), pending=_without(rollout.pending, name),
                in_hand=tuple([each for each in rollout.in_hand if each.node != name]),
            )  # fmt: skip
            state.put(state.rollouts, rollout.name, rest)


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple([each for each in names if each != name])


def mark_of(node: Node) -> str:
    """Names its boot and journal."""
    return f"{node.incarnation} {node.boot_id}"


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.MaintenanceScheduled: _maintenance_scheduled,
    ev.MaintenanceStarted: _maintenance_started,
    ev.MaintenanceEnded: _maintenance_ended,
    ev.RolloutStarted: _rollout_started,
    ev.RolloutAdvanced: _rollout_advanced,
    ev.RolloutPaused: _rollout_paused,
    ev.RolloutResumed: _rollout_resumed,
    ev.RolloutEnded: _rollout_ended,
}
