"""Removal of nodes from the cluster for good, by a person. Emits on a draft; the effect of the event is in
evolve_nodes.py.

A node is removed once no run is possible there: it is lost, and every run that had a part on it has ended. Devices that
it never reported as clean are released with it. The ids of its journals are remembered. An agent that returns with one
of them would continue with numbers and runs of a closed past. It is asked to begin a new journal, and before that it
ends whatever it finds.
"""

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import Node
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_placer.runs import released
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import RemoveNode

#: Jobs that a refusal names.
NAMED_MAX = 5


def remove(draft: Draft, asked: RemoveNode, cause: str) -> Refusal | None:
    """Forget the node, and give back what is left of ended runs on it."""
    state = draft.state
    node, reason = state.nodes[asked.node], asked.reason[:MESSAGE_CHARS_MAX]
    wrong = _fault_of(state, node)
    if wrong is not None:
        return wrong
    size = EVENT_BYTES + encoded_bytes(reason)
    if not draft.has_room(size + EVENT_BYTES * len(node.held), 1 + len(node.held)):
        return Refusal("busy", f"expected room in this commit for all that {node.name} held: try again")
    for key, rank in sorted(node.held.items()):
        released(draft, state.runs[key], rank, cause)
    draft.emit(ev.NodeRemoved(cause=cause, node=node.name, by=asked.user, reason=reason), size)
    return None


def _fault_of(state: State, node: Node) -> Refusal | None:
    if not node.lost:
        how = "stop its agent" if not node.on_duty else f"fairlead drain {node.name}, then stop its agent"
        return Refusal(
            "not_lost",
            f"expected a node that is lost, found {node.name}, whose lease still runs: {how}, wait until fairlead nodes "
            "shows it as lost, and try again",
        )
    runs = sorted({state.runs[key].job for key in node.held if state.runs[key].ended != state.runs[key].all_ranks})
    if runs:
        named = ", ".join(runs[:NAMED_MAX]) + (" and others" if len(runs) > NAMED_MAX else "")
        return Refusal(
            "not_empty",
            f"expected a node without runs, found job {named} on {node.name}: cancel it, or, once you have seen that nothing "
            f"runs there, fairlead declare-dead {node.name}",
        )
    if node.keeper or node.name in state.layouts:
        return Refusal("busy", f"expected a node without plans, found {node.name} still in one: try again")
    return None
