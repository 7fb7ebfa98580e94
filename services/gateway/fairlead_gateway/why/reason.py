"""The one dominant reason of a job, in whatever state it is. Pure. Start at `reason_of`; jobs that wait are in `waiting.py`.

Elements of an array that have not been offered have no row, and wait as their array does.
"""

from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import run_name
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import preemption
from fairlead_gateway.why.sentences import Detail, name_list
from fairlead_gateway.why.waiting import TO, waiting_reason
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.resources import Request

#: {reason of a failure: in words}
_FAILURES = {
    "idle": "it was idle",
    "time_limit": "it reached its time limit",
    "start_failed": "it could not be started",
    "oom": "it was killed for exceeding its memory limit",
    "gpu_memory": "it was stopped for using more GPU memory than its share",
    "infrastructure": "it was lost to the cluster's own failures too often",
    "element_failed": "at least one of its elements failed",
}
_HAS_ENDED = {"succeeded": "has succeeded", "failed": "has failed", "cancelled": "was cancelled"}
#: Of an array in any other state nothing more comes into being.
WAITING = frozenset({"scheduled", "queued", "held"})


def reason_of(
    views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = True, told: Explanation | None = None
) -> Reason:
    """Return the dominant reason for a job's state, as of the views.

    `now_ns` (Unix) is compared with start and retry times. `count_ahead=False` leaves out the number of
    jobs ahead, which costs a pass over all rows. `told` is the explainer's answer for a job that waits in line.
    """
    if row.elements is not None and row.state == "queued" and not row.elements["waiting"]:
        counts: Detail = {state: count for state, count in row.elements.items() if count}
        named = ", ".join(f"{count} {state}" for state, count in counts.items())
        return Reason(code="elements", message=f"all elements have had their turn: {named}", detail=counts)
    by = f" by {row.by}" if row.by else ""
    match row.state:
        case "held":
            detail = _only(by=row.by, next=f"fairlead release {row.id}")
            return Reason(code="held", message=f"held{by} until it is released", detail=detail)
        case "scheduled" | "queued" | "offered":
            return waiting_reason(views, row, now_ns, count_ahead=count_ahead, told=told)
        case "placed" | "running":
            return _silent_node(views, row) or _with_its_place(views, row)
        case "stopping":
            return _silent_node(views, row) or _stopping(row, by)
        case "succeeded":
            return Reason(code="succeeded", message=_ended(row, "ended with exit code 0"))
        case "failed":
            return _failed(views, row)
        case _:
            return Reason(code="cancelled", message=_ended(row, f"was cancelled{by}"), detail=_only(by=row.by))


def request_class(row: JobRow) -> tuple[str, str, int, Request] | None:
    """Return a key that queued jobs with one common reason share. None: this job has a history or conditions of its own."""
    plain = (
        row.state == "queued"
        and row.attempt == 1
        and row.elements is None
        and not (row.array_id or row.after or row.start_at_ns or row.not_before_ns)
        and row.deferral is None
        and row.room is None
        and row.yielding is None
    )
    return (row.queue, row.user, row.priority, row.request) if plain else None


# ---------------------------------------------------------------------------------- placed and after


def _silent_node(views: Views, row: JobRow) -> Reason | None:
    """Return the reason of a job that is placed on a lost node: when it continues elsewhere, and which person may permit that.
    None where none of its nodes is lost.
    """
    if row.run_ended:
        return None
    run = run_name(row.id, row.attempt)
    for node in (views.nodes.rows.get(part.node) for part in row.parts):
        if node is not None and node.lost and not node.dead and run in node.held:
            follows, then = _what_follows(views, row, node)
            since, strict = rfc3339(node.last_contact_ns), int(row.on_partition.strict)
            return Reason(
                code="node_silent",
                message=f"its node {node.id} is silent since {since}; {follows}",
                detail={"node": node.id, "silent_since": since, "strict": strict, "next": then},
            )
    return None


def _what_follows(views: Views, row: JobRow, node: NodeRow) -> tuple[str, str]:
    """Return what follows, and the step that a person can take."""
    policy = row.on_partition
    if "loss" in views.plans.tripped:
        many = "so many nodes are silent at once that nothing is started elsewhere until an operator has looked"
        return many, "fairlead breaker"
    if policy.strict:
        strict = "strict: it is not started elsewhere before its node or an admin confirms that it has ended there"
        return strict, f"fairlead declare-dead {node.id}, once you have seen that nothing runs there"
    if policy.replace_after_ns:
        return (
            f"it is started elsewhere at {rfc3339(node.last_contact_ns + policy.replace_after_ns)} at the earliest",
            "wait",
        )
    return "it is about to be started elsewhere", "wait"


