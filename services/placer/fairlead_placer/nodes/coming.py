"""Nodes join, go silent and return, and what ran on those that are lost ends. Emits on a draft."""

import msgspec

from fairlead_placer.cutting import ending
from fairlead_placer.draft import EVENT_BYTES, Draft
from fairlead_placer.entities import Node
from fairlead_placer.nodes import fencing
from fairlead_placer.runs import end_all
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen

#: The taint of a silent node.
QUIET = "fairlead/silent:NoSchedule"


def joined(draft: Draft, name: str, incarnation: str, report: InventorySeen, cause: str) -> bool:
    """A node under a new journal: nothing of what it held can run on, its agent has cleared it away.

    False when ending that filled the commit: the report is then not consumed and will come again.
    """
    node = draft.state.nodes.get(name)
    if node is not None:
        outcome = "exit_unknown" if node.boot_id == report.boot_id else "node_rebooted"
        if not _clear(draft, node, outcome, cause):
            return False
        ending.began_anew(draft, node)
    _take_stock(
        draft,
        ev.NodeJoined(
            cause=cause, node=name, incarnation=incarnation, boot_id=report.boot_id, inventory=report.inventory
        ),
    )
    return True


def seen_again(draft: Draft, node: Node, report: InventorySeen, cause: str) -> bool:
    """Process a new inventory of the same agent. A new boot ends the runs of the old one; False as for `joined`."""
    if node.boot_id != report.boot_id:
        if not _clear(draft, node, "node_rebooted", cause):
            return False
        ending.began_anew(draft, node)
    if node.boot_id != report.boot_id or node.inventory != report.inventory:
        _take_stock(
            draft, ev.NodeChanged(cause=cause, node=node.name, boot_id=report.boot_id, inventory=report.inventory)
        )
    ending.answered(draft, node, report, cause)
    return True


def _take_stock(draft: Draft, event: ev.NodeJoined | ev.NodeChanged) -> None:
    """Emit the event with its counted bytes. An estimate would not do: a thousand nodes may join at once, with names and
    insides of any length. EVENT_BYTES is then for the cursor that goes along.
    """
    draft.emit(event, EVENT_BYTES + len(msgspec.json.encode(event)))


def _clear(draft: Draft, node: Node, outcome: ev.RunOutcome, cause: str) -> bool:
    """End and return everything that the node held. If that takes several commits, the node is lost meanwhile: otherwise the
    freed room would be given out again under the agent that is gone.
    """
    if end_all(draft, node, outcome, clean=True, cause=cause):
        return True
    silent(draft, node.name, 0)
    return False


def silent(draft: Draft, name: str, silent_ns: int) -> None:
    """Mark the node as lost after a whole lease of silence. Its runs are ended by `fencing.fence_lost`; on a repeat after a
    longer silence they are ended here.
    """
    node = draft.state.nodes.get(name)
    if node is not None and node.lost:
        fencing.silent_for(draft, node, silent_ns)
    elif node is not None:
        draft.emit(ev.NodeLost(cause="clock", node=name, silent_ns=silent_ns))


def quiet(draft: Draft, name: str) -> None:
    """No word for some beats: the node keeps what runs there and is given nothing new, long before its lease is over."""
    node = draft.state.nodes.get(name)
    if node is not None and not node.lost and not is_quiet(node):
        draft.emit(ev.NodeTainted(cause="clock", node=name, taint=QUIET, setter="silence"))


def is_quiet(node: Node) -> bool:
    """True while the node is given nothing because it is silent."""
    return (QUIET, "silence") in node.tainted


def heard(draft: Draft, name: str, cause: str) -> None:
    """A lost or quiet node speaks again."""
    node = draft.state.nodes.get(name)
    if node is not None and node.lost and fencing.may_return(draft, node):
        draft.emit(ev.NodeReturned(cause=cause, node=name))
        node = draft.state.nodes[name]
    if node is not None and is_quiet(node) and not node.lost:
        draft.emit(ev.NodeUntainted(cause=cause, node=name, taint=QUIET, setter="silence"))
