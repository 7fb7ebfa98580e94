"""The breaker: what acts on nodes by itself asks here first. Emits on a draft.

Too many nodes taken out of work in a short time, or too many that fall silent at once, say more about us than about
them: a bad check, a bad image, a placer that cannot hear. Then automatic action stops until a person resets it; there
is no reset by time. What people ask for is never held.
"""

from fairlead_bus.core import CommandRefusal
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.nodes import ACTS_WITHIN_NS
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ResetBreaker

#: Of all nodes at most this share within ACTS_WITHIN_NS, and always one (the share that NVSentinel's breaker asks for, too).
ACTS_PER_CENT = 10
#: More losses than a fifth of the nodes, or than ten, in a minute; two are never too many.
LOSSES_WITHIN_NS = MINUTE_NS
LOSSES_PER_CENT, LOSSES_MAX, LOSSES_LEAST = 20, 10, 2


def is_open(state: ClusterState) -> bool:
    """True while nothing may be done to nodes by itself."""
    return bool(state.tripped)


def holds_losses(state: ClusterState) -> bool:
    """True while the runs of lost nodes are not ended: too many were lost at once."""
    return "loss" in state.tripped


def allows(draft: PlacerDraft, name: str) -> bool:
    """True when the node may be taken out of work; the one that is too many trips the breaker."""
    state = draft.state
    if state.tripped:
        return False
    since = draft.now_ns - ACTS_WITHIN_NS
    found = len({node for node, at_ns in state.acts.items() if at_ns > since} | {name})
    allowed = max(1, len(state.nodes) * ACTS_PER_CENT // 100)
    if found > allowed:
        _trip(draft, "nodes", found, allowed)
    return found <= allowed


def watch_losses(draft: PlacerDraft) -> None:
    """Trip it when too many nodes have just been lost."""
    state = draft.state
    if holds_losses(state):
        return
    since = max(draft.now_ns - LOSSES_WITHIN_NS, state.reset_ns)
    found = sum(node.lost and node.lost_ns > since for node in map(state.nodes.__getitem__, state.closed))
    allowed = min(LOSSES_MAX, max(LOSSES_LEAST, len(state.nodes) * LOSSES_PER_CENT // 100))
    if found > allowed:
        _trip(draft, "loss", found, allowed)


def _trip(draft: PlacerDraft, kind: ev.BreakerKind, found: int, allowed: int) -> None:
    of = len(draft.state.nodes)
    draft.emit(ev.BreakerTripped(cause="clock", kind=kind, found=found, allowed=allowed, of=of))


def reset(draft: PlacerDraft, asked: ResetBreaker, cause: str) -> CommandRefusal | None:
    """A person has looked."""
    if not draft.state.tripped:
        return CommandRefusal("not_tripped", "expected a breaker that has tripped: nothing is held")
    draft.emit(ev.BreakerReset(cause=cause, by=asked.user))
    return None