def _with_its_place(views: Views, row: JobRow) -> Reason:
    on, idle = name_list([part.node for part in row.parts]), None
    if row.state == "placed":
        since, then = rfc3339(row.placed_ns), "; starting"
        where = f"has its place on {on} since {since}"
    else:
        since, then = rfc3339(row.started_ns or row.placed_ns), ""
        where = f"runs on {on} since {since}{preemption.reclaimed_for_it(views, row)}"
        idle = preemption.idle_reason(row, where)
    detail: Detail = {"nodes": len(row.parts), "since": since, "next": f"fairlead logs -f {row.id}"}
    usual = Reason(code=row.state, message=where + then, detail=detail)
    return preemption.preemption_reason(row, where) or idle or usual


def _stopping(row: JobRow, by: str) -> Reason:
    numbers = preemption.idle_evidence(row) if row.reason == "idle" else {}
    match row.reason:
        case "time_limit":
            message = "its time is up; its nodes stop it as soon as it has run that long by their clocks"
        case "idle":
            message = preemption.idle_stop(row)
        case "reclaimed":
            message = f"{preemption.LOWERED}, so it is being stopped, and queued again"
        case _:
            message = f"cancelled{by}; it is being stopped"
    detail = numbers | _only(reason=row.reason, by=row.by, next="wait until its grace time has passed")
    return Reason(code="stopping", message=message, detail=detail)


def _failed(views: Views, row: JobRow) -> Reason:
    if row.reason == "dependency":
        return _unmet_dependency(views, row)
    numbers: Detail = {"reason": row.reason, "attempt": row.attempt}
    how = f"failed: {_FAILURES.get(row.reason, row.reason)}"
    if row.reason == "exit_code":
        how = f"was ended by signal {row.signal}" if row.signal else f"ended with exit code {row.exit_code}"
    message = _ended(row, how) + (f": {row.message}" if row.message else "")
    if row.reason == "idle":
        message = _ended(row, f"reclaimed: {preemption.reclaim_cause(row)}; ended")
        numbers |= preemption.idle_evidence(row)
    if row.exit_code is not None:
        numbers["exit_code"] = row.exit_code
    if row.signal is not None:
        numbers["signal"] = row.signal
    # An array has no output of its own.
    of_array = f"fairlead jobs --state failed, then fairlead logs {row.id}_N"
    numbers["next"] = f"fairlead logs {row.id}" if row.elements is None else of_array
    return Reason(code="failed", message=message, detail=numbers)


def _unmet_dependency(views: Views, row: JobRow) -> Reason:
    """Return the reason of a job that depended on jobs with another end."""
    cause = row.message or "a job that it waited for ended otherwise"
    for one in row.after:
        other = views.jobs.rows.get(one.job)
        if other is not None and other.state in END_STATES and views.jobs.is_open(one):
            cause = f"job {one.job} {_HAS_ENDED[other.state]}, and had {TO[one.state]} first"
            break
    then = f"fairlead why {row.after[0].job}, then submit it again" if row.after else "submit it again"
    detail: Detail = {"reason": "dependency", "jobs": ", ".join(one.job for one in row.after), "next": then}
    return Reason(code="failed", message=_ended(row, f"never started: {cause}; ended"), detail=detail)


def _ended(row: JobRow, how: str) -> str:
    return f"{how} at {rfc3339(row.ended_ns)}"


def _only(**values: str) -> Detail:
    return {key: value for key, value in values.items() if value}


# ---------------------------------------------------------------------------------- elements that have no row


def row_or_array(views: Views, job: str) -> JobRow | None:
    """Return the job's row; its array's where it is an element that has not been offered yet."""
    row = views.jobs.rows.get(job)
    if row is not None:
        return row
    array = _array(views, job)
    if array is None or array.array is None or array.elements is None or array.state not in WAITING:
        return None
    last = array.array[1]
    return array if last - array.elements["waiting"] < _index(job) <= last else None


def no_such_element(views: Views, job: str) -> HttpError | None:
    """Return the answer where the array is there and has no such element."""
    array = _array(views, job)
    if array is None or array.array is None or array.array[0] <= _index(job) <= array.array[1]:
        return None
    first, last = array.array
    return not_found("job", job[:80], hint=f"array {array.id} has the elements {array.id}_{first} to {array.id}_{last}")


def element_reason(array: JobRow, reason: Reason) -> Reason:
    """Return the array's reason, worded for an element."""
    message = f"comes into being when it is offered, by its array {array.id}; of that: {reason.message}"
    return Reason(code=reason.code, message=message, detail=reason.detail)


def _array(views: Views, job: str) -> JobRow | None:
    return views.jobs.rows.get(array_of(job) or "")


def _index(job: str) -> int:
    """Return the element's index, -1 for other texts."""
    index = job.partition("_")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= 9 else -1
