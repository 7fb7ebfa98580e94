"""Queues that shall give back what they hold beyond their limits, as a person asked with a change (`reclaim`): the state
of that. Called by `evolve`; what is done about it is in `decide/reclaim_requests.py`.

Effects of telemetry's events about idle runs: reclaim requested, used again, extended.

A request is withdrawn only before it has been acted upon. A program that was asked to end is busy ending, and that is
no sign of life. The order of the log therefore decides between a returning user and the stop. Before the stop, the run
is spared. If the stop was decided without having seen the return, the job waits again instead of ending.
"""

from typing import Any, NamedTuple

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_queue.fairness import quota
from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import NOTIFY_ONLY, IdleReclaim
from fairlead_queue.waiting.pending import LiveJob, PoolState
from fairlead_schemas.wire import events as ev


class OverLimit(NamedTuple):
    """A queue (or a user's part of one) that gives back what it holds beyond its limits."""

    pool: PoolState
    node: QueueNode


def note_reclaim(state: QueueState, cause: str, by: str) -> None:
    """From here on, all that hold more than they may give it back."""
    for pool in state.pools.values():
        for node in pool.tree.nodes.values():
            if any(excess(node)):
                state.reclaims[node.path] = (cause, by)


def forget_finished_reclaims(state: QueueState) -> None:
    """Forget the reclaim requests of queues that are within their limits again."""
    for path in list(state.reclaims):
        over = find_reclaim(state, path)
        if over is None or not any(excess(over.node)):
            del state.reclaims[path]


def find_reclaim(state: QueueState, path: str) -> OverLimit | None:
    """Return the queue or user named by a path of the state's reclaim requests, None if it is gone."""
    queue = state.queues.get(quota.split_user(path)[0])
    node = queue.pool.tree.nodes.get(path) if queue is not None else None
    return OverLimit(queue.pool, node) if queue is not None and node is not None else None


def excess(node: QueueNode) -> list[int]:
    """By resource, what is charged beyond the limit."""
    return [max(0, used - ceiling) for used, ceiling in zip(node.usage, node.ceiling, strict=True)]


def _live_run(state: QueueState, event: Any) -> LiveJob | None:
    """Return the run that is meant, if it is still alive; an event for an attempt that is over, or on its way out, is too
    late.
    """
    job = state.jobs.get(event.job)
    if job is None or job.attempt != event.attempt or job.state not in ("placed", "running"):
        return None
    return None if job.end is not None or job.yields_to else job


def _reclaim_requested(state: QueueState, event: ev.ReclaimRequested, at: EventPosition) -> None:
    job = _live_run(state, event)
    if job is None or event.action in NOTIFY_ONLY:
        return
    reclaim = IdleReclaim(at.id, event.scope, event.rule, event.action, event.on_demand, state.at_ns)
    state.set_idle_reclaims(job, (*_without(job, event.rule), reclaim))


def _active(state: QueueState, event: ev.JobActive, at: EventPosition) -> None:
    job = _live_run(state, event)
    if job is not None:
        state.set_idle_reclaims(job, _without(job, event.rule))


def _extended(state: QueueState, event: ev.JobExtended, at: EventPosition) -> None:
    job = _live_run(state, event)
    if job is not None:
        state.set_idle_reclaims(job, ())


def _without(job: LiveJob, rule: str) -> tuple[IdleReclaim, ...]:
    return tuple(reclaim for reclaim in job.idle if reclaim.rule != rule)


HANDLERS: EventHandlers[QueueState] = {
    ev.ReclaimRequested: _reclaim_requested,
    ev.JobActive: _active,
    ev.JobExtended: _extended,
}
