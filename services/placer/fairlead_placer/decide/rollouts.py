"""Rolling upgrades: nodes drained and returned one after another, within a budget of GPUs that take no work.

A node's turn comes when its GPUs fit into the rest of the budget. Nodes that will be empty soonest go first, those with
long runs last. Once a node is empty, a person or tool upgrades it. The node is returned when the upgrade shows: by the
wanted labels, else by another boot or journal; or when a person confirms it. Emits on a draft.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes, names_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.plans import mark_of
from fairlead_placer.cluster.entities import DRAINED, ClusterNode
from fairlead_placer.cluster.plans import InHand, RolloutPlan
from fairlead_placer.decide import circuit_breaker, cordon
from fairlead_placer.decide.maintenance_windows import in_window
from fairlead_placer.decide.rollout_order import fault_of_name, next_turn, selected
from fairlead_schemas.units import selectors
from fairlead_schemas.units.quantities import DURATION_NS_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CancelRollout, FinishRolloutNode, PauseRollout, ResumeRollout, StartRollout

ROLLOUTS_MAX = 16
NODES_MAX = 4096
#: One event holds all their names, and the state holds them as often as needed.
NAMES_BYTES_MAX = 64 * 1024
LABELS_MAX = 16


# ---------------------------------------------------------------------------- by command


def start(draft: PlacerDraft, asked: StartRollout, cause: str) -> CommandRefusal | None:
    """Begin one."""
    state = draft.state
    if (wrong := fault_of_name(asked.name)) is not None:
        return wrong
    if asked.name in state.rollouts or len(state.rollouts) >= ROLLOUTS_MAX:
        return CommandRefusal("exists", f"expected a new name, and at most {ROLLOUTS_MAX} rollouts at once")
    nodes = selected(state, asked.nodes, asked.selector, every=asked.every, most=NODES_MAX)
    if isinstance(nodes, CommandRefusal):
        return nodes
    if (wrong := _fault_of(draft, asked, nodes)) is not None:
        return wrong
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.RolloutStarted(
            cause=cause,
            name=asked.name,
            nodes=nodes,
            budget_gpus=asked.budget_gpus,
            nodes_max=asked.nodes_max,
            want=asked.want,
            deadline_ns=asked.deadline_ns,
            stop_long=asked.stop_long,
            by=asked.user,
            reason=reason,
        ),
        draft.EVENT_BYTES + encoded_bytes(reason) + names_bytes(nodes),
    )
    return None


def _fault_of(draft: PlacerDraft, asked: StartRollout, nodes: tuple[str, ...]) -> CommandRefusal | None:
    if names_bytes(nodes) > NAMES_BYTES_MAX:
        return CommandRefusal("bad_nodes", f"expected names of {NAMES_BYTES_MAX} bytes together: split the rollout")
    largest = max(len(draft.state.nodes[name].inventory.gpus) for name in nodes)
    if asked.budget_gpus < largest:
        return CommandRefusal("budget_too_small", f"expected a budget of {largest} GPUs, which one of the nodes has")
    if asked.nodes_max < 0 or not 0 <= asked.deadline_ns <= DURATION_NS_MAX or len(asked.want) > LABELS_MAX:
        return CommandRefusal("bad_numbers", f"expected numbers of 0 and more, and at most {LABELS_MAX} labels")
    busy = sorted(set(nodes) & {name for other in draft.state.rollouts.values() for name in other.pending})
    return CommandRefusal("exists", f"{busy[0]} waits for its turn in another rollout") if busy else None


def pause(draft: PlacerDraft, asked: PauseRollout, cause: str) -> CommandRefusal | None:
    """Begin no further node."""
    rollout = draft.state.rollouts.get(asked.name)
    if rollout is None or rollout.paused:
        return _unknown(asked.name, "that is running")
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.RolloutPaused(cause=cause, name=asked.name, by=asked.user, reason=reason),
        encoded_bytes(reason),
    )
    return None


def resume(draft: PlacerDraft, asked: ResumeRollout, cause: str) -> CommandRefusal | None:
    """Resume a paused rollout; refuse an unknown one, or one that is not paused."""
    rollout = draft.state.rollouts.get(asked.name)
    if rollout is None or not rollout.paused:
        return _unknown(asked.name, "that is paused")
    draft.emit(ev.RolloutResumed(cause=cause, name=asked.name, by=asked.user))
    return None


def cancel(draft: PlacerDraft, asked: CancelRollout, cause: str) -> CommandRefusal | None:
    """End it, and give back what it has in hand."""
    rollout = draft.state.rollouts.get(asked.name)
    if rollout is None:
        return _unknown(asked.name, "that is under way")
    draft.emit(ev.RolloutEnded(cause=cause, name=asked.name, by=asked.user, cancelled=True))
    for each in rollout.in_hand:
        cordon.give_back(draft, draft.state.nodes[each.node], "rollout", cause, asked.user)
    return None


def finish(draft: PlacerDraft, asked: FinishRolloutNode, cause: str) -> CommandRefusal | None:
    """A person says that the node is upgraded."""
    rollout = draft.state.rollouts.get(asked.name)
    if rollout is None:
        return _unknown(asked.name, "that is under way")
    node = draft.state.nodes[asked.node]
    if all(each.node != asked.node for each in rollout.in_hand) or node.duty != DRAINED:
        return CommandRefusal(
            "not_drained", f"expected a node that {asked.name} has drained, found {asked.node}: {node.duty}"
        )
    _return(draft, rollout, node, cause)
    return None


def _unknown(name: str, which: str) -> CommandRefusal:
    return CommandRefusal("not_found", f'expected the name of a rollout {which}, found "{name[:80]}"')


# ---------------------------------------------------------------------------- by itself


def step(draft: PlacerDraft) -> bool:
    """Return what is done, begin what may, end what has nothing left. False when the commit was full before."""
    for name in sorted(draft.state.rollouts):
        for each in draft.state.rollouts[name].in_hand:
            if draft.full:
                return False
            _step_rollout(draft, draft.state.rollouts[name], each)
        if not _begin(draft, name):
            return False
        rollout = draft.state.rollouts[name]
        if not rollout.pending and not rollout.in_hand:
            draft.emit(ev.RolloutEnded(cause=rollout.cause, name=name))
    return True


def _step_rollout(draft: PlacerDraft, rollout: RolloutPlan, each: InHand) -> None:
    node = draft.state.nodes[each.node]
    if node.on_duty or node.setter != "rollout":
        draft.emit(ev.RolloutAdvanced(cause="clock", name=rollout.name, node=each.node, step="left"))
    elif node.duty == DRAINED and not node.lost and _is_done(rollout, each, node) and not in_window(draft.state, node):
        _return(draft, rollout, node, "clock")


def _is_done(rollout: RolloutPlan, each: InHand, node: ClusterNode) -> bool:
    if rollout.want:
        return selectors.suits(node.inventory.labels, rollout.want)
    return bool(each.mark) and each.mark != mark_of(node)


def _return(draft: PlacerDraft, rollout: RolloutPlan, node: ClusterNode, cause: str) -> None:
    draft.emit(ev.RolloutAdvanced(cause=cause, name=rollout.name, node=node.name, step="returned"))
    cordon.give_back(draft, node, "rollout", cause)


def _begin(draft: PlacerDraft, name: str) -> bool:
    """Drain as many as may now. A node that is as wanted already has no turn."""
    state = draft.state
    while not state.rollouts[name].paused and not circuit_breaker.is_open(state):
        rollout = state.rollouts[name]
        node = next_turn(state, rollout, draft.now_ns)
        if node is None:
            return True
        if draft.full:
            return False
        if rollout.want and selectors.suits(node.inventory.labels, rollout.want):
            draft.emit(ev.RolloutAdvanced(cause="clock", name=name, node=node.name, step="skipped"))
            continue
        draft.emit(ev.RolloutAdvanced(cause="clock", name=name, node=node.name, step="draining"))
        reason = f"rollout {name}: {rollout.reason}" if rollout.reason else f"rollout {name}"
        deadline_ns = draft.now_ns + rollout.deadline_ns if rollout.deadline_ns and rollout.stop_long else 0
        cordon.begin(draft, node, "rollout", rollout.cause, rollout.by, reason, deadline_ns)
    return True
