"""Reasons that a job waits: its start time, other jobs, a limit of its queue, a place, or its turn. Pure.

The dominant cause of a refusal with its numbers, and what would end it. Pure.

The counts are the placer's own (JobUnplaceable); the other numbers are of the nodes as the views have them. Start
at `dominant`.
"""

from collections.abc import Callable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, PlacementRefusal
from fairlead_gateway.why import free_resources, permanent_causes, transient_causes
from fairlead_gateway.why.free_resources import MILLI, units_min
from fairlead_gateway.why.limits import deferred, explained
from fairlead_gateway.why.nodes import (
    maintenance_windows,
    near_misses,
    no_repartition,
    over_nodes,
    reserved_for_others,
    where,
)
from fairlead_gateway.why.preemption import after_preemption, with_preemptions
from fairlead_gateway.why.sentences import NO_CAUSE, CauseMessage
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.events import Dependency
from fairlead_schemas.wire.resource_requests import needs

#: Causes that no end of any run mends.
LASTING = frozenset(
    {
        "taint",
        "gpu_model",
        "selector",
        "sharing",
        "mig_profile",
        "mig_mode",
        "gpus",
        "gpu_memory",
        "compute_capability",
        "topology",
        "nics",
        "cpu",
        "memory",
        "pool",
    }
)


def dominant(views: Views, row: JobRow, refusal: PlacementRefusal) -> CauseMessage:
    """The cause of most nodes; nothing where enough nodes fit, and lie in no one domain."""
    asked = row.request
    if refusal.level and refusal.fitting >= units_min(asked):
        return NO_CAUSE
    cause = ordered(refusal.reasons)[0] if refusal.reasons else ""
    tell = _TELL.get(cause)
    if tell is None or (asked.also and cause not in _OF_ALL_KINDS):
        return NO_CAUSE
    return tell(views, row)


def ordered(reasons: dict[str, int]) -> list[str]:
    """The causes, that of most nodes first."""
    return sorted(reasons, key=lambda cause: (-reasons[cause], cause))


def no_domain(views: Views, refusal: PlacementRefusal) -> CauseMessage:
    """Return the cause for a gang that must fit in one domain: how many units the best domain takes, or that all domains
    are too small, which waiting for runs to end cannot change.
    """
    asked, level = refusal.request, refusal.level
    if not level or asked.units == 1:
        return NO_CAUSE
    units, unit = units_min(asked), "task" if asked.tasks else "node"
    largest = free_resources.largest_domain(views, asked, level)
    too_small = not asked.tasks and largest < units
    most = largest if too_small else refusal.best
    prefer = f"only prefer one {level} (topology.prefer: {level})"
    return CauseMessage(
        f"no {level} takes {units} {unit}s: the {f'largest has {most}' if too_small else f'best takes {most}'}",
        {"level": level, "needed": units, "best": refusal.best},
        f"ask for {most} {unit}{'' if most == 1 else 's'}, or {prefer}" if most else prefer,
        too_small,
    )


_WAIT_FOR_IT = "it is tried when they take work again: fairlead nodes"
_TELL: dict[str, Callable[[Views, JobRow], CauseMessage]] = {
    "gpu_model": permanent_causes.gpu_model, "selector": permanent_causes.selector, "taint": permanent_causes.taint, "sharing": permanent_causes.sharing, "topology": permanent_causes.topology,
    "gpus": permanent_causes.largest("on a node", lambda r: r.gpu_milli, lambda n: len(n.inventory.gpus) * MILLI, lambda m: counted("gpu", m)),
    "nics": permanent_causes.largest("network devices on a node", lambda r: r.nics, lambda n: len(n.inventory.inside.nics), str),
    "cpu": permanent_causes.largest("on a node", lambda r: r.cpu_milli, lambda n: n.inventory.cpu_milli, lambda m: counted("cpu", m)),
    "memory": permanent_causes.largest("on a node", lambda r: r.memory_mib, lambda n: n.inventory.memory_mib, lambda m: counted("memory", m)),
    "gpu_memory": permanent_causes.largest(
        "of each GPU", lambda r: r.gpu_memory_mib, lambda n: max((gpu.memory_mib for gpu in n.inventory.gpus), default=0),
        lambda m: counted("memory", m),
    ),
    "compute_capability": permanent_causes.largest(
        "as compute capability", lambda r: r.compute_capability,
        lambda n: max((gpu.compute_capability for gpu in n.inventory.gpus), default=0), lambda m: f"{m // 10}.{m % 10}",
    ),
    "free_cpu": transient_causes.most_left("cpu", lambda left: left.cpu_milli), "free_memory": transient_causes.most_left("memory", lambda left: left.memory_mib),
    "free_gpus": transient_causes.free_gpus, "free_links": transient_causes.apart, "free_numa": transient_causes.apart, "not_empty": transient_causes.not_empty, "gpu_faulted": transient_causes.faulted,
    "draining": transient_causes.in_state("draining", "drained", then=_WAIT_FOR_IT), "cordoned": transient_causes.in_state("cordoned", then=_WAIT_FOR_IT),
    "quarantined": transient_causes.in_state("quarantined", then="a person releases them: fairlead nodes"),
    "suspect": transient_causes.in_state("suspect", then="it is tried when the run that a suspect node has does well"),
    "lost": transient_causes.in_state("lost", then="it is tried when they report again: fairlead doctor"),
}  # fmt: skip
_OF_ALL_KINDS = frozenset({"taint", "draining", "cordoned", "quarantined", "suspect", "lost"})


