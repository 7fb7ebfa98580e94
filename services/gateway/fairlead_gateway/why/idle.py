"""Runs that lie idle, that were taken back for it, and those who got what they held: in words, with the evidence. Pure."""

from fairlead_gateway.moments import rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle import decisive
from fairlead_gateway.views.idledocs import words
from fairlead_gateway.views.rows import IdleSeen, JobRow
from fairlead_gateway.why.amounts import these
from fairlead_schemas.http.api import Reason

#: What becomes of a run, in a sentence.
_THEN = {
    "requeue": "it is stopped and waits again",
    "shrink": "its lease ends",
    "stop": "it is stopped and its job ends",
}


def lying(row: JobRow, where: str) -> Reason | None:
    """Return the reason of a run that a policy calls idle, or that was extended; None for other runs. `where`: the usual
    message for the run.
    """
    seen = decisive(row)
    if seen is None or seen.action == "note":
        return _extended(row, where)
    keep = f"fairlead extend {row.id}, or use it"
    return Reason(
        code="idle", message=f"{where}; {_lies(seen)}; {_then(seen)}",
        detail=_detail(seen) | ({"next": keep} if seen.reclaim_at_ns else {}),
    )  # fmt: skip


def _lies(seen: IdleSeen) -> str:
    if seen.rule == "lifetime":
        return f"has run for longer than {_policy(seen)} lets it"
    return f"lies idle since {rfc3339(seen.since_ns)} {_by(seen)}"


def _then(seen: IdleSeen) -> str:
    if seen.mode == "dry_run":
        return "the policy is on trial, so nothing follows"
    if not seen.reclaim_at_ns or seen.action not in _THEN:
        return "its owner is told, and nothing follows"
    at = rfc3339(seen.reclaim_at_ns)
    if seen.mode == "on_demand":
        when = "from now on" if seen.asked_ns else f"from {at} on"
        return f"{when} it is given to whoever waits for what it holds: then {_THEN[seen.action]}"
    return f"at {at} {_THEN[seen.action]}, unless it is used or extended before"


def _extended(row: JobRow, where: str) -> Reason | None:
    if not row.extended_until_ns:
        return None
    until, times = rfc3339(row.extended_until_ns), "once" if row.extensions == 1 else f"{row.extensions} times"
    return Reason(
        code="extended", message=f"{where}; extended {times}: no idle policy acts on it before {until}",
        detail={"until": until, "extensions": row.extensions, "next": f"fairlead logs -f {row.id}"},
    )  # fmt: skip


def stopping(row: JobRow) -> str:
    """Return the message for a run that is being stopped because it is idle."""
    seen = row.reclaimed
    told = "it lay idle when the stop was decided, and was used since"
    if seen is not None:
        told = _over(seen) if seen.rule == "lifetime" else f"it lies idle {_by(seen)}"
    then = "queued again" if seen is None or seen.action == "requeue" else "its job ends"
    return f"{told}; its notice is over, so it is being stopped, and {then}"


def taken_back(row: JobRow) -> str:
    """Return why a run was taken back, as a clause behind "because", with the evidence."""
    seen = row.reclaimed
    if seen is None:
        return "it lay idle"
    return _over(seen) if seen.rule == "lifetime" else f"it lay idle {_by(seen)}"


def evidence(row: JobRow) -> dict[str, int | str]:
    """The numbers behind `taken_back`."""
    return _detail(row.reclaimed) if row.reclaimed is not None else {}


def at_its_end(row: JobRow) -> str:
    """Return what becomes of the job of a run that was taken back."""
    if row.reclaimed is not None and row.reclaimed.action != "requeue":
        return "nothing: its job ends, as the policy says"
    return "nothing: it is queued again and goes on with the rest of its time"


def after(row: JobRow, now: Reason) -> Reason:
    """The reason of a job that waits because its run lay idle: the policy's evidence, then what keeps it waiting."""
    return Reason(
        code="reclaimed", message=f"was taken back because {taken_back(row)}; now {now.message}",
        detail={**evidence(row), "now": now.code} | now.detail,
    )  # fmt: skip


def got(views: Views, row: JobRow) -> str:
    """Return a clause for a run that got what others left idle: from which jobs, and on what evidence; "" for other runs."""
    if not row.idle_from:
        return ""
    other = views.jobs.rows.get(row.idle_from[0])
    if len(row.idle_from) == 1 and other is not None and other.reclaimed is not None:
        return f"; it has what job {other.id} gave back: {taken_back(other)}"
    jobs = "job" if len(row.idle_from) == 1 else "jobs"
    return f"; it has what {jobs} {these(row.idle_from)} gave back"


def _over(seen: IdleSeen) -> str:
    return f"it had run for longer than {_policy(seen)} lets it"


def _policy(seen: IdleSeen) -> str:
    return f"the {seen.rule} policy of {seen.scope}"


def _by(seen: IdleSeen) -> str:
    told = words(seen)
    return f"by {_policy(seen)}{f' ({told})' if told else ''}"


def _detail(seen: IdleSeen) -> dict[str, int | str]:
    detail: dict[str, int | str] = {
        "rule": seen.rule, "scope": seen.scope, "action": seen.action, "mode": seen.mode, "since": rfc3339(seen.since_ns),
        "decided_at_sequence": seen.sequence,
    }  # fmt: skip
    if seen.reclaim_at_ns:
        detail["reclaim_at"] = rfc3339(seen.reclaim_at_ns)
    return detail
