"""Nodes come, go silent, return, and are cordoned or drained. Emits on a draft."""

from typing import assert_never

import msgspec

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import DRAINING, Node
from fairlead_placer.runs import end_all
from fairlead_schemas import events as ev
from fairlead_schemas.commands import CordonNode, DrainNode, PlacerCommand, UncordonNode, Undecodable
from fairlead_schemas.quantities import DURATION_NS_MAX
from fairlead_schemas.reports import InventorySeen

#: So much of what others wrote is repeated in an event.
MESSAGE_CHARS_MAX = 500
DEADLINE_NS_MAX = DURATION_NS_MAX


# ---------------------------------------------------------------------------- coming and going


def joined(draft: Draft, name: str, incarnation: str, report: InventorySeen, cause: str) -> bool:
    """A node under a new journal: nothing of what it held can run on, its agent has cleared it away.

    False when ending that filled the commit: the report is then not consumed and will come again.
    """
    node = draft.state.nodes.get(name)
    if node is not None:
        outcome = "exit_unknown" if node.boot_id == report.boot_id else "node_rebooted"
        if not _clear(draft, node, outcome, cause):
            return False
    _take_stock(
        draft,
        ev.NodeJoined(
            cause=cause, node=name, incarnation=incarnation, boot_id=report.boot_id, inventory=report.inventory
        ),
    )
    return True


def seen_again(draft: Draft, node: Node, report: InventorySeen, cause: str) -> bool:
    """The same agent took stock anew. A new boot ends what ran on the old one; False as for `joined`."""
    if node.boot_id != report.boot_id and not _clear(draft, node, "node_rebooted", cause):
        return False
    if node.boot_id != report.boot_id or node.inventory != report.inventory:
        _take_stock(
            draft, ev.NodeChanged(cause=cause, node=node.name, boot_id=report.boot_id, inventory=report.inventory)
        )
    return True


def _take_stock(draft: Draft, event: ev.NodeJoined | ev.NodeChanged) -> None:
    """Its bytes are counted, not guessed: a thousand nodes may join at once, with names and insides of any length.
    EVENT_BYTES is then for the cursor that goes along."""
    draft.emit(event, EVENT_BYTES + len(msgspec.json.encode(event)))


def _clear(draft: Draft, node: Node, outcome: ev.RunOutcome, cause: str) -> bool:
    """End and give back all that the node held. Where that takes several commits the node is lost meanwhile, or
    what comes free would be placed anew under the agent that is gone."""
    if end_all(draft, node, outcome, clean=True, cause=cause):
        return True
    silent(draft, node.name, 0)
    return False


def silent(draft: Draft, name: str, silent_ns: int) -> None:
    """No word for the whole lease: the node is lost. Its runs are ended by `fence_lost`."""
    node = draft.state.nodes.get(name)
    if node is not None and not node.lost:
        draft.emit(ev.NodeLost(cause="clock", node=name, silent_ns=silent_ns))


def heard(draft: Draft, name: str, cause: str) -> None:
    """A lost node speaks again. Not before all that ran on it is recorded as ended."""
    node = draft.state.nodes.get(name)
    if node is not None and node.lost and not node.live:
        draft.emit(ev.NodeReturned(cause=cause, node=name))


def fence_lost(draft: Draft) -> None:
    """End what lives on lost nodes. Driven by state, so that more than one commit's worth is done in several."""
    for node in [n for n in _closed(draft) if n.lost and n.live]:
        if not end_all(draft, node, "node_lost", clean=False, cause="clock"):
            return


# ---------------------------------------------------------------------------- cordon and drain


def command(draft: Draft, asked: PlacerCommand | Undecodable) -> None:
    """Carry out one command, or record why not."""
    if isinstance(asked, Undecodable):
        _rejected(draft, asked.id or asked.digest[:16], "undecodable", asked.message, asked.digest)
        return
    if asked.node not in draft.state.nodes:
        message = f'expected the name of a known node, found "{asked.node[:80]}"'
        _rejected(draft, asked.id, "not_found", message)
        return
    cause, by, node = f"cmd:{asked.id}", asked.user, asked.node
    match asked:
        case CordonNode():
            draft.emit(ev.NodeCordoned(cause=cause, node=node, by=by, reason=asked.reason[:MESSAGE_CHARS_MAX]))
        case UncordonNode():
            draft.emit(ev.NodeUncordoned(cause=cause, node=node, by=by))
        case DrainNode():
            # Far deadlines are as good as none, and their sum must stay an ordinary integer.
            deadline_ns = draft.now_ns + asked.deadline_ns if 0 < asked.deadline_ns <= DEADLINE_NS_MAX else 0
            reason = asked.reason[:MESSAGE_CHARS_MAX]
            draft.emit(ev.NodeDraining(cause=cause, node=node, by=by, reason=reason, deadline_ns=deadline_ns))
        case _:
            assert_never(asked)


def _rejected(draft: Draft, command_id: str, code: str, message: str, digest: str = "") -> None:
    message = message[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeCommandRejected(
            cause=f"cmd:{command_id}", command=command_id, code=code, message=message, digest=digest
        ),
        EVENT_BYTES + encoded_bytes(message),
    )


def drains(draft: Draft) -> None:
    """Deadlines that have come (NodeDraining once more, its deadline passed), and drains that are done."""
    for node in [n for n in _closed(draft) if n.duty == DRAINING]:
        if draft.full:
            return
        if 0 < node.deadline_ns <= draft.now_ns:
            draft.emit(
                ev.NodeDraining(
                    cause="clock", node=node.name, by=node.by, reason=node.reason, deadline_ns=node.deadline_ns
                )
            )
        if not node.held:
            draft.emit(ev.NodeDrained(cause=node.cause, node=node.name))


def _closed(draft: Draft) -> list[Node]:
    return [draft.state.nodes[name] for name in sorted(draft.state.closed)]