#: What a job is waited for to do.
TO = {"succeeded": "to succeed", "failed": "to fail", "ended": "to end"}
#: Jobs that one sentence names.
NAMED_MAX = 3
#: Beyond so many, an explanation does not count those ahead.
AHEAD_MAX = 10_000


def scheduled(views: Views, row: JobRow, now_ns: int) -> Reason:
    """Return the reason of a job that was accepted and whose time has not come."""
    waits = open_dependencies(views, row)
    if not waits and row.start_at_ns:
        return _start_time(row, now_ns)
    return _dependencies(row, waits or list(row.after))


def open_dependencies(views: Views, row: JobRow) -> list[Dependency]:
    """Return the dependencies that have not ended as required. A job that has left the views counts as ended as required."""
    return [one for one in row.after if one.job in views.jobs.rows and views.jobs.is_open(one)]


def _dependencies(row: JobRow, waits: list[Dependency]) -> Reason:
    words = [f"job {one.job} {TO[one.state]}" for one in waits[:NAMED_MAX]]
    more = f" and {len(waits) - NAMED_MAX} more" if len(waits) > NAMED_MAX else ""
    told = f"{', '.join(words)}{more}" if more else " and ".join(words)
    detail: dict[str, int | str] = {"jobs": ", ".join(one.job for one in waits[:NAMED_MAX]), "waits_for": len(waits)}
    if row.start_at_ns:
        detail["start_at"] = rfc3339(row.start_at_ns)
    if waits:
        detail["next"] = f"fairlead why {waits[0].job}"
    return Reason(code="dependency", message=f"waits for {told}", detail=detail)


def _start_time(row: JobRow, now_ns: int) -> Reason:
    when = rfc3339(row.start_at_ns)
    left_s = max(0, row.start_at_ns - now_ns) // SECOND_NS
    return Reason(
        code="scheduled",
        message=f"not to start before {when}",
        detail={"start_at": when, "seconds_left": left_s, "next": "wait, or submit again without startAt"},
    )


def queued(
    views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = True, told: Explanation | None = None
) -> Reason:
    """Return the reason of a job that waits for its turn. `told`: the result of the queue's own gates, where known; it
    takes precedence over older refusals.
    """
    if row.after and (waits := open_dependencies(views, row)):
        return _dependencies(row, waits)
    if row.start_at_ns > now_ns:
        return _start_time(row, now_ns)
    if row.not_before_ns > now_ns:
        return after_preemption(row, _backoff(row, now_ns))
    limit = deferred(views, row) if told is None else explained(views, row, told)
    # A job without obstacles has not been tried yet: an older refusal concerned other jobs, before capacity was
    # freed.
    refused = _no_place(views, row, count_ahead) if told is None or told.reason != "next" else None
    now = limit or refused or _waiting_turn(views, row, count_ahead, told)
    return after_preemption(row, with_preemptions(row, now))


def offered(views: Views, row: JobRow, *, count_ahead: bool = True, told: Explanation | None = None) -> Reason:
    """Return the reason of a job that has been offered and waits for a place."""
    now = _no_place(views, row, count_ahead) or _waiting_turn(views, row, count_ahead, told)
    return after_preemption(row, with_preemptions(row, now))


