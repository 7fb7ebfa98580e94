"""Effects of the events about windows and rollouts on the state; and effects of the events about MIG layouts on the state.
The module holds no rules.
"""

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.plans import BACKOFFS_MAX, InHand, LayoutPlan, RolloutPlan, Window, after_failure
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire import events as ev


def _maintenance_scheduled(state: ClusterState, event: ev.MaintenanceScheduled, at: EventPosition) -> None:
    window = Window(
        event.name, event.cause, event.by, event.reason, event.nodes, event.starts_ns, event.ends_ns, event.notice_ns
    )
    state.put(state.windows, event.name, window)
    state.pools.stir_offers()


def _maintenance_started(state: ClusterState, event: ev.MaintenanceStarted, at: EventPosition) -> None:
    state.put(state.windows, event.name, state.windows[event.name]._replace(started=True))


def _maintenance_ended(state: ClusterState, event: ev.MaintenanceEnded, at: EventPosition) -> None:
    window = state.drop(state.windows, event.name)
    for name in window.nodes if window is not None else ():
        state.change(state.nodes[name])  # jobs that would have met it look again


def _rollout_started(state: ClusterState, event: ev.RolloutStarted, at: EventPosition) -> None:
    rollout = RolloutPlan(
        name=event.name,
        cause=event.cause,
        by=event.by,
        reason=event.reason,
        nodes=event.nodes,
        budget_gpus=event.budget_gpus,
        nodes_max=event.nodes_max,
        want=event.want,
        deadline_ns=event.deadline_ns,
        stop_long=event.stop_long,
        pending=event.nodes,
    )
    state.put(state.rollouts, event.name, rollout)
    state.pools.stir_offers()


def _rollout_advanced(state: ClusterState, event: ev.RolloutAdvanced, at: EventPosition) -> None:
    rollout = state.rollouts[event.name]
    if event.step in ("draining", "skipped"):
        rollout = rollout._replace(pending=tuple(name for name in rollout.pending if name != event.node))
    if event.step == "draining":
        rollout = rollout._replace(in_hand=(*rollout.in_hand, InHand(event.node)))
    elif event.step != "skipped":
        rollout = rollout._replace(in_hand=tuple(each for each in rollout.in_hand if each.node != event.node))
    state.put(state.rollouts, event.name, rollout)
    state.pools.stir_offers()


def _rollout_paused(state: ClusterState, event: ev.RolloutPaused, at: EventPosition) -> None:
    state.put(state.rollouts, event.name, state.rollouts[event.name]._replace(paused=True))


def _rollout_resumed(state: ClusterState, event: ev.RolloutResumed, at: EventPosition) -> None:
    state.put(state.rollouts, event.name, state.rollouts[event.name]._replace(paused=False))
    state.pools.stir_offers()


def _rollout_ended(state: ClusterState, event: ev.RolloutEnded, at: EventPosition) -> None:
    state.drop(state.rollouts, event.name)


def mark_drained(state: ClusterState, node: ClusterNode) -> None:
    """Record the node's boot and journal with the rollouts that have it in hand: the node is empty."""
    for rollout in [state.rollouts[name] for name in sorted(state.rollouts)]:
        if any(each.node == node.name for each in rollout.in_hand):
            marked = tuple(
                each._replace(mark=mark_of(node)) if each.node == node.name else each for each in rollout.in_hand
            )
            state.put(state.rollouts, rollout.name, rollout._replace(in_hand=marked))


def strike_out(state: ClusterState, name: str) -> None:
    """The node is gone from every window and rollout."""
    for window in [state.windows[each] for each in sorted(state.windows)]:
        if name in window.nodes:
            state.put(state.windows, window.name, window._replace(nodes=_without(window.nodes, name)))
    for rollout in [state.rollouts[each] for each in sorted(state.rollouts)]:
        if name in rollout.nodes:
            rest = rollout._replace(
                nodes=_without(rollout.nodes, name),
                pending=_without(rollout.pending, name),
                in_hand=tuple([each for each in rollout.in_hand if each.node != name]),
            )
            state.put(state.rollouts, rollout.name, rest)


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple([each for each in names if each != name])


def mark_of(node: ClusterNode) -> str:
    """Names its boot and journal."""
    return f"{node.incarnation} {node.boot_id}"


def _planned(state: ClusterState, event: ev.MigLayoutPlanned, at: EventPosition) -> None:
    plan = LayoutPlan(event.gpu, at.sequence, at.time_ns, event.jobs, event.mode, event.destroy, event.create)
    state.lay_out(state.nodes[event.node], plan)
    state.touch(event.node)


def _changed(state: ClusterState, event: ev.MigLayoutChanged, at: EventPosition) -> None:
    _end(state, event.node)
    state.drop(state.spoilt, event.gpu)


def _failed(state: ClusterState, event: ev.MigLayoutFailed, at: EventPosition) -> None:
    _end(state, event.node)
    _spoil(state, event.node, event.gpu, at.time_ns)


def _dropped(state: ClusterState, event: ev.MigLayoutDropped, at: EventPosition) -> None:
    _end(state, event.node)
    if event.reason == "late":
        _spoil(state, event.node, event.gpu, at.time_ns)


def _end(state: ClusterState, name: str) -> None:
    state.lay_out(state.nodes[name], None)
    state.touch(name)


def _spoil(state: ClusterState, node: str, gpu: str, at_ns: int) -> None:
    if gpu not in state.spoilt and len(state.spoilt) >= BACKOFFS_MAX:
        state.drop(state.spoilt, min(state.spoilt, key=lambda uuid: (state.spoilt[uuid].until_ns, uuid)))
    state.put(state.spoilt, gpu, after_failure(state.spoilt.get(gpu), node, at_ns))


def forget_failures(state: ClusterState, node: str) -> None:
    """Forget the failed plans of a node that restarted: its GPUs may be tried again."""
    for gpu in sorted(uuid for uuid, each in state.spoilt.items() if each.node == node):
        state.drop(state.spoilt, gpu)


HANDLERS: EventHandlers[ClusterState] = {
    ev.MaintenanceScheduled: _maintenance_scheduled,
    ev.MaintenanceStarted: _maintenance_started,
    ev.MaintenanceEnded: _maintenance_ended,
    ev.RolloutStarted: _rollout_started,
    ev.RolloutAdvanced: _rollout_advanced,
    ev.RolloutPaused: _rollout_paused,
    ev.RolloutResumed: _rollout_resumed,
    ev.RolloutEnded: _rollout_ended,
    ev.MigLayoutPlanned: _planned,
    ev.MigLayoutChanged: _changed,
    ev.MigLayoutFailed: _failed,
    ev.MigLayoutDropped: _dropped,
}
