"""Cordon, uncordon, drain: by command, and the effects of deadlines and empty nodes. Emits on a draft.

The person, window or rollout that takes a node out of work is its setter. A person may take over and undo any of these.
Windows and rollouts return only nodes that they have drained themselves.
"""

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import CORDONED, DRAINING, Node
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_schemas.units.quantities import DURATION_NS_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode, UncordonNode

DEADLINE_NS_MAX = DURATION_NS_MAX


def cordon(draft: Draft, asked: CordonNode, cause: str) -> Refusal | None:
    """No new work. A cordon without a reason keeps the one of an earlier cordon."""
    node = draft.state.nodes[asked.node]
    reason = asked.reason[:MESSAGE_CHARS_MAX] or (node.reason if node.duty == CORDONED else "")
    draft.emit(
        ev.NodeCordoned(cause=cause, node=asked.node, by=asked.user, reason=reason), EVENT_BYTES + encoded_bytes(reason)
    )
    return None


def uncordon(draft: Draft, asked: UncordonNode, cause: str) -> Refusal | None:
    """Return the node to work, regardless of its setter."""
    draft.emit(ev.NodeUncordoned(cause=cause, node=asked.node, by=asked.user))
    return None


def drain(draft: Draft, asked: DrainNode, cause: str) -> Refusal | None:
    """No new work, and a deadline for what runs there."""
    # Far deadlines are as good as none, and their sum must stay an ordinary integer.
    deadline_ns = draft.now_ns + asked.deadline_ns if 0 < asked.deadline_ns <= DEADLINE_NS_MAX else 0
    begin(draft, draft.state.nodes[asked.node], "person", cause, asked.user, asked.reason, deadline_ns)
    return None


def begin(draft: Draft, node: Node, setter: ev.Setter, cause: str, by: str, reason: str, deadline_ns: int) -> None:
    """The node drains, up to a Unix time (0: without end)."""
    reason = reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeDraining(
            cause=cause, node=node.name, by=by, reason=reason, deadline_ns=deadline_ns, setter=setter
        ),
        EVENT_BYTES + encoded_bytes(reason),
    )  # fmt: skip


def give_back(draft: Draft, node: Node, setter: ev.Setter, cause: str, by: str = "") -> None:
    """The node takes work again, if it was that setter who had taken it out."""
    if not node.on_duty and node.setter == setter:
        draft.emit(ev.NodeUncordoned(cause=cause, node=node.name, by=by, setter=setter))


def drains(draft: Draft) -> None:
    """Deadlines that have come (NodeDraining once more, its deadline passed), and drains that are done."""
    state = draft.state
    for node in [n for n in map(state.nodes.__getitem__, sorted(state.closed)) if n.duty == DRAINING]:
        if draft.full:
            return
        if 0 < node.deadline_ns <= draft.now_ns:
            begin(draft, node, node.setter, "clock", node.by, node.reason, node.deadline_ns)
        if not node.held:
            draft.emit(ev.NodeDrained(cause=node.cause, node=node.name))
