"""Decisions on holds and drains of queues, and the offers that a hold asks back.

A hold closes the gate to offers, and a drain the door to submits; what runs goes on under both. Whoever wants an empty queue
does both and waits.
"""

from fairlead_bus.core import CommandRefusal
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.offer_review import withdraw
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev

#: Characters of a reason: four hundred such answers must fit a commit.
REASON_CHARS_MAX = 120


def hold_queue(draft: QueueDraft, command: cmd.HoldQueue, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Hold a queue, or refuse."""
    refused = _refusal(draft, command)
    if refused is not None:
        return refused
    if command.path in draft.closures.held:
        return CommandRefusal("conflict", f"queue {command.path} is already held")
    draft.change_closures().held.add(command.path)
    return ev.QueueHeld(cause=cause, path=command.path, reason=command.reason, by=command.user)


def drain_queue(draft: QueueDraft, command: cmd.DrainQueue, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Drain a queue, or refuse."""
    refused = _refusal(draft, command)
    if refused is not None:
        return refused
    if command.path in draft.closures.drained:
        return CommandRefusal("conflict", f"queue {command.path} is already drained")
    draft.change_closures().drained.add(command.path)
    return ev.QueueDrained(cause=cause, path=command.path, reason=command.reason, by=command.user)


def release_queue(draft: QueueDraft, command: cmd.ReleaseQueue, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Release a queue, or refuse; a queue above it that is closed is named."""
    path, closures = command.path, draft.closures
    refused = _missing(draft, path)
    if refused is not None:
        return refused
    if path not in closures.held and path not in closures.drained:
        above = closures.holding(path) or closures.draining(path)
        instead = f"; {above} above it is: release that" if above else ""
        return CommandRefusal("conflict", f"queue {path} is neither held nor drained{instead}")
    draft.change_closures().release(path)
    return ev.QueueReleased(cause=cause, path=path, by=command.user)


def _refusal(draft: QueueDraft, command: cmd.HoldQueue | cmd.DrainQueue) -> CommandRefusal | None:
    if len(command.reason) > REASON_CHARS_MAX:
        message = f"expected a reason of at most {REASON_CHARS_MAX} characters, found {len(command.reason)}"
        return CommandRefusal("invalid", message)
    return _missing(draft, command.path)


def _missing(draft: QueueDraft, path: str) -> CommandRefusal | None:
    if draft.settings_of(path) is not None:
        return None
    known = sorted(draft.queues())
    return CommandRefusal("not_found", f'no queue "{path[:80]}"{did_you_mean(path, known)}')


def withdraw_held(draft: QueueDraft) -> None:
    """Ask the open offers of held queues back, as far as the commit has room."""
    closures = draft.closures
    for _, pool in sorted(draft.state.pools.items()):
        for job in pool.offers.values():
            if job.withdrawal or job.stop or job.id in draft.states or not closures.holding(job.lane.leaf.queue.path):
                continue
            if not draft.has_room():
                return
            withdraw(draft, job, "queue_held")
