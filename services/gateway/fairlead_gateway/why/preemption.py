"""Runs that yield to other jobs or are reclaimed because they are idle: by which rule and on what evidence. Pure.

All users may read these words: job ids, queues and numbers, no names of people.
"""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle import decisive
from fairlead_gateway.views.idle_documents import words
from fairlead_gateway.views.rows import IdleReport, JobRow, PreemptionRow
from fairlead_gateway.why.sentences import Detail, job_list, reason
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.events import Victim

#: {action of an idle policy: what becomes of the run}
_THEN = {
    "requeue": "it is stopped and waits again",
    "shrink": "its lease ends",
    "stop": "it is stopped and its job ends",
}
#: Why a run is stopped, or was, after a change of queues that asked for it.
LOWERED = "its queue, or one above, held more than its maximum after that was lowered"
#: What becomes of the job of a run that yields.
_CONTINUES = "nothing: it is queued again and continues with the rest of its time"


# ---------------------------------------------------------------------------------------- idle runs


def idle_reason(row: JobRow, where: str) -> Reason | None:
    """Return the reason of a run that a policy calls idle, or that was extended; None for other runs. `where`: the usual
    message for the run.
    """
    seen = decisive(row)
    if seen is not None and seen.action != "note":
        idle = f"has run for longer than {_policy(seen)} allows"
        if seen.rule != "lifetime":
            idle = f"idle since {rfc3339(seen.since_ns)} {_by(seen)}"
        keep = f"fairlead extend {row.id}, or use it" if seen.reclaim_at_ns else ""
        return reason("idle", f"{where}; {idle}; {_then(seen)}", keep, **_detail(seen))
    if not row.extended_until_ns:
        return None
    until, times = rfc3339(row.extended_until_ns), "once" if row.extensions == 1 else f"{row.extensions} times"
    message = f"{where}; extended {times}: no idle policy acts on it before {until}"
    return reason("extended", message, f"fairlead logs -f {row.id}", until=until, extensions=row.extensions)


def _then(seen: IdleReport) -> str:
    if seen.mode == "dry_run":
        return "the policy is on trial, so nothing follows"
    if not seen.reclaim_at_ns or seen.action not in _THEN:
        return "its owner is notified, and nothing follows"
    at = rfc3339(seen.reclaim_at_ns)
    if seen.mode == "on_demand":
        when = "from now on" if seen.reclaim_requested_ns else f"from {at} on"
        return f"{when} it is reclaimed once a job waits for what it holds: then {_THEN[seen.action]}"
    return f"at {at} {_THEN[seen.action]}, unless it is used or extended before"


def idle_stop(row: JobRow) -> str:
    """Return the message for a run that is being stopped because it is idle."""
    seen, now = row.reclaimed, "it was idle when the stop was decided and has been used since"
    if seen is not None:
        now = f"it {reclaim_cause(row)}" if seen.rule == "lifetime" else f"it is {reclaim_cause(row)}"
    then = "queued again" if seen is None or seen.action == "requeue" else "its job ends"
    return f"{now}; its notice is over, so it is being stopped, and {then}"


def reclaim_cause(row: JobRow) -> str:
    """Return why a run was reclaimed, as a clause without a subject, with the evidence."""
    seen = row.reclaimed
    if seen is None:
        return "idle"
    return f"ran for longer than {_policy(seen)} allows" if seen.rule == "lifetime" else f"idle {_by(seen)}"


def idle_evidence(row: JobRow) -> Detail:
    """Return the numbers behind `reclaim_cause`."""
    return _detail(row.reclaimed) if row.reclaimed is not None else {}


def reclaimed_for_it(views: Views, row: JobRow) -> str:
    """Return a clause for a run that got what others left idle: from which jobs, and on what evidence; "" for other runs."""
    if not row.idle_from:
        return ""
    other = views.jobs.rows.get(row.idle_from[0])
    evidence = ""
    if len(row.idle_from) == 1 and other is not None and other.reclaimed is not None:
        evidence = f": {reclaim_cause(other)}"
    return f"; it has what {job_list(row.idle_from)} gave back{evidence}"


def _policy(seen: IdleReport) -> str:
    return f"the {seen.rule} policy of {seen.scope}"


def _by(seen: IdleReport) -> str:
    evidence = words(seen)
    return f"under {_policy(seen)}{f' ({evidence})' if evidence else ''}"


def _detail(seen: IdleReport) -> Detail:
    which: Detail = {"rule": seen.rule, "scope": seen.scope, "action": seen.action, "mode": seen.mode}
    which |= {"since": rfc3339(seen.since_ns), "decided_at_sequence": seen.sequence}
    return which | ({"reclaim_at": rfc3339(seen.reclaim_at_ns)} if seen.reclaim_at_ns else {})


