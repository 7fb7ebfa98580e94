"""Table of event handlers for the queue's state. The only way in which the state changes.

No rules, no refusals. The legal moves of jobs are the table in `fairlead_schemas.wire.lifecycle`; the tests check every
handler against it.
"""

from typing import Any

from fairlead_queue.apply import jobs, queues, reclaim_requests, runs
from fairlead_queue.apply.reclaim_requests import forget_finished_reclaims
from fairlead_queue.state import QueueState
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

WRITER = "queue"
#: What is not listed changes nothing here.
HANDLERS: dict[type[ev.EventBase], Any] = queues.HANDLERS | (jobs.HANDLERS | runs.HANDLERS | reclaim_requests.HANDLERS)


def evolve(state: QueueState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    at_ns = commit.at_ns
    # Writers have clocks of their own; the log's time is that of the fastest, and never steps back. Decisions go by it.
    if at_ns > state.at_ns:
        state.at_ns = at_ns
        for pool in state.pools.values():
            if pool.past is not None and pool.past.tick(at_ns):
                pool.ranking.forget()
    if commit.writer == WRITER:
        state.decided_ns = at_ns
    elif commit.writer == "placer":
        state.heard_ns = state.at_ns
    handlers, prefix = HANDLERS, f"{seq}."
    for index, event in enumerate(commit.events):
        handler = handlers.get(type(event))
        if handler is not None:
            handler(state, event, f"{prefix}{index}", at_ns)
    if state.reclaims:
        forget_finished_reclaims(state)
