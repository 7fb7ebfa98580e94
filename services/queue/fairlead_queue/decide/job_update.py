"""Bounds of what a person may change about a job that is known already: those of its submit, and the promise of a time limit.

Other jobs are placed and started before a job whose turn has come because its limit says when it ends. So that limit is only lowered,
unless the command may extend it.
"""

from fairlead_bus.core import CommandRefusal
from fairlead_queue.decide.admission import TIME_MAX_NS
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.waiting.pending import LiveJob
from fairlead_schemas.jobfile.update import change_fault
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.wire.commands import UpdateJob
from fairlead_schemas.wire.lifecycle import CHARGED_STATES


def update_refusal(draft: QueueDraft, job: LiveJob, command: UpdateJob) -> CommandRefusal | None:
    """Return the reason why a live job, or an array, cannot be changed so, or None."""
    if command.name is None and command.priority is None and command.total_ns is None and command.labels is None:
        return CommandRefusal("invalid", "expected at least one of name, priority, time.total and labels")
    fault = change_fault(command.name, command.priority, command.labels)
    if fault is not None:
        return CommandRefusal("invalid", f"{fault.field}: {fault.message}", fault.field)
    return None if command.total_ns is None else _limit_refusal(draft, job, command, command.total_ns)


def _limit_refusal(draft: QueueDraft, job: LiveJob, command: UpdateJob, total_ns: int) -> CommandRefusal | None:
    if not 0 <= total_ns <= TIME_MAX_NS:
        return CommandRefusal("invalid", f"time.total: expected 0 to {TIME_MAX_NS} ns, found {total_ns}", "time.total")
    if 0 < total_ns <= job.notice_ns:
        notice = format_duration(job.notice_ns)
        return CommandRefusal(
            "invalid", f"time.total: expected more than the notice of its checkpoint, {notice}", "time.total"
        )
    late_ns = draft.now_ns + max(0, total_ns - job.used_ns) - job.deadline_ns if job.deadline_ns else 0
    if late_ns > 0 and job.id not in job.lane.running:
        message = f"time.total: the deadline of job {job.id} cannot be met: {format_duration(late_ns)} too little time until then"
        return CommandRefusal("deadline", message, "time.total")
    if raises_limit_at_work(job, command) and not command.extends:
        now = format_duration(job.total_ns)
        message = f"time.total: expected at most the present limit, {now}: job {job.id} is {job.state}, and others were promised its end"
        return CommandRefusal("limit_promised", message, "time.total")
    return None


def raises_limit_at_work(job: LiveJob, command: UpdateJob) -> bool:
    """Return True for a command that would raise or remove the time limit of a job, or of an element, that has an offer or a place."""
    if command.total_ns is None or not job.total_ns or 0 < command.total_ns <= job.total_ns:
        return False
    return any(each.state in CHARGED_STATES for each in job.with_elements())
