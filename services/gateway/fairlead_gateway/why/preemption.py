"""Yields: which job yields to which and by which rule, in words that all users may read: job ids, queues and numbers,
no names. Pure.

Runs that lie idle, that were taken back for it, and those who got what they held: in words, with the evidence. Pure.
"""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle import decisive
from fairlead_gateway.views.idle_documents import words
from fairlead_gateway.views.rows import IdleReport, JobRow, PreemptionRow
from fairlead_gateway.why.nodes import node_refusals, reservation
from fairlead_gateway.why.sentences import name_list
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.units.quantities import SECOND_NS, format_duration
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.events import Victim

#: What becomes of a run, in a sentence.
_THEN = {
    "requeue": "it is stopped and waits again",
    "shrink": "its lease ends",
    "stop": "it is stopped and its job ends",
}


def idle_reason(row: JobRow, where: str) -> Reason | None:
    """Return the reason of a run that a policy calls idle, or that was extended; None for other runs. `where`: the usual
    message for the run.
    """
    seen = decisive(row)
    if seen is None or seen.action == "note":
        return _extended(row, where)
    keep = f"fairlead extend {row.id}, or use it"
    return Reason(
        code="idle",
        message=f"{where}; {_lies(seen)}; {_then(seen)}",
        detail=_detail(seen) | ({"next": keep} if seen.reclaim_at_ns else {}),
    )


def _lies(seen: IdleReport) -> str:
    if seen.rule == "lifetime":
        return f"has run for longer than {_policy(seen)} allows"
    return f"idle since {rfc3339(seen.since_ns)} {_by(seen)}"


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


def _extended(row: JobRow, where: str) -> Reason | None:
    if not row.extended_until_ns:
        return None
    until, times = rfc3339(row.extended_until_ns), "once" if row.extensions == 1 else f"{row.extensions} times"
    return Reason(
        code="extended",
        message=f"{where}; extended {times}: no idle policy acts on it before {until}",
        detail={"until": until, "extensions": row.extensions, "next": f"fairlead logs -f {row.id}"},
    )


def idle_stop(row: JobRow) -> str:
    """Return the message for a run that is being stopped because it is idle."""
    seen = row.reclaimed
    told = "it was idle when the stop was decided and has been used since"
    if seen is not None:
        told = f"it {_over(seen)}" if seen.rule == "lifetime" else f"it is idle {_by(seen)}"
    then = "queued again" if seen is None or seen.action == "requeue" else "its job ends"
    return f"{told}; its notice is over, so it is being stopped, and {then}"


def reclaim_cause(row: JobRow) -> str:
    """Return why a run was reclaimed, as a clause without a subject, with the evidence."""
    seen = row.reclaimed
    if seen is None:
        return "idle"
    return _over(seen) if seen.rule == "lifetime" else f"idle {_by(seen)}"


def idle_evidence(row: JobRow) -> dict[str, int | str]:
    """Return the numbers behind `reclaim_cause`."""
    return _detail(row.reclaimed) if row.reclaimed is not None else {}


def next_after_end(row: JobRow) -> str:
    """Return what becomes of the job of a run that was taken back."""
    if row.reclaimed is not None and row.reclaimed.action != "requeue":
        return "nothing: its job ends, as the policy requires"
    return "nothing: it is queued again and continues with the rest of its time"


def after_idle_reclaim(row: JobRow, now: Reason) -> Reason:
    """The reason of a job that waits because its run lay idle: the policy's evidence, then what keeps it waiting."""
    return Reason(
        code="reclaimed",
        message=f"reclaimed: {reclaim_cause(row)}; now {now.message}",
        detail={**idle_evidence(row), "now": now.code} | now.detail,
    )


def reclaimed_for_it(views: Views, row: JobRow) -> str:
    """Return a clause for a run that got what others left idle: from which jobs, and on what evidence; "" for other runs."""
    if not row.idle_from:
        return ""
    other = views.jobs.rows.get(row.idle_from[0])
    if len(row.idle_from) == 1 and other is not None and other.reclaimed is not None:
        return f"; it has what job {other.id} gave back: {reclaim_cause(other)}"
    jobs = "job" if len(row.idle_from) == 1 else "jobs"
    return f"; it has what {jobs} {name_list(row.idle_from)} gave back"


def _over(seen: IdleReport) -> str:
    return f"ran for longer than {_policy(seen)} allows"


def _policy(seen: IdleReport) -> str:
    return f"the {seen.rule} policy of {seen.scope}"


def _by(seen: IdleReport) -> str:
    told = words(seen)
    return f"under {_policy(seen)}{f' ({told})' if told else ''}"


