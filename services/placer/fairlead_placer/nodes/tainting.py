"""Taints by command. Emits on a draft. A person removes what people set; what health or the inventory says of the node
goes when that changes."""

from fairlead_placer.draft import Draft
from fairlead_placer.entities import Node
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_schemas.units.taints import TAINTS_MAX, TaintError, matches, parse_full_taint, parse_pattern
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import TaintNode, UntaintNode


def taint(draft: Draft, asked: TaintNode, cause: str) -> Refusal | None:
    """Set a taint on a node. A repeated command emits the event again."""
    try:
        wanted = str(parse_full_taint(asked.taint))
    except TaintError as error:
        return Refusal("bad_taint", str(error))
    if len(_of_people(draft.state.nodes[asked.node])) >= TAINTS_MAX:
        return Refusal("too_many", f"expected at most {TAINTS_MAX} taints on a node")
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(ev.NodeTainted(cause=cause, node=asked.node, taint=wanted, by=asked.user, reason=reason))
    return None


def untaint(draft: Draft, asked: UntaintNode, cause: str) -> Refusal | None:
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
        return Refusal("not_yours", message)
    return Refusal("not_found", f'expected a taint of {asked.node}, found none that matches "{asked.taint[:80]}"')


def _of_people(node: Node) -> list[str]:
    return [taint for taint, setter in node.tainted if setter == "person"]
