"""Table of event handlers for the queue's state. The only way in which the state changes.

No rules, no refusals. The legal moves of jobs are the table in `fairlead_schemas.wire.lifecycle`; the tests check every
handler against it.
"""

from fairlead_bus.core import EventHandlers, EventPosition, merged
from fairlead_queue.apply import jobs, queues, reclaim_requests, runs, services
from fairlead_queue.apply.order_effects import is_settled, note_effect
from fairlead_queue.apply.reclaim_requests import forget_finished_reclaims
from fairlead_queue.state import QueueState
from fairlead_schemas.wire.commit import Commit

WRITER = "queue"


HANDLERS: EventHandlers[QueueState] = merged(
    queues.HANDLERS, jobs.HANDLERS, runs.HANDLERS, reclaim_requests.HANDLERS, services.HANDLERS
)


def fold(state: QueueState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    at_ns = commit.at_ns
    # Writers have clocks of their own; the log's time is that of the fastest, and never steps back. Decisions go by it.
    if at_ns > state.at_ns:
        state.at_ns = at_ns
        for pool in state.pools.values():
            if pool.past is not None and pool.past.tick(at_ns):
                pool.ranking.forget()
                pool.settled = None
    if commit.writer == WRITER:
        state.decided_ns = at_ns
    elif commit.writer == "placer":
        state.heard_ns = state.at_ns
    _apply(state, seq, commit, notes_effects=is_settled(state))  # applying events settles no order
    if state.reclaims:
        forget_finished_reclaims(state)


def _apply(state: QueueState, seq: int, commit: Commit, *, notes_effects: bool) -> None:
    at = EventPosition(seq, 0, commit.at_ns)
    for index, event in enumerate(commit.events):
        handler = HANDLERS.get(type(event))
        if handler is not None:
            at.index = index
            if notes_effects:
                note_effect(state, event)
            handler(state, event, at)
            if state.services or state.nodes.draining:
                services.follow(state, event, at)
