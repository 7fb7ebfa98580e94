"""Cordon, uncordon, drain: by command, and the effects of deadlines and empty nodes; and taints by command. Emits on a
draft.

The person, window or rollout that takes a node out of work is its setter. A person may take over and undo any of these.
Windows and rollouts return only nodes that they have drained themselves.

A person removes what people set; what health or the inventory says of the node goes when that changes.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import CORDONED, DRAINING, ClusterNode
from fairlead_schemas.units.quantities import DURATION_NS_MAX
from fairlead_schemas.units.taints import TAINTS_MAX, TaintError, matches, parse_full_taint, parse_pattern
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode, TaintNode, UncordonNode, UntaintNode

DEADLINE_NS_MAX = DURATION_NS_MAX


def cordon(draft: PlacerDraft, asked: CordonNode, cause: str) -> CommandRefusal | None:
    """No new work. A cordon without a reason keeps the one of an earlier cordon."""
    node = draft.state.nodes[asked.node]
    reason = asked.reason[:MESSAGE_CHARS_MAX] or (node.reason if node.duty == CORDONED else "")
    draft.emit(ev.NodeCordoned(cause=cause, node=asked.node, by=asked.user, reason=reason), encoded_bytes(reason))
    return None


def uncordon(draft: PlacerDraft, asked: UncordonNode, cause: str) -> CommandRefusal | None:
    """Return the node to work, regardless of its setter."""
    draft.emit(ev.NodeUncordoned(cause=cause, node=asked.node, by=asked.user))
    return None


def drain(draft: PlacerDraft, asked: DrainNode, cause: str) -> CommandRefusal | None:
    """No new work, and a deadline for what runs there."""
    # Far deadlines are as good as none, and their sum must stay an ordinary integer.
    deadline_ns = draft.now_ns + asked.deadline_ns if 0 < asked.deadline_ns <= DEADLINE_NS_MAX else 0
    begin(draft, draft.state.nodes[asked.node], "person", cause, asked.user, asked.reason, deadline_ns)
    return None


def begin(
    draft: PlacerDraft, node: ClusterNode, setter: ev.Setter, cause: str, by: str, reason: str, deadline_ns: int
) -> None:
    """The node drains, up to a Unix time (0: without end)."""
    reason = reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeDraining(cause=cause, node=node.name, by=by, reason=reason, deadline_ns=deadline_ns, setter=setter),
        encoded_bytes(reason),
    )


def give_back(draft: PlacerDraft, node: ClusterNode, setter: ev.Setter, cause: str, by: str = "") -> None:
    """The node takes work again, if it was that setter who had taken it out."""
    if not node.on_duty and node.setter == setter:
        draft.emit(ev.NodeUncordoned(cause=cause, node=node.name, by=by, setter=setter))


def drains(draft: PlacerDraft) -> None:
    """Deadlines that have come (NodeDraining once more, its deadline passed), and drains that are done."""
    state = draft.state
    for node in [n for n in map(state.nodes.__getitem__, sorted(state.closed)) if n.duty == DRAINING]:
        if draft.full:
            return
        if 0 < node.deadline_ns <= draft.now_ns:
            begin(draft, node, node.setter, "clock", node.by, node.reason, node.deadline_ns)
        if not node.held:
            draft.emit(ev.NodeDrained(cause=node.cause, node=node.name))


def taint(draft: PlacerDraft, asked: TaintNode, cause: str) -> CommandRefusal | None:
    """Set a taint on a node. A repeated command emits the event again."""
    try:
        wanted = str(parse_full_taint(asked.taint))
    except TaintError as error:
        return CommandRefusal("bad_taint", str(error))
    if len(_of_people(draft.state.nodes[asked.node])) >= TAINTS_MAX:
        return CommandRefusal("too_many", f"expected at most {TAINTS_MAX} taints on a node")
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(ev.NodeTainted(cause=cause, node=asked.node, taint=wanted, by=asked.user, reason=reason))
    return None


def untaint(draft: PlacerDraft, asked: UntaintNode, cause: str) -> CommandRefusal | None:
    """Remove those that match."""
    node, wanted = draft.state.nodes[asked.node], parse_pattern(asked.taint)
    found = [taint for taint in _of_people(node) if matches(wanted, parse_pattern(taint))] if wanted.key else []
    for each in found:
        draft.emit(ev.NodeUntainted(cause=cause, node=asked.node, taint=each, by=asked.user))
    if found:
        return None
    others = [taint for taint in node.taints if matches(wanted, parse_pattern(taint))]
    if others:
        message = f"{others[0]} was not set by a person: restore the GPU, or change the node's own settings"
        return CommandRefusal("not_yours", message)
    return CommandRefusal(
        "not_found", f'expected a taint of {asked.node}, found none that matches "{asked.taint[:80]}"'
    )


def _of_people(node: ClusterNode) -> list[str]:
    return [taint for taint, setter in node.tainted if setter == "person"]
