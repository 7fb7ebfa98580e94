"""Fencing of the runs of a lost node: the time at which each counts as ended there, and may be started elsewhere. Emits on
a draft.

A lost node has ended its own work, unless a job may run longer. A strict job waits for proof: its node's own report,
its reboot or a new journal (`coming.py`), or a person's statement. If too many nodes were lost at once, no run is
ended: the fault may then be on the receiving side.
"""

from collections.abc import Iterator

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import Node, Run, Verdict
from fairlead_placer.nodes import breaker
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_placer.runs import rank_ended
from fairlead_placer.state import State
from fairlead_placer.timeline.learning import job_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DeclareNodeDead

#: The job ends with such a run, even if another copy may still run: nothing is started elsewhere.
FINAL_STOPS = ("cancelled", "time_limit")


def fence_lost(draft: Draft) -> None:
    """End what waits for nothing on lost nodes. Driven by state, so that more than one commit's worth is done in several."""
    for node in [] if breaker.holds_losses(draft.state) else list(_lost(draft.state)):
        if not _end(draft, [each for each in _live(draft.state, node) if ends_now(draft.state, node, each[0])]):
            return


def is_due(state: State) -> bool:
    """Return True if `fence_lost` has work: a stop may have come since the node was lost."""
    if not state.closed or breaker.holds_losses(state):
        return False
    return any(ends_now(state, node, run) for node in _lost(state) for run, _ in _live(state, node))


def silent_for(draft: Draft, node: Node, silent_ns: int) -> None:
    """End what says that it may be started elsewhere after so long. The length is measured by who listens, whose clock does not
    jump; it is not folded, since the ends are."""
    if not breaker.holds_losses(draft.state):
        waiting = _live(draft.state, node)
        _end(draft, [each for each in waiting if 0 < _replace_after_ns(draft.state, each[0]) <= silent_ns])


def next_after_ns(state: State, node: Node) -> int | None:
    """The silence after which `silent_for` has something to do; None where nothing waits for that."""
    if not node.lost or not node.live or breaker.holds_losses(state):
        return None
    after = [_replace_after_ns(state, run) for run, _ in _live(state, node) if not ends_now(state, node, run)]
    return min((each for each in after if each > 0), default=None)


def ends_now(state: State, node: Node, run: Run) -> bool:
    """Return True if a run counts as ended as soon as its node is lost, or by now."""
    return node.dead or run.stop in FINAL_STOPS or _replace_after_ns(state, run) == 0


def may_return(draft: Draft, node: Node) -> bool:
    """Return True if a lost node may be readmitted, which excludes due ends that are not recorded yet. Runs still withheld
    belong to the node, and its agent reports their fate.
    """
    state = draft.state
    if not node.live or breaker.holds_losses(state):
        return True
    return not any(ends_now(state, node, run) for run, _ in _live(state, node))


def declare_dead(draft: Draft, asked: DeclareNodeDead, cause: str) -> Refusal | None:
    """A person has seen that nothing runs there."""
    node = draft.state.nodes[asked.node]
    if not node.lost:
        return Refusal(
            "not_lost",
            f"expected a node that is lost, found {asked.node}, whose lease still runs: wait until fairlead nodes shows it as "
            f"lost, or fairlead drain {asked.node}",
        )
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    event = ev.NodeDeclaredDead(cause=cause, node=asked.node, by=asked.user, reason=reason)
    draft.emit(event, EVENT_BYTES + encoded_bytes(reason))
    return None


def _end(draft: Draft, due: list[tuple[Run, int]]) -> bool:
    """False when the commit is full first."""
    for run, rank in due:
        if draft.full:
            return False
        rank_ended(draft, run, Verdict("node_lost", None, None, rank, ""), False, "clock")
    return True


def _replace_after_ns(state: State, run: Run) -> int:
    """0 for a job that says nothing, or is gone; below 0 for a strict one."""
    job = job_of(state, run)
    return 0 if job is None else job.on_partition.replace_after_ns


def _lost(state: State) -> Iterator[Node]:
    nodes = (state.nodes[name] for name in sorted(state.closed))
    return (node for node in nodes if node.lost and node.live)


def _live(state: State, node: Node) -> list[tuple[Run, int]]:
    held = ((state.runs[key], node.held[key]) for key in sorted(node.held))
    return [(run, rank) for run, rank in held if not run.ended >> rank & 1]
