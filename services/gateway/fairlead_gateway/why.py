"""Why a job is where it is: one dominant reason, its evidence in numbers, and the next step. Pure.

Reads the views only. What the placer refused is told in the placer's own words (JobUnplaceable), never
worked out a second time. Start at `reason_of`.
"""

from fairlead_gateway.moments import rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Refusal
from fairlead_schemas.api import Reason
from fairlead_schemas.quantities import MILLI, format_milli
from fairlead_schemas.resources import Request

#: What kept a node from taking part, in words: (one node, several nodes).
_KEPT_BACK: dict[str, tuple[str, str]] = {
    "free_gpus": ("lacks free GPUs", "lack free GPUs"),
    "gpus": ("has too few GPUs", "have too few GPUs"),
    "free_cpu": ("lacks free CPUs", "lack free CPUs"),
    "cpu": ("has too few CPUs", "have too few CPUs"),
    "free_memory": ("lacks free memory", "lack free memory"),
    "memory": ("has too little memory", "have too little memory"),
    "gpu_model": ("has another GPU model", "have another GPU model"),
    "gpu_memory": ("has GPUs with too little memory", "have GPUs with too little memory"),
    "compute_capability": ("has GPUs of too low compute capability", "have GPUs of too low compute capability"),
    "selector": ("does not match the node selector", "do not match the node selector"),
    "cordoned": ("is cordoned", "are cordoned"),
    "draining": ("is draining", "are draining"),
    "lost": ("is lost", "are lost"),
}
_FAILURES = {
    "time_limit": "it reached its time limit",
    "start_failed": "it could not be started",
    "infrastructure": "it was lost to the cluster's own failures too often",
    "element_failed": "at least one of its elements failed",
}


def reason_of(views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = True) -> Reason:
    """The dominant reason for a job's state, as of the views.

    `now_ns` (Unix) is compared with start and retry times. `count_ahead=False` leaves out the number of
    jobs ahead, which costs a pass over all rows.
    """
    if row.elements is not None and row.state == "queued" and not row.elements["waiting"]:
        return _elements(row)
    match row.state:
        case "held":
            return _held(row)
        case "scheduled":
            return _scheduled(row, now_ns)
        case "queued":
            return _queued(views, row, now_ns, count_ahead)
        case "offered":
            return _offered(views, row, count_ahead)
        case "placed":
            return _placed(row)
        case "running":
            return _running(row)
        case "stopping":
            return _stopping(row)
        case "succeeded":
            return Reason(code="succeeded", message=_ended(row, "ended with exit code 0"))
        case "failed":
            return _failed(row)
        case _:
            by = f" by {row.by}" if row.by else ""
            return Reason(code="cancelled", message=_ended(row, f"was cancelled{by}"), detail=_only(by=row.by))


# ---------------------------------------------------------------------------------------- waiting


def _held(row: JobRow) -> Reason:
    by = f" by {row.by}" if row.by else ""
    return Reason(
        code="held", message=f"held{by} until it is released",
        detail=_only(by=row.by, next=f"fairlead release {row.id}"),
    )  # fmt: skip


def _scheduled(row: JobRow, now_ns: int) -> Reason:
    when = rfc3339(row.start_at_ns)
    left_s = max(0, row.start_at_ns - now_ns) // 1_000_000_000
    return Reason(
        code="scheduled", message=f"not to start before {when}",
        detail={"start_at": when, "seconds_left": left_s, "next": "wait, or submit again without startAt"},
    )  # fmt: skip


def _queued(views: Views, row: JobRow, now_ns: int, count_ahead: bool) -> Reason:
    if row.start_at_ns > now_ns:
        return _scheduled(row, now_ns)
    if row.not_before_ns > now_ns:
        return _backoff(row, now_ns)
    over = _quota(views, row)
    if over is not None:
        return over
    refusal = views.jobs.refusals.get(row.request)
    if refusal is not None:
        return _refused(refusal, row)
    return _waiting_turn(views, row, count_ahead)


def _offered(views: Views, row: JobRow, count_ahead: bool) -> Reason:
    refusal = views.jobs.refusals.get(row.request)
    if refusal is not None:
        return _refused(refusal, row)
    return _waiting_turn(views, row, count_ahead)


def _backoff(row: JobRow, now_ns: int) -> Reason:
    when = rfc3339(row.not_before_ns)
    return Reason(
        code="backoff", message=f"attempt {row.attempt} not before {when} (the one before ended: {row.reason})",
        detail={
            "attempt": row.attempt, "not_before": when, "cause": row.reason,
            "seconds_left": (row.not_before_ns - now_ns) // 1_000_000_000,
            "next": f"wait, or see the last attempt: fairlead logs {row.id}",
        },
    )  # fmt: skip


def _quota(views: Views, row: JobRow) -> Reason | None:
    """The reason if the queue's quota is what keeps the job from being offered."""
    queue = views.queues.rows[row.queue]
    quota, needs, used = queue.gpu_quota_milli, row.request.gpu_milli_total, queue.gpu_milli_charged
    if quota is None or not needs or used + needs <= quota:
        return None
    numbers: dict[str, int | str] = {
        "queue": row.queue, "quota_gpu_milli": quota, "used_gpu_milli": used, "needs_gpu_milli": needs,
    }  # fmt: skip
    if needs > quota:
        return Reason(
            code="quota_too_small",
            message=f"asks for {format_milli(needs)} GPUs; the whole quota of queue {row.queue} is {format_milli(quota)}",
            detail={**numbers, "next": f"ask for less, use another queue, or raise the quota of {row.queue}"},
        )
    return Reason(
        code="quota",
        message=f"queue {row.queue} is at {format_milli(used)} of {format_milli(quota)} GPUs; this needs {format_milli(needs)}",
        detail={**numbers, "next": f"wait until {format_milli(used + needs - quota)} GPUs of the queue's jobs are given back, or raise its quota"},
    )  # fmt: skip


