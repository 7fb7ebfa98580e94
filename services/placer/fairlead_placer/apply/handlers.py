"""Table of event handlers for the placer's state. The only way in which the state changes.

No rules, no refusals: on a valid log every event applies. The same handlers fold an event and apply it speculatively
(`PlacerDraft.emit`), so that a decision sees exactly the effects that its events will have.
"""

from fairlead_bus.core import EventHandlers, apply_events, merged
from fairlead_placer.apply import jobs, nodes, plans, runs
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire.commit import Commit

WRITER = "placer"
REPORT_CURSOR = "report."
HANDLERS: EventHandlers[ClusterState] = merged(jobs.HANDLERS, nodes.HANDLERS, plans.HANDLERS, runs.HANDLERS)


def fold(state: ClusterState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    apply_events(HANDLERS, state, seq, commit)
    if commit.writer == WRITER:
        _consume(state, commit.cursors)
    state.sequence = seq


def confirm(state: ClusterState, seq: int, commit: Commit) -> None:
    """Fold the placer's own commit, whose events, and no others, are already tried on the state as those of `seq`."""
    state.keep()
    _consume(state, commit.cursors)
    state.sequence = seq


def _consume(state: ClusterState, cursors: dict[str, int]) -> None:
    for name, position in cursors.items():
        if name.startswith(REPORT_CURSOR):
            node = state.nodes[name[len(REPORT_CURSOR) :]]
            node.reported = position
            state.advanced.add(node.name)
        else:
            state.cursors[name] = position
