"""Decisions of the queue, in one fixed order. A decision reads the state and never changes it.

Owed events come first (they free quota and names), then commands, then timers, then tidying. Offers take the room that
is left, so a full commit delays offers, never answers.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_bus.core import Input, authority_bytes, encoded_bytes, names_bytes
from fairlead_queue.decide import configuration
from fairlead_queue.decide.commands import decide_command
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.offers import make_offers
from fairlead_queue.decide.outcomes import emit_owed
from fairlead_queue.decide.queue_closing import withdraw_held
from fairlead_queue.decide.reclaim_requests import reclaim_quota, stop_idle_runs
from fairlead_queue.decide.services import reconcile_services
from fairlead_queue.decide.timers import emit_due
from fairlead_queue.limits import FINISHED_JOBS_MAX, RETIRE_CHUNK, REVIEW_LATEST_NS, REVIEW_NS
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array
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
    commands = [command for each in inputs for command in each.body]
    authorities = [command.authority for command in commands if command.authority is not None]
    draft = QueueDraft(state, now_ns, len(commands), sum(map(authority_bytes, authorities)))
    if not state.queues:
        _configure_default(draft)
    if state.owed:
        emit_owed(draft)
    for command in commands:
        decide_command(draft, command)
    emit_due(draft)
    if draft.closures.held:
        withdraw_held(draft)
    if state.idle:
        stop_idle_runs(draft)
    if state.reclaims and draft.outlook is None:
        reclaim_quota(draft)
    if state.stopping:
        for array in sorted(state.stopping.values(), key=lambda array: array.order):
            _stop_elements(draft, array)
    if state.restless:
        reconcile_services(draft)
    if len(state.finished) > FINISHED_JOBS_MAX:
        _retire(draft)
    reviewed = is_review_due(state, now_ns)
    review_at = make_offers(draft, reviewing=reviewed)
    return QueueDecision(draft.events, draft.full, reviewed, review_at)


def is_review_due(state: QueueState, now_ns: int) -> bool:
    """Return True if no commit was made since the last whole REVIEW_NS, by the queue's own clock. Where other writers' clocks
    are ahead, only the queue's own commits count. Return True in any case when the queue has committed nothing for long:
    in a busy log other writers often commit first.
    """
    last_ns = state.at_ns if state.at_ns <= now_ns else state.decided_ns
    return now_ns // REVIEW_NS > last_ns // REVIEW_NS or now_ns >= state.decided_ns + REVIEW_LATEST_NS


def _configure_default(draft: QueueDraft) -> None:
    settings = QueueSettings()
    draft.emit(QueueConfigured(cause="clock", path=DEFAULT_QUEUE))
    before = configuration.current_configuration(draft.state)
    draft.outlook = before._replace(queues={DEFAULT_QUEUE: settings})
    draft.reshaped = True


def _stop_elements(draft: QueueDraft, array: Array) -> None:
    """Carry an array's stop to its live elements while the commit has room."""
    by_bytes = encoded_bytes(array.stop_by)
    for element in array.live.values():
        state = draft.states.get(element.id, element.state)
        limited = state == "stopping" and element.id not in draft.states and element.awaits_cancel
        if not limited and state not in ("scheduled", "queued", "held", "offered", "placed", "running"):
            continue
        if not draft.has_room():
            return
        if state in ("queued", "held"):
            draft.emit(
                JobCancelled(cause=array.cause, job=element.id, by=array.stop_by, attempt=element.attempt), by_bytes
            )
            draft.states[element.id] = "cancelled"
        else:
            draft.emit(
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
            draft.states[element.id] = "stopping"


def _retire(draft: QueueDraft) -> None:
    """The oldest finished jobs leave, a chunk at a time."""
    if not draft.has_room():
        return
    oldest = iter(draft.state.finished)
    jobs = tuple(next(oldest) for _ in range(RETIRE_CHUNK))
    draft.emit(JobsRetired(cause="clock", jobs=jobs), extra_bytes=names_bytes(jobs))
