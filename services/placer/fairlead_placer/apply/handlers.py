"""Effects of events on the state. The module holds no rules and no refusals: on a valid log every event applies.

`fold` applies a commit of the log. The same `HANDLERS` fold an event and let `decide` try it (`Draft.emit`), so that a
decision sees exactly the effects that its events will have. If the tried events come next in the log, the try is the
fold (`keep`). The handlers are in jobs.py, nodes.py, runs.py, jobs.py, runs.py,
nodes.py and in the packages nodes/ and cutting/.
"""

from fairlead_placer.apply import jobs, nodes, plans, runs
from fairlead_placer.apply import plans as cutfolding
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire.commit import Commit

REPORT_CURSOR = "report."

HANDLERS = {
    **jobs.HANDLERS,
    **nodes.HANDLERS,
    **jobs.RESERVATION_HANDLERS,
    **runs.HANDLERS,
    **nodes.NODE_HEALTH_HANDLERS,
    **plans.HANDLERS,
    **cutfolding.REPARTITION_HANDLERS,
    **nodes.POOL_HANDLERS,
    **runs.IDLE_HANDLERS,
}


def fold(state: ClusterState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer. Events that do not concern the placer change nothing."""
    at_ns, handlers = commit.at_ns, HANDLERS
    for index, event in enumerate(commit.events):
        handler = handlers.get(type(event))
        if handler is not None:
            handler(state, seq, index, at_ns, event)
    if commit.writer == "placer":
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