def _refused(refusal: Refusal, row: JobRow) -> Reason:
    """The placer's refusal of this job or of one that asks for exactly the same."""
    numbers: dict[str, int | str] = {
        **{f"nodes.{reason}": count for reason, count in refusal.reasons.items()},
        "nodes": refusal.nodes, "fitting": refusal.fitting, "gpu_milli_free": refusal.gpu_milli_free,
        "gpu_milli_total": refusal.gpu_milli_total, "decided_at_sequence": refusal.sequence, "decided_for": refusal.job,
    }  # fmt: skip
    wanted = row.request.gpu_milli_total
    if wanted > refusal.gpu_milli_total:
        return Reason(
            code="larger_than_cluster",
            message=f"asks for {format_milli(wanted)} GPUs in all; the cluster has {format_milli(refusal.gpu_milli_total)}",
            detail={**numbers, "next": "it starts once enough nodes have joined; or cancel it and ask for less"},
        )
    return Reason(
        code="no_place", message=f"needs {_needs(row.request)}; {_over_nodes(refusal, row.request)}",
        detail={**numbers, "next": "it is tried again when nodes or GPUs become free: fairlead nodes"},
    )  # fmt: skip


def _needs(request: Request) -> str:
    gpus = request.gpu_milli // MILLI
    amount = (
        f"{gpus} GPU{'s' if gpus != 1 else ''}"
        if gpus
        else f"{format_milli(request.cpu_milli)} CPUs and {request.memory_mib} MiB"
    )
    return f"{amount} on each of {request.nodes} nodes" if request.nodes > 1 else f"{amount} on one node"


def _over_nodes(refusal: Refusal, request: Request) -> str:
    if not refusal.nodes:
        return "the cluster has no nodes"
    ordered = sorted(refusal.reasons.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {_kept_back(reason, count)}" for reason, count in ordered]
    if refusal.fitting and request.nodes > 1:
        parts.append(f"{refusal.fitting} could take part")
    of = f"of {refusal.nodes} node{'s' if refusal.nodes != 1 else ''}"
    return f"{of} {', '.join(parts)}" if parts else f"{of} too few fit"


def _kept_back(reason: str, count: int) -> str:
    words = _KEPT_BACK.get(reason)
    if words is None:
        return f"by {reason.replace('_', ' ')}"
    return words[0] if count == 1 else words[1]


def _waiting_turn(views: Views, row: JobRow, count_ahead: bool) -> Reason:
    then = "wait; a higher priority goes first"
    if not count_ahead:
        return Reason(code="waiting_turn", message="waits for its turn", detail={"next": then})
    ahead = jobs_ahead(views, row)
    return Reason(
        code="waiting_turn", message=f"waits for its turn; {ahead} job{' is' if ahead == 1 else 's are'} ahead of it",
        detail={"ahead": ahead, "priority": row.priority, "next": then},
    )  # fmt: skip


def jobs_ahead(views: Views, row: JobRow) -> int:
    """Open offers of lower rank; for one not offered yet also the jobs of higher or equal priority before it."""
    if row.state == "offered":
        return sum(
            1 for other in views.jobs.rows.values() if other.state == "offered" and other.offer_rank < row.offer_rank
        )
    ahead, own = 0, _order(row)
    for other in views.jobs.rows.values():
        if other.state == "offered" and other.array_id != row.id:
            ahead += 1
        elif other.state == "queued" and _order(other) < own:
            ahead += 1 if other.elements is None else other.elements["waiting"]
    return ahead


def _order(row: JobRow) -> tuple[int, int, int]:
    """The queue's order: priority, then submission, then index."""
    number, _, index = row.id.partition("_")
    return -row.priority, int(number), int(index or 0)


# ---------------------------------------------------------------------------------- placed and after


def _where(row: JobRow) -> str:
    nodes = [part.node for part in row.parts]
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")


def _placed(row: JobRow) -> Reason:
    since = rfc3339(row.placed_ns)
    return Reason(
        code="placed", message=f"has its place on {_where(row)} since {since}; starting",
        detail={"nodes": len(row.parts), "since": since, "next": f"fairlead logs -f {row.id}"},
    )  # fmt: skip


def _running(row: JobRow) -> Reason:
    since = rfc3339(row.started_ns or row.placed_ns)
    return Reason(
        code="running", message=f"runs on {_where(row)} since {since}",
        detail={"nodes": len(row.parts), "since": since, "next": f"fairlead logs -f {row.id}"},
    )  # fmt: skip


def _stopping(row: JobRow) -> Reason:
    if row.reason == "time_limit":
        message = "its time is up; it is being stopped"
    else:
        message = f"cancelled{f' by {row.by}' if row.by else ''}; it is being stopped"
    return Reason(
        code="stopping",
        message=message,
        detail=_only(reason=row.reason, by=row.by, next="wait for its grace time to pass"),
    )


def _failed(row: JobRow) -> Reason:
    if row.reason == "exit_code":
        how = f"was ended by signal {row.signal}" if row.signal else f"ended with exit code {row.exit_code}"
    else:
        how = f"failed: {_FAILURES.get(row.reason, row.reason)}"
    message = _ended(row, how) + (f": {row.message}" if row.message else "")
    numbers: dict[str, int | str] = {"reason": row.reason, "attempt": row.attempt}
    if row.exit_code is not None:
        numbers["exit_code"] = row.exit_code
    if row.signal is not None:
        numbers["signal"] = row.signal
    return Reason(code="failed", message=message, detail={**numbers, "next": _next_of_failed(row)})


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
