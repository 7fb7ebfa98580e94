"""Nodes join, go silent and return, and what ran on those that are lost ends; and removal of nodes from the cluster for
good, by a person. Emits on a draft.

The effect of the event is in apply/nodes.py.

A node is removed once no run is possible there: it is lost, and every run that had a part on it has ended. Devices that
it never reported as clean are released with it. The ids of its journals are remembered. An agent that returns with one
of them would continue with numbers and runs of a closed past. It is asked to begin a new journal, and before that it
ends whatever it finds.
"""

import msgspec

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import fencing
from fairlead_placer.decide.run_lifecycle import end_all, released
from fairlead_placer.scheduling import repartition
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import RemoveNode
from fairlead_schemas.wire.reports import InventorySeen

#: The taint of a silent node.
QUIET = "fairlead/silent:NoSchedule"


def joined(draft: PlacerDraft, name: str, incarnation: str, report: InventorySeen, cause: str) -> bool:
    """A node under a new journal: nothing of what it held can run on, its agent has cleared it away.

    False when ending that filled the commit: the report is then not consumed and will come again.
    """
    node = draft.state.nodes.get(name)
    if node is not None:
        outcome: ev.RunOutcome = "exit_unknown" if node.boot_id == report.boot_id else "node_rebooted"
        if not _clear(draft, node, outcome, cause):
            return False
        repartition.agent_restarted(draft, node)
    _take_stock(
        draft,
        ev.NodeJoined(
            cause=cause, node=name, incarnation=incarnation, boot_id=report.boot_id, inventory=report.inventory
        ),
    )
    return True


def seen_again(draft: PlacerDraft, node: ClusterNode, report: InventorySeen, cause: str) -> bool:
    """Process a new inventory of the same agent. A new boot ends the runs of the old one; False as for `joined`."""
    if node.boot_id != report.boot_id:
        if not _clear(draft, node, "node_rebooted", cause):
            return False
        repartition.agent_restarted(draft, node)
    if node.boot_id != report.boot_id or node.inventory != report.inventory:
        _take_stock(
            draft, ev.NodeChanged(cause=cause, node=node.name, boot_id=report.boot_id, inventory=report.inventory)
        )
    repartition.process_report(draft, node, report, cause)
    return True


def _take_stock(draft: PlacerDraft, event: ev.NodeJoined | ev.NodeChanged) -> None:
    """Emit the event with its counted bytes. An estimate would not do: a thousand nodes may join at once, with names and
    insides of any length. EVENT_BYTES is then for the cursor that goes along.
    """
    draft.emit(event, len(msgspec.json.encode(event)))


def _clear(draft: PlacerDraft, node: ClusterNode, outcome: ev.RunOutcome, cause: str) -> bool:
    """End and return everything that the node held. If that takes several commits, the node is lost meanwhile: otherwise the
    freed room would be given out again under the agent that is gone.
    """
    if end_all(draft, node, outcome, clean=True, cause=cause):
        return True
    silent(draft, node.name, 0)
    return False


def silent(draft: PlacerDraft, name: str, silent_ns: int) -> None:
    """Mark the node as lost after a whole lease of silence. Its runs are ended by `fencing.fence_lost`; on a repeat after a
    longer silence they are ended here.
    """
    node = draft.state.nodes.get(name)
    if node is not None and node.lost:
        fencing.silent_for(draft, node, silent_ns)
    elif node is not None:
        draft.emit(ev.NodeLost(cause="clock", node=name, silent_ns=silent_ns))


def quiet(draft: PlacerDraft, name: str) -> None:
    """No word for some beats: the node keeps what runs there and is given nothing new, long before its lease is over."""
    node = draft.state.nodes.get(name)
    if node is not None and not node.lost and not is_quiet(node):
        draft.emit(ev.NodeTainted(cause="clock", node=name, taint=QUIET, setter="silence"))


def is_quiet(node: ClusterNode) -> bool:
    """True while the node is given nothing because it is silent."""
    return (QUIET, "silence") in node.tainted


def heard(draft: PlacerDraft, name: str, cause: str) -> None:
    """A lost or quiet node speaks again."""
    node = draft.state.nodes.get(name)
    if node is not None and node.lost and fencing.may_return(draft, node):
        draft.emit(ev.NodeReturned(cause=cause, node=name))
        node = draft.state.nodes[name]
    if node is not None and is_quiet(node) and not node.lost:
        draft.emit(ev.NodeUntainted(cause=cause, node=name, taint=QUIET, setter="silence"))


#: Jobs that a refusal names.
NAMED_MAX = 5


def remove(draft: PlacerDraft, asked: RemoveNode, cause: str) -> CommandRefusal | None:
    """Forget the node, and give back what is left of ended runs on it."""
    state = draft.state
    node, reason = state.nodes[asked.node], asked.reason[:MESSAGE_CHARS_MAX]
    wrong = _fault_of(state, node)
    if wrong is not None:
        return wrong
    reason_bytes = encoded_bytes(reason)
    if not draft.has_room(reason_bytes, 1 + len(node.held)):
        return CommandRefusal("busy", f"expected room in this commit for all that {node.name} held: try again")
    for key, rank in sorted(node.held.items()):
        released(draft, state.runs[key], rank, cause)
    draft.emit(ev.NodeRemoved(cause=cause, node=node.name, by=asked.user, reason=reason), reason_bytes)
    return None


def _fault_of(state: ClusterState, node: ClusterNode) -> CommandRefusal | None:
    if not node.lost:
        how = "stop its agent" if not node.on_duty else f"fairlead drain {node.name}, then stop its agent"
        return CommandRefusal(
            "not_lost",
            f"expected a node that is lost, found {node.name}, whose lease still runs: {how}, wait until fairlead nodes "
            "shows it as lost, and try again",
        )
    runs = sorted({state.runs[key].job for key in node.held if state.runs[key].ended != state.runs[key].all_ranks})
    if runs:
        named = ", ".join(runs[:NAMED_MAX]) + (" and others" if len(runs) > NAMED_MAX else "")
        return CommandRefusal(
            "not_empty",
            f"expected a node without runs, found job {named} on {node.name}: cancel it, or, once you have seen that nothing "
            f"runs there, fairlead declare-dead {node.name}",
        )
    if node.keeper or node.name in state.layouts:
        return CommandRefusal("busy", f"expected a node without plans, found {node.name} still in one: try again")
    return None
