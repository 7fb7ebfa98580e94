"""The one dominant reason of a job, in whatever state it is. Pure. Start at `reason_of`; waiting is `waiting.py`.

Reason of a job that is stuck because its node is silent: what is known of it, when it continues elsewhere, and who
may permit that. Pure.

Elements of an array that have not come into being: they have no row, and wait as their array does. Pure.
"""

from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import run_name
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import preemption, waiting
from fairlead_gateway.why.sentences import name_list
from fairlead_schemas.http.api import Reason
from fairlead_schemas.policies.partitions import OnPartition
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.resources import Request


def unreachable_node(views: Views, row: JobRow) -> Reason | None:
    """Return the reason of a job that is placed on a lost node; None where none of its nodes is lost."""
    run = run_name(row.id, row.attempt)
    for part in row.parts:
        node = views.nodes.rows.get(part.node)
        if node is not None and node.lost and not node.dead and run in node.held and not row.run_ended:
            return _silent(views, row, node)
    return None


def _silent(views: Views, row: JobRow, node: NodeRow) -> Reason:
    policy, since = row.on_partition, rfc3339(node.last_contact_ns)
    told, then = _what_follows(views, policy, node)
    return Reason(
        code="node_silent",
        message=f"its node {node.id} is silent since {since}; {told}",
        detail={"node": node.id, "silent_since": since, "strict": int(policy.strict), "next": then},
    )


def _what_follows(views: Views, policy: OnPartition, node: NodeRow) -> tuple[str, str]:
    """In words, and what a person can do."""
    if "loss" in views.plans.tripped:
        return (
            "so many nodes are silent at once that nothing is started elsewhere until an operator has looked",
            "fairlead breaker",
        )
    if policy.strict:
        told = "strict: it is not started elsewhere before its node or an admin confirms that it has ended there"
        return told, f"fairlead declare-dead {node.id}, once you have seen that nothing runs there"
    if policy.replace_after_ns:
        return (
            f"it is started elsewhere at {rfc3339(node.last_contact_ns + policy.replace_after_ns)} at the earliest",
            "wait",
        )
    return "it is about to be started elsewhere", "wait"


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


def reason_of(
    views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = True, told: Explanation | None = None
) -> Reason:
    """The dominant reason for a job's state, as of the views.

    `now_ns` (Unix) is compared with start and retry times. `count_ahead=False` leaves out the number of
    jobs ahead, which costs a pass over all rows. `told` is what the explainer says of a job that waits in line.
    """
    if row.elements is not None and row.state == "queued" and not row.elements["waiting"]:
        return _elements(row)
    match row.state:
        case "held":
            return _held(row)
        case "scheduled":
            return waiting.scheduled(views, row, now_ns)
        case "queued":
            return waiting.queued(views, row, now_ns, count_ahead=count_ahead, told=told)
        case "offered":
            return waiting.offered(views, row, count_ahead=count_ahead, told=told)
        case "placed":
            return unreachable_node(views, row) or _placed(row)
        case "running":
            return unreachable_node(views, row) or _running(views, row)
        case "stopping":
            return unreachable_node(views, row) or _stopping(row)
        case "succeeded":
            return Reason(code="succeeded", message=_ended(row, "ended with exit code 0"))
        case "failed":
            return _failed(views, row)
        case _:
            by = f" by {row.by}" if row.by else ""
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


# ---------------------------------------------------------------------------------------- waiting


def _held(row: JobRow) -> Reason:
    by = f" by {row.by}" if row.by else ""
    return Reason(
        code="held",
        message=f"held{by} until it is released",
        detail=_only(by=row.by, next=f"fairlead release {row.id}"),
    )


# ---------------------------------------------------------------------------------- placed and after


def _where(row: JobRow) -> str:
    return name_list([part.node for part in row.parts])


def _placed(row: JobRow) -> Reason:
    since = rfc3339(row.placed_ns)
    where = f"has its place on {_where(row)} since {since}"
    if preemption.is_asked_to_yield(row):
        return preemption.preemption_reason(row, where)
    return Reason(
        code="placed",
        message=f"{where}; starting",
        detail={"nodes": len(row.parts), "since": since, "next": f"fairlead logs -f {row.id}"},
    )


