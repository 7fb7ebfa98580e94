"""Yields: which job yields to which and by which rule, in words that all users may read: job ids, queues and numbers,
no names. Pure.
"""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Yielding
from fairlead_gateway.why import idle
from fairlead_gateway.why.amounts import these
from fairlead_gateway.why.kept import kept
from fairlead_gateway.why.nodes import kept_back
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.units.quantities import SECOND_NS, format_duration
from fairlead_schemas.wire.events import Victim

#: Why a run is stopped, or was, after a change of queues that asked for it.
LOWERED = "its queue, or one above, held more than its maximum after that was lowered,"


def yielded(row: JobRow, yielding: Yielding) -> str:
    """ "yielded to job 812 (lower priority: 50 against 70)"."""
    return f"yielded {_to_whom(row, yielding)}"


def _to_whom(row: JobRow, yielding: Yielding) -> str:
    if yielding.rule == "reclaimed":
        return f"because {LOWERED.removesuffix(',')}"
    whom = f"to job {yielding.beneficiary}" if yielding.beneficiary else "because a limit was lowered"
    return f"{whom} ({_rule(row, yielding)})"


def _rule(row: JobRow, yielding: Yielding) -> str:
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
            return idle.taken_back(row)
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
        return f"{whose} lies idle"
    if row is None or victim.rule == "over_share":
        return f"{whose}: {row.queue if row is not None else 'its queue'} has more than its share, {queue} less than its own"
    resource = "gpu" if row.request.gpu_milli_total else "cpu"
    owner, over = views.waiting.over(row.queue, queue, resource)
    return f"{whose}: {owner} uses {counted(resource, over)} over its guarantee, which {queue} is owed"


def is_asked(row: JobRow) -> bool:
    """Return True if the attempt that runs now is asked to yield."""
    return row.yielding is not None and row.yielding.attempt == row.attempt and not row.run_ended


def asked(row: JobRow, where: str) -> Reason:
    """Return the reason of a run that is in its notice and grace. `where`: the usual message for the run."""
    assert row.yielding is not None
    grace = f" of {format_duration(row.grace_ns)}" if row.grace_ns else ""
    if row.notice_ns:
        grace = f"{grace}, {format_duration(row.notice_ns)} after its notice at the latest"
    return Reason(
        code="yielding",
        message=f"{where}; is asked to yield {_to_whom(row, row.yielding)} and ends within its grace{grace}",
        detail={
            "preempted_for": row.yielding.beneficiary, "rule": row.yielding.rule,
            "next": idle.at_its_end(row) if row.yielding.rule == "idle" else "nothing: it is queued again and goes on with the rest of its time",
        },
    )  # fmt: skip


def after_yielding(row: JobRow, now: Reason) -> Reason:
    """The reason of a job that waits because it yielded: to whom and why, then what keeps it waiting."""
    if row.reason == "idle" and not row.has_yielded:
        return idle.after(row, now)
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
    since = "since it had saved" if row.saved_ns else "of work, none of which it said to have saved"
    return f" and lost {format_duration(row.lost_last_ns)} {since}"


def with_room(row: JobRow, now: Reason) -> Reason:
    """The reason of a waiting job for which room is made: who yields to it, and what is kept for it."""
    room = row.room
    if room is None or room.attempt != row.attempt:
        return now
    told = kept(room)
    if room.declined:
        told = f"; asking others to yield would not make room: even then {kept_back(room.declined)}{told}"
    if room.asked:
        jobs = "1 job was" if len(room.asked) == 1 else f"{len(room.asked)} jobs were"
        detail: dict[str, int | str] = {
            **now.detail,
            "asked": len(room.asked),
            "next": "it starts when they have ended",
        }
        message = f"{jobs} asked to yield for it: {these(room.asked)}{told}"
        return Reason(code="making_room", message=message, detail=detail)
    named = f"; {room.named} job{'' if room.named == 1 else 's'} may be asked to yield for it" if room.named else ""
    if not named and not told:
        return now
    return Reason(code=now.code, message=f"{now.message}{named}{told}", detail=now.detail)
