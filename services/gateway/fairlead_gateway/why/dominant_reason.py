"""The one dominant reason of a job, in whatever state it is. Pure. Start at `reason_of`; jobs that wait are in `waiting.py`.

Elements of an array that have not been offered have no row, and wait as their array does.
"""

from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import run_name
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import preemption
from fairlead_gateway.why.free_resources import JobPool
from fairlead_gateway.why.sentences import Detail, name_list, reason
from fairlead_gateway.why.waiting import TO, waiting_reason
from fairlead_schemas.http.api import Reason
from fairlead_schemas.units.ids import is_job_id
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
#: {reason of a stop: in words}
_STOPS = {
    "time_limit": "its time is up; its nodes stop it as soon as it has run that long by their clocks",
    "reclaimed": f"{preemption.LOWERED}, so it is being stopped, and queued again",
    "requeued": "its owner or an operator requeued it, so it is being stopped, and queued again",
}
_HAS_ENDED = {"succeeded": "has succeeded", "failed": "has failed", "cancelled": "was cancelled"}
#: Of an array in any other state nothing more comes into being.
WAITING = frozenset({"scheduled", "queued", "held"})


def reason_of(views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = True) -> Reason:
    """Return the dominant reason for a job's state, as of the views.

    `now_ns` (Unix) is compared with start and retry times. `count_ahead=False` leaves out the number of
    jobs ahead, which costs a pass over all rows. With the explainer's answer, `explanation.explained` gives more.
    """
    if row.elements is not None and row.state == "queued" and not row.elements["waiting"]:
        counts = {state: count for state, count in row.elements.items() if count}
        named = ", ".join(f"{count} {state}" for state, count in counts.items())
        return reason("elements", f"all elements have had their turn: {named}", **counts)
    by = f" by {row.by}" if row.by else ""
    match row.state:
        case "held":
            return reason("held", f"held{by} until it is released", f"fairlead release {row.id}", by=row.by)
        case "scheduled" | "queued" | "offered":
            return waiting_reason(views, row, JobPool(views, row.request, row.id), now_ns, count_ahead=count_ahead)
        case "placed" | "running":
            return _silent_node(views, row) or _with_its_place(views, row)
        case "stopping":
            return _silent_node(views, row) or _stopping(row, by)
        case "succeeded":
            return reason("succeeded", _ended(row, "ended with exit code 0"))
        case "failed":
            return _unmet_dependency(views, row) if row.reason == "dependency" else _failed(row)
        case _:
            return reason("cancelled", _ended(row, f"was cancelled{by}"), by=row.by)


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
    run = run_name(row.id, row.attempt)
    for node in (views.nodes.rows.get(part.node) for part in row.parts if not row.run_ended):
        if node is not None and node.lost and not node.dead and run in node.held:
            follows, then = _what_follows(views, row, node)
            since, strict = rfc3339(node.last_contact_ns), int(row.on_partition.strict)
            message = f"its node {node.id} is silent since {since}; {follows}"
            return reason("node_silent", message, then, node=node.id, silent_since=since, strict=strict)
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
    if not policy.replace_after_ns:
        return "it is about to be started elsewhere", "wait"
    earliest = rfc3339(node.last_contact_ns + policy.replace_after_ns)
    return f"it is started elsewhere at {earliest} at the earliest", "wait"


def _with_its_place(views: Views, row: JobRow) -> Reason:
    on = name_list([part.node for part in row.parts])
    if row.state == "placed":
        since, idle = rfc3339(row.placed_ns), None
        where = f"has its place on {on} since {since}"
    else:
        since = rfc3339(row.started_ns or row.placed_ns)
        where = f"runs on {on} since {since}{preemption.reclaimed_for_it(views, row)}"
        idle = preemption.idle_reason(row, where)
    usual = f"{where}; starting" if row.state == "placed" else where
    return (
        preemption.preemption_reason(row, where)
        or idle
        or reason(row.state, usual, f"fairlead logs -f {row.id}", nodes=len(row.parts), since=since)
    )


def _stopping(row: JobRow, by: str) -> Reason:
    idle = row.reason == "idle"
    message = preemption.idle_stop(row) if idle else _STOPS.get(row.reason, f"cancelled{by}; it is being stopped")
    evidence = preemption.idle_evidence(row) if idle else {}
    return reason("stopping", message, "wait until its grace time is up", **evidence, reason=row.reason, by=row.by)


def _failed(row: JobRow) -> Reason:
    how, evidence = f"failed: {_FAILURES.get(row.reason, row.reason)}", Detail()
    if row.reason == "exit_code":
        how = f"was ended by signal {row.signal}" if row.signal else f"ended with exit code {row.exit_code}"
    message = _ended(row, how) + (f": {row.message}" if row.message else "")
    if row.reason == "idle":
        message = _ended(row, f"reclaimed: {preemption.reclaim_cause(row)}; ended")
        evidence = preemption.idle_evidence(row)
    # An array has no output of its own.
    of_array = f"fairlead jobs --state failed, then fairlead logs {row.id}_N"
    then = f"fairlead logs {row.id}" if row.elements is None else of_array
    first = {"reason": row.reason, "attempt": row.attempt}
    return reason("failed", message, then, **first, **evidence, exit_code=row.exit_code, signal=row.signal)


def _unmet_dependency(views: Views, row: JobRow) -> Reason:
    """Return the reason of a job that depended on jobs with another end."""
    cause = row.message or "a job that it waited for ended otherwise"
    for one in row.after:
        other = views.jobs.rows.get(one.job)
        if other is not None and other.state in END_STATES and views.jobs.is_open(one):
            cause = f"job {one.job} {_HAS_ENDED[other.state]}, and had {TO[one.state]} first"
            break
    then = f"fairlead why {row.after[0].job}, then submit it again" if row.after else "submit it again"
    jobs = ", ".join(one.job for one in row.after)
    return reason("failed", _ended(row, f"never started: {cause}; ended"), then, reason="dependency", jobs=jobs)


def _ended(row: JobRow, how: str) -> str:
    return f"{how} at {rfc3339(row.ended_ns)}"


# ---------------------------------------------------------------------------------- elements that have no row


def row_or_array(views: Views, job: str) -> JobRow | None:
    """Return the job's row; its array's where it is an element that has not been offered yet."""
    row = views.jobs.rows.get(job)
    if row is not None:
        return row
    array, index = _array_and_index(views, job)
    if array is None or array.array is None or array.elements is None or array.state not in WAITING:
        return None
    last = array.array[1]
    return array if last - array.elements["waiting"] < index <= last else None


def no_such_element(views: Views, job: str) -> HttpError | None:
    """Return the answer where the array is there and has no such element."""
    array, index = _array_and_index(views, job)
    if array is None or array.array is None or array.array[0] <= index <= array.array[1]:
        return None
    first, last = array.array
    return not_found("job", job[:80], hint=f"array {array.id} has the elements {array.id}_{first} to {array.id}_{last}")


def element_reason(array: JobRow, reason: Reason) -> Reason:
    """Return the array's reason, worded for an element."""
    message = f"comes into being when it is offered, by its array {array.id}; of that: {reason.message}"
    return Reason(code=reason.code, message=message, detail=reason.detail)


def _array_and_index(views: Views, job: str) -> tuple[JobRow | None, int]:
    """Return the array of an element, and the element's index: -1 where the text is no id."""
    array, _, index = job.partition("_")
    return views.jobs.rows.get(array) if index else None, int(index) if is_job_id(job) and index else -1