# ---------------------------------------------------------------------------------------- runs that yield


def _to_whom(row: JobRow, yielding: PreemptionRow) -> str:
    """ "to job 812 (lower priority: 50 against 70)"."""
    if yielding.rule == "reclaimed":
        return f"because {LOWERED}"
    whom = f"to job {yielding.beneficiary}" if yielding.beneficiary else "because a limit was lowered"
    return f"{whom} ({_rule(row, yielding)})"


def _rule(row: JobRow, yielding: PreemptionRow) -> str:
    owed = yielding.beneficiary_queue or "another queue"
    match yielding.rule:
        case "lower_priority":
            return f"lower priority: {yielding.priority} against {yielding.beneficiary_priority}"
        case "over_slice":
            return "it had had its slice, and the other goes before it"
        case "over_guarantee":
            over = counted(yielding.resource, yielding.over)
            what = f"queue {yielding.queue} used {over} over its guarantee"
            return f"{what}, which {owed} was owed" if yielding.beneficiary else what
        case "over_share":
            return f"queue {yielding.queue} was above its fair share, {owed} below its own"
        case "idle":
            return reclaim_cause(row)
        case "defragmentation":
            return "it fits elsewhere, the other nowhere else"
        case other:
            return other.replace("_", " ")


def might_yield(views: Views, victim: Victim, queue: str, priority: int) -> str:
    """Return why a run might be asked to yield to a job of a queue and priority, as of the views."""
    row = views.jobs.rows.get(victim.job)
    whose = f"job {victim.job} of {row.queue}" if row is not None else f"job {victim.job}"
    if victim.rule == "lower_priority":
        return f"{whose} has a lower priority" + (f": {row.priority} against {priority}" if row is not None else "")
    if victim.rule == "over_slice":
        return f"{whose} has had its slice, and this would go before it"
    if victim.rule == "idle":
        return f"{whose} is idle"
    if row is None or victim.rule == "over_share":
        return f"{whose}: {row.queue if row is not None else 'its queue'} has more than its share, {queue} less than its own"
    resource = "gpu" if row.request.gpu_milli_total else "cpu"
    owner, over = views.waiting.over(row.queue, queue, resource)
    return f"{whose}: {owner} uses {counted(resource, over)} over its guarantee, which {queue} is owed"


def preemption_reason(row: JobRow, where: str) -> Reason | None:
    """Return the reason of a run that is in its notice and grace; None for other runs. `where`: the usual message for the run."""
    yielding = row.yielding
    if yielding is None or yielding.attempt != row.attempt or row.run_ended:
        return None
    grace = f" of {format_duration(row.grace_ns)}" if row.grace_ns else ""
    if row.notice_ns:
        grace += f", {format_duration(row.notice_ns)} after its notice at the latest"
    ends = yielding.rule == "idle" and row.reclaimed is not None and row.reclaimed.action != "requeue"
    then = "nothing: its job ends, as the policy requires" if ends else _CONTINUES
    message = f"{where}; is asked to yield {_to_whom(row, yielding)} and ends within its grace{grace}"
    return reason("yielding", message, then, preempted_for=yielding.beneficiary, rule=yielding.rule)


def after_preemption(row: JobRow, now: Reason) -> Reason:
    """Add to the reason of a job that waits because its run yielded or was idle: to whom and why, then what keeps it waiting."""
    if row.reason == "idle" and not row.has_yielded:
        message = f"reclaimed: {reclaim_cause(row)}; now {now.message}"
        return reason("reclaimed", message, **{**idle_evidence(row), "now": now.code, **now.detail})
    yielding = row.yielding
    if not row.has_yielded or yielding is None:
        return now
    message = f"yielded {_to_whom(row, yielding)}{_lost(row)}; now {now.message}"
    lost_s, whom = row.lost_last_ns // SECOND_NS, yielding.beneficiary
    before = {"preempted_for": whom, "rule": yielding.rule, "times": row.preempted, "now": now.code}
    return reason("preempted", message, **{**before, "lost_seconds": lost_s, **now.detail})


def _lost(row: JobRow) -> str:
    """Return the work that the job's last end has cost it; "" where there is nothing to report."""
    if row.lost_last_ns < SECOND_NS:
        return ", with nothing lost" if row.saved_ns else ""
    since = "since it had saved" if row.saved_ns else "of work, none of which it had reported as saved"
    return f" and lost {format_duration(row.lost_last_ns)} {since}"