def _no_place(views: Views, row: JobRow, at_length: bool) -> Reason | None:
    """`at_length`: with the numbers of the dominant cause, which cost a look at the pool's nodes."""
    refusal = views.waiting.refusals.get(row.request)
    if refusal is None:
        return None
    now = _refused(views, refusal, row)
    told = dominant(views, row, refusal) if at_length and now.code == "no_place" else NO_CAUSE
    message = f"{now.message}; {told.message}" if told.message else now.message
    more = (
        near_misses(refusal)
        + reserved_for_others(views, row, refusal)
        + maintenance_windows(views, refusal)
        + no_repartition(refusal)
    )
    detail = {**now.detail, **told.detail}
    if told.next:
        detail["next"] = told.next
    return Reason(code=now.code, message=f"{message}{more}", detail=detail)


def _backoff(row: JobRow, now_ns: int) -> Reason:
    when = rfc3339(row.not_before_ns)
    return Reason(
        code="backoff",
        message=f"attempt {row.attempt} not before {when} (the one before ended: {row.reason})",
        detail={
            "attempt": row.attempt,
            "not_before": when,
            "cause": row.reason,
            "seconds_left": (row.not_before_ns - now_ns) // SECOND_NS,
            "next": f"wait, or see the last attempt: fairlead logs {row.id}",
        },
    )


def _refused(views: Views, refusal: PlacementRefusal, row: JobRow) -> Reason:
    """The placer's refusal of this job or of one that asks for exactly the same."""
    numbers: dict[str, int | str] = {
        **{f"nodes.{reason}": count for reason, count in refusal.reasons.items()},
        "nodes": refusal.nodes,
        "fitting": refusal.fitting,
        "gpu_milli_free": refusal.gpu_milli_free,
        "gpu_milli_total": refusal.gpu_milli_total,
        "decided_at_sequence": refusal.sequence,
        "decided_for": refusal.job,
    }
    wanted = row.request.gpu_milli_total
    if wanted > refusal.gpu_milli_total:
        told = f"asks for {counted('gpu', wanted)} in all; {where(row.request)} has {number('gpu', refusal.gpu_milli_total)}"
        then = "it starts once enough nodes have joined; or cancel it and ask for less"
        return Reason(code="larger_than_cluster", message=told, detail={**numbers, "next": then})
    apart = no_domain(views, refusal)
    first = f"{apart.message}; " if apart.message else ""
    return Reason(
        code="no_place",
        message=f"needs {needs(row.request)}; {first}{over_nodes(refusal, row.request)}",
        detail={
            **numbers,
            **apart.detail,
            "next": apart.next or "it is tried again when nodes or GPUs become free: fairlead nodes",
        },
    )


def _waiting_turn(views: Views, row: JobRow, count_ahead: bool, told: Explanation | None) -> Reason:
    then = "wait; a higher priority goes first"
    waits = "has its turn and waits for a place" if row.state == "offered" else "waits for its turn"
    if told is None and not count_ahead:
        return Reason(code="waiting_turn", message=waits, detail={"next": then})
    ahead = jobs_ahead(views, row) if told is None else told.ahead
    return Reason(
        code="waiting_turn",
        message=f"{waits}; {_ahead(ahead)}",
        detail={"ahead": ahead, "priority": row.priority, "next": then},
    )


def _ahead(jobs: int) -> str:
    if not jobs:
        return "it is next"
    if jobs >= AHEAD_MAX:
        return f"{AHEAD_MAX} jobs or more are ahead of it"
    return f"{jobs} job{' is' if jobs == 1 else 's are'} ahead of it"


def jobs_ahead(views: Views, row: JobRow) -> int:
    """Open offers of lower rank; for one not offered yet all open offers, and the jobs of its queue that go before it by
    priority and age. How queues take turns is the queue's own to know."""
    if row.state == "offered":
        return sum(
            1 for other in views.jobs.rows.values() if other.state == "offered" and other.offer_rank < row.offer_rank
        )
    ahead, own = 0, _order(row)
    for other in views.jobs.rows.values():
        if other.state == "offered" and other.array_id != row.id:
            ahead += 1
        elif other.state == "queued" and other.queue == row.queue and _order(other) < own:
            ahead += 1 if other.elements is None else other.elements["waiting"]
    return ahead


def _order(row: JobRow) -> tuple[int, int, int]:
    """The queue's order: priority, then submission, then index."""
    number, _, index = row.id.partition("_")
    return -row.priority, int(number), int(index or 0)