def _detail(seen: IdleReport) -> dict[str, int | str]:
    detail: dict[str, int | str] = {
        "rule": seen.rule,
        "scope": seen.scope,
        "action": seen.action,
        "mode": seen.mode,
        "since": rfc3339(seen.since_ns),
        "decided_at_sequence": seen.sequence,
    }
    if seen.reclaim_at_ns:
        detail["reclaim_at"] = rfc3339(seen.reclaim_at_ns)
    return detail


#: Why a run is stopped, or was, after a change of queues that asked for it.
LOWERED = "its queue, or one above, held more than its maximum after that was lowered,"


def yielded(row: JobRow, yielding: PreemptionRow) -> str:
    """ "yielded to job 812 (lower priority: 50 against 70)"."""
    return f"yielded {_to_whom(row, yielding)}"


def _to_whom(row: JobRow, yielding: PreemptionRow) -> str:
    if yielding.rule == "reclaimed":
        return f"because {LOWERED.removesuffix(',')}"
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
        numbers = f": {row.priority} against {priority}" if row is not None else ""
        return f"{whose} has a lower priority{numbers}"
    if victim.rule == "over_slice":
        return f"{whose} has had its slice, and this would go before it"
    if victim.rule == "idle":
        return f"{whose} is idle"
    if row is None or victim.rule == "over_share":
        return f"{whose}: {row.queue if row is not None else 'its queue'} has more than its share, {queue} less than its own"
    resource = "gpu" if row.request.gpu_milli_total else "cpu"
    owner, over = views.waiting.over(row.queue, queue, resource)
    return f"{whose}: {owner} uses {counted(resource, over)} over its guarantee, which {queue} is owed"


def is_asked_to_yield(row: JobRow) -> bool:
    """Return True if the attempt that runs now is asked to yield."""
    return row.yielding is not None and row.yielding.attempt == row.attempt and not row.run_ended


def preemption_reason(row: JobRow, where: str) -> Reason:
    """Return the reason of a run that is in its notice and grace. `where`: the usual message for the run."""
    assert row.yielding is not None
    grace = f" of {format_duration(row.grace_ns)}" if row.grace_ns else ""
    if row.notice_ns:
        grace = f"{grace}, {format_duration(row.notice_ns)} after its notice at the latest"
    return Reason(
        code="yielding",
        message=f"{where}; is asked to yield {_to_whom(row, row.yielding)} and ends within its grace{grace}",
        detail={
            "preempted_for": row.yielding.beneficiary,
            "rule": row.yielding.rule,
            "next": next_after_end(row)
            if row.yielding.rule == "idle"
            else "nothing: it is queued again and continues with the rest of its time",
        },
    )


def after_preemption(row: JobRow, now: Reason) -> Reason:
    """The reason of a job that waits because it yielded: to whom and why, then what keeps it waiting."""
    if row.reason == "idle" and not row.has_yielded:
        return after_idle_reclaim(row, now)
    if not row.has_yielded or row.yielding is None:
        return now
    whom: dict[str, int | str] = {"preempted_for": row.yielding.beneficiary} if row.yielding.beneficiary else {}
    detail: dict[str, int | str] = {**whom, "rule": row.yielding.rule, "times": row.preempted, "now": now.code}
    detail["lost_seconds"] = row.lost_last_ns // SECOND_NS
    message = f"{yielded(row, row.yielding)}{_lost(row)}; now {now.message}"
    return Reason(code="preempted", message=message, detail=detail | now.detail)


def _lost(row: JobRow) -> str:
    """Return the work that the job's last end has cost it; "" where there is nothing to report."""
    if row.lost_last_ns < SECOND_NS:
        return ", with nothing lost" if row.saved_ns else ""
    since = "since it had saved" if row.saved_ns else "of work, none of which it had reported as saved"
    return f" and lost {format_duration(row.lost_last_ns)} {since}"


def with_preemptions(row: JobRow, now: Reason) -> Reason:
    """The reason of a waiting job for which room is made: who yields to it, and what is kept for it."""
    room = row.room
    if room is None or room.attempt != row.attempt:
        return now
    told = reservation(room)
    if room.declined:
        told = f"; asking others to yield would not make room: even then {node_refusals(room.declined)}{told}"
    if room.victims:
        jobs = "1 job was" if len(room.victims) == 1 else f"{len(room.victims)} jobs were"
        detail: dict[str, int | str] = {
            **now.detail,
            "asked": len(room.victims),
            "next": "it starts when they have ended",
        }
        message = f"{jobs} asked to yield for it: {name_list(room.victims)}{told}"
        return Reason(code="making_room", message=message, detail=detail)
    named = f"; {room.named} job{'' if room.named == 1 else 's'} may be asked to yield for it" if room.named else ""
    if not named and not told:
        return now
    return Reason(code=now.code, message=f"{now.message}{named}{told}", detail=now.detail)
