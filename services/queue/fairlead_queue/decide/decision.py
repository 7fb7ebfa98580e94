"""Decisions of the queue, in one fixed order. A decision reads the state and never changes it.

Owed events come first (they free quota and names), then commands, then timers, then tidying. Offers take the room that
is left, so a full commit delays offers, never answers.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_bus.core import Input
from fairlead_queue.decide import configuration
from fairlead_queue.decide.commands import decide_command
from fairlead_queue.decide.draft import QueueDraft, encoded_bytes
from fairlead_queue.decide.offers import make_offers
from fairlead_queue.decide.outcomes import emit_owed
from fairlead_queue.decide.reclaim_requests import reclaim_quota, stop_idle_runs
from fairlead_queue.decide.timers import emit_due
from fairlead_queue.limits import FINISHED_JOBS_MAX, RETIRE_CHUNK, REVIEW_LATEST_NS, REVIEW_NS
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.jobs import Array
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire.events import JobCancelled, JobsRetired, JobStopRequested, QueueConfigured, QueueEvent

DEFAULT_QUEUE = "default"


class QueueDecision(NamedTuple):
    """Result of one decision."""

    events: list[QueueEvent]
    #: This commit's room kept something back for the next decision.
    full: bool
    #: Whether the whole order was looked at, and when time alone could change what came of it (None: never).
    reviewed: bool
    review_at: int | None


def decide(state: QueueState, inputs: Sequence[Input], now_ns: int) -> QueueDecision:
    """Return the events to commit now."""
    plan = QueueDraft(state, now_ns, sum(len(each.body) for each in inputs))
    if not state.queues:
        _configure_default(plan)
    if state.owed:
        emit_owed(plan)
    for each in inputs:
        for command in each.body:
            decide_command(plan, command)
    emit_due(plan)
    if state.idle:
        stop_idle_runs(plan)
    if state.reclaims and plan.outlook is None:
        reclaim_quota(plan)
    if state.stopping:
        for array in sorted(state.stopping.values(), key=lambda array: array.order):
            _stop_elements(plan, array)
    if len(state.finished) > FINISHED_JOBS_MAX:
        _retire(plan)
    reviewed = is_review_due(state, now_ns)
    review_at = make_offers(plan, reviewing=reviewed)
    return QueueDecision(plan.events, plan.full, reviewed, review_at)


def is_review_due(state: QueueState, now_ns: int) -> bool:
    """Return True if no commit was made since the last whole REVIEW_NS, by the queue's own clock. Where other writers' clocks
    are ahead, only the queue's own commits count. Return True in any case when the queue has committed nothing for long:
    in a busy log other writers often commit first.
    """
    last_ns = state.at_ns if state.at_ns <= now_ns else state.decided_ns
    return now_ns // REVIEW_NS > last_ns // REVIEW_NS or now_ns >= state.decided_ns + REVIEW_LATEST_NS


def _configure_default(plan: QueueDraft) -> None:
    settings = QueueSettings()
    plan.emit(QueueConfigured(cause="clock", path=DEFAULT_QUEUE))
    before = configuration.current_configuration(plan.state)
    plan.outlook = before._replace(queues={DEFAULT_QUEUE: settings})
    plan.reshaped = True


def _stop_elements(plan: QueueDraft, array: Array) -> None:
    """Carry an array's stop to its live elements while the commit has room."""
    by_bytes = encoded_bytes(array.stop_by)
    for element in array.live.values():
        state = plan.states.get(element.id, element.state)
        limited = state == "stopping" and element.id not in plan.states and element.awaits_cancel
        if not limited and state not in ("scheduled", "queued", "held", "offered", "placed", "running"):
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        if state in ("queued", "held"):
            plan.emit(
                JobCancelled(cause=array.cause, job=element.id, by=array.stop_by, attempt=element.attempt), by_bytes
            )
            plan.states[element.id] = "cancelled"
        else:
            plan.emit(
                JobStopRequested(
                    cause=array.cause,
                    job=element.id,
                    attempt=element.attempt,
                    reason="cancelled",
                    by=array.stop_by,
                    save=array.stop_saves,
                ),
                by_bytes,
            )
            plan.states[element.id] = "stopping"


def _retire(plan: QueueDraft) -> None:
    """The oldest finished jobs leave, a chunk at a time."""
    if plan.room() <= 0:
        plan.full = True
        return
    oldest = iter(plan.state.finished)
    jobs = tuple(next(oldest) for _ in range(RETIRE_CHUNK))
    plan.emit(JobsRetired(cause="clock", jobs=jobs), extra_bytes=sum(len(job) + 3 for job in jobs))
