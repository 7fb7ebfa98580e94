"""Comparison of what a command's sender has seen with what is there now: changes since are not overwritten unseen.

A sender names the log sequence of the answer from which it took its values. The queue decides commands one after the other, so of two
senders that saw the same, only the first changes anything, whichever gateways they asked. Pure.
"""

from collections.abc import Iterator

from fairlead_bus.core import CommandRefusal
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.waiting.pending import LiveJob
from fairlead_schemas.wire.commands import ApplyQueues, UpdateJob

CODE = "changed_since"


def stale_job_refusal(draft: QueueDraft, job: LiveJob, command: UpdateJob) -> CommandRefusal | None:
    """Refuse a change of a job that a person has changed, moved, held or released since the command's sender saw it."""
    seen = command.unchanged_since
    if seen is None or not (job.id in draft.changed or job.changed_seq > seen):
        return None
    return CommandRefusal(CODE, f"job {job.id} {_has_changed(job.id in draft.changed, job.changed_seq)}, after {seen}")


def stale_queues_refusal(draft: QueueDraft, command: ApplyQueues) -> CommandRefusal | None:
    """Refuse a change of queues and pools of which one has changed since the command's sender saw them. A command that prunes
    is about all of them."""
    seen = command.unchanged_since
    if seen is None:
        return None
    for name, sequence, now in _named(draft, command):
        if sequence > seen or now:
            return CommandRefusal(CODE, f"{name} {_has_changed(now, sequence)}, after {seen}")
    return None


def _named(draft: QueueDraft, command: ApplyQueues) -> Iterator[tuple[str, int, bool]]:
    """Yield what a command is about: name, sequence of its last change (of one that is not there, of the last removal), and True
    if this decision changes it."""
    state, next_ = draft.state, draft.outlook
    pools = {entry.pool for entry in command.pools}.union(state.pools if command.prune else ())
    for name in sorted(pools):
        pool = state.pools.get(name)
        now = next_ is not None and next_.pools.get(name) != (pool.settings if pool is not None else None)
        yield f"pools.{name}", pool.changed_seq if pool is not None else state.removed_seq, now
    paths = {each.path for each in command.queues}.union(
        (each.path for each in command.remove), state.queues if command.prune else ()
    )
    for path in sorted(paths):
        queue = state.queues.get(path)
        now = next_ is not None and next_.queues.get(path) != (queue.settings if queue is not None else None)
        yield f"queues.{path}", queue.changed_seq if queue is not None else state.removed_seq, now
    if command.prune:
        more = next_ is not None and not (next_.queues.keys() <= state.queues.keys())
        yield "the tree of queues", state.removed_seq, more


def _has_changed(now: bool, sequence: int) -> str:
    return "is being changed by another command" if now else f"has changed at sequence {sequence}"
