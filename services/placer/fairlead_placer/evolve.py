"""How events change the state. No rules, no refusals: on a valid log every event applies.

`fold` takes a commit of the log. `apply` takes one event: the same function folds it and lets `decide` try it,
so what a decision expects of its own events is what they will do. What each event does stands in evolve_jobs.py,
evolve_nodes.py, evolve_runs.py, evolve_kept.py, evolve_idle.py, evolve_pools.py and in the rooms nodes/ and cutting/.
"""

from fairlead_placer import evolve_idle, evolve_jobs, evolve_kept, evolve_nodes, evolve_pools, evolve_runs
from fairlead_placer.cutting import folding as cutfolding
from fairlead_placer.nodes import folding, planfolding
from fairlead_placer.state import State
from fairlead_schemas import events as ev
from fairlead_schemas.commit import Commit

REPORT_CURSOR = "report."

_HANDLERS = {
    **evolve_jobs.HANDLERS, **evolve_nodes.HANDLERS, **evolve_kept.HANDLERS, **evolve_runs.HANDLERS,
    **folding.HANDLERS, **planfolding.HANDLERS, **cutfolding.HANDLERS, **evolve_pools.HANDLERS,
    **evolve_idle.HANDLERS,
}  # fmt: skip


def fold(state: State, seq: int, commit: Commit) -> None:
    """Fold one commit, whoever wrote it. Events that do not concern the placer change nothing."""
    at_ns, handlers = commit.at_ns, _HANDLERS
    for index, event in enumerate(commit.events):
        handler = handlers.get(type(event))
        if handler is not None:
            handler(state, seq, index, at_ns, event)
    if commit.writer == "placer":
        for name, position in commit.cursors.items():
            _consume(state, name, position)
    state.sequence = seq


def _consume(state: State, name: str, position: int) -> None:
    if not name.startswith(REPORT_CURSOR):
        state.cursors[name] = position
        return
    node = state.nodes[name[len(REPORT_CURSOR) :]]
    if node.reported != position:
        node.reported = position
        state.advanced.add(node.name)


def apply(state: State, seq: int, index: int, at_ns: int, event: ev.Event) -> None:
    """Fold one event of the commit at `seq`, or try it (`Draft.emit`)."""
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, seq, index, at_ns, event)