def _running(views: Views, row: JobRow) -> Reason:
    since = rfc3339(row.started_ns or row.placed_ns)
    where = f"runs on {_where(row)} since {since}{preemption.reclaimed_for_it(views, row)}"
    if preemption.is_asked_to_yield(row):
        return preemption.preemption_reason(row, where)
    if (lying := preemption.idle_reason(row, where)) is not None:
        return lying
    return Reason(
        code="running",
        message=where,
        detail={"nodes": len(row.parts), "since": since, "next": f"fairlead logs -f {row.id}"},
    )


def _stopping(row: JobRow) -> Reason:
    numbers = preemption.idle_evidence(row) if row.reason == "idle" else {}
    if row.reason == "time_limit":
        message = "its time is up; its nodes stop it as soon as it has run that long by their clocks"
    elif row.reason == "idle":
        message = preemption.idle_stop(row)
    elif row.reason == "reclaimed":
        message = f"{preemption.LOWERED} so it is being stopped, and queued again"
    else:
        message = f"cancelled{f' by {row.by}' if row.by else ''}; it is being stopped"
    return Reason(
        code="stopping",
        message=message,
        detail=numbers | _only(reason=row.reason, by=row.by, next="wait until its grace time has passed"),
    )


def _failed(views: Views, row: JobRow) -> Reason:
    if row.reason == "dependency":
        return _not_as_hoped(views, row)
    if row.reason == "exit_code":
        how = f"was ended by signal {row.signal}" if row.signal else f"ended with exit code {row.exit_code}"
    else:
        how = f"failed: {_FAILURES.get(row.reason, row.reason)}"
    message = _ended(row, how) + (f": {row.message}" if row.message else "")
    numbers: dict[str, int | str] = {"reason": row.reason, "attempt": row.attempt}
    if row.reason == "idle":
        message = _ended(row, f"reclaimed: {preemption.reclaim_cause(row)}; ended")
        numbers |= preemption.idle_evidence(row)
    if row.exit_code is not None:
        numbers["exit_code"] = row.exit_code
    if row.signal is not None:
        numbers["signal"] = row.signal
    return Reason(code="failed", message=message, detail={**numbers, "next": _next_of_failed(row)})


def _not_as_hoped(views: Views, row: JobRow) -> Reason:
    """Return the reason of a job that depended on jobs with another end."""
    told = row.message or "a job that it waited for ended otherwise"
    for one in row.after:
        other = views.jobs.rows.get(one.job)
        if other is not None and other.state in END_STATES and views.jobs.is_open(one):
            told = f"job {one.job} {_HAS_ENDED[other.state]}, and had {waiting.TO[one.state]} first"
            break
    detail: dict[str, int | str] = {"reason": "dependency", "jobs": ", ".join(one.job for one in row.after)}
    then = f"fairlead why {row.after[0].job}, then submit it again" if row.after else "submit it again"
    message = _ended(row, f"never started: {told}; ended")
    return Reason(code="failed", message=message, detail={**detail, "next": then})


def _elements(row: JobRow) -> Reason:
    assert row.elements is not None
    counts: dict[str, int | str] = {state: count for state, count in row.elements.items() if count}
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    return Reason(code="elements", message=f"all elements have had their turn: {told}", detail=counts)


def _ended(row: JobRow, how: str) -> str:
    return f"{how} at {rfc3339(row.ended_ns)}"


def _only(**values: str) -> dict[str, int | str]:
    return {key: value for key, value in values.items() if value}


def _next_of_failed(row: JobRow) -> str:
    if row.elements is not None:  # an array has no output of its own
        return f"fairlead jobs --state failed, then fairlead logs {row.id}_N"
    return f"fairlead logs {row.id}"


#: Of an array in any other state nothing more comes into being.
WAITING = frozenset({"scheduled", "queued", "held"})


def row_or_array(views: Views, job: str) -> JobRow | None:
    """The job's row; its array's where it is an element that has not been offered yet."""
    row = views.jobs.rows.get(job)
    if row is not None:
        return row
    array = _array(views, job)
    if array is None or array.array is None or array.elements is None or array.state not in WAITING:
        return None
    last = array.array[1]
    return array if last - array.elements["waiting"] < _index(job) <= last else None


def no_such_element(views: Views, job: str) -> HttpError | None:
    """The answer where the array is there and has no such element."""
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
    """-1 for what is no index."""
    index = job.partition("_")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= 9 else -1
