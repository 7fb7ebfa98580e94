"""A job that waits for a place: the placer's refusal, what is kept for the job, and which runs yield to it. Pure.

The numbers are those of the placer's own decision (JobUnplaceable), with the dominant cause as the views show it.
"""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, PlacementRefusal, StarvationRow
from fairlead_gateway.why.causes import NO_CAUSE, dominant, no_domain
from fairlead_gateway.why.free_resources import JobPool
from fairlead_gateway.why.sentences import Detail, is_one, job_list, name_list, reason, several
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.events import NearMiss
from fairlead_schemas.wire.placement_causes import in_words
from fairlead_schemas.wire.resource_requests import needs

#: Jobs of which one sentence states what is kept for them.
HOSTS_MAX = 2


def no_place(views: Views, row: JobRow, pool: JobPool, *, at_length: bool) -> Reason | None:
    """Return the placer's refusal of this job, or of one with an equal request; None where there is none. `pool`: the job's.
    `at_length`: with the numbers of the dominant cause, which cost a look at the pool's nodes.
    """
    wanted, refusal = row.request.gpu_milli_total, pool.refusal
    if refusal is None:
        return None
    evidence: Detail = {
        **{f"nodes.{name}": count for name, count in refusal.reasons.items()},
        "nodes": refusal.nodes,
        "fitting": refusal.fitting,
        "gpu_milli_free": refusal.gpu_milli_free,
        "gpu_milli_total": refusal.gpu_milli_total,
        "decided_at_sequence": refusal.sequence,
        "decided_for": refusal.job,
    }
    more = _near_misses(refusal) + _reserved_for_others(views, row, refusal) + _maintenance(views, refusal)
    if row.request.also and refusal.reasons.get("free_mig"):  # docs/concepts/mig.md
        more += "; no GPU is cut for jobs with groups: it waits for instances as they are"
    if wanted > refusal.gpu_milli_total:
        message = f"asks for {counted('gpu', wanted)} in all; {pool.name} has {number('gpu', refusal.gpu_milli_total)}"
        then = "it starts once enough nodes have joined; or cancel it and ask for less"
        return reason("larger_than_cluster", message + more, then, **evidence)
    apart, cause = no_domain(pool, refusal), dominant(pool, refusal) if at_length else NO_CAUSE
    clauses = [f"needs {needs(row.request)}", apart.message, over_nodes(pool, refusal), cause.message]
    then = cause.next or apart.next or "it is tried again when nodes or GPUs become free: fairlead nodes"
    evidence |= apart.detail | cause.detail
    return reason("no_place", "; ".join(filter(None, clauses)) + more, then, **evidence)


def over_nodes(pool: JobPool, refusal: PlacementRefusal) -> str:
    """Return the findings over all nodes: "of 4 nodes 3 lack free GPUs, 1 is cordoned"."""
    if not refusal.nodes:
        return f"{pool.name} has no nodes"
    fitting = f"{refusal.fitting} could take part" if refusal.fitting and pool.request.units > 1 else ""
    found = ", ".join(filter(None, (in_words(refusal.reasons), fitting)))
    return f"of {several(refusal.nodes, 'node')} {found or 'too few fit'}"


def _near_misses(refusal: PlacementRefusal) -> str:
    """Return the nodes that lack one job's end: "; n7 fits after job 812 ends, at … at the latest"."""
    part = refusal.fitting or refusal.request.units > 1
    nodes: dict[tuple[str, str], list[str]] = {}
    for miss in refusal.near:
        nodes.setdefault((miss.job, _when(miss)), []).append(miss.node)
    found = ""
    for (job, when), names in nodes.items():
        takes = "could take part" if part else is_one(names, "fits", "fit")
        found += f"; {name_list(names)} {takes} after job {job} ends{when}"
    return found


def _when(miss: NearMiss) -> str:
    at = "at the latest" if miss.basis == "limits" else "most likely"
    return f", {at} at {rfc3339(miss.at_ns)}" if miss.at_ns else ""


def _reserved_for_others(views: Views, row: JobRow, refusal: PlacementRefusal) -> str:
    """Return which jobs the nodes are kept for that the job cannot have: "; n12 is kept for job 9 from about …"."""
    hosts: dict[str, list[str]] = {}
    for node, job in sorted(views.waiting.keepers().items()) if refusal.reasons.get("reserved") else ():
        if job != row.id and views.jobs.rows[job].request.pool == row.request.pool:
            hosts.setdefault(job, []).append(node)
    found = ""
    for job in sorted(hosts)[:HOSTS_MAX]:
        start_ns, verb = views.waiting.kept_from_ns(job), is_one(hosts[job])
        then = f" from about {rfc3339(start_ns)}: a job whose time limit ends before may run there" if start_ns else ""
        found += f"; {name_list(hosts[job])} {verb} kept for job {job}{then}"
    return found


def _maintenance(views: Views, refusal: PlacementRefusal) -> str:
    """Return the windows that would come over it: "; maintenance cooling begins at …"."""
    rows = ((name, views.plans.windows.get(name)) for name in refusal.windows)
    return "".join(
        f"; maintenance {name} begins at {rfc3339(row.starts_ns)}: a job whose time limit ends before may run there"
        for name, row in rows
        if row is not None
    )


# ---------------------------------------------------------------------------------------- room that is made for a job


def with_preemptions(row: JobRow, now: Reason) -> Reason:
    """Add to the reason of a waiting job for which room is made: which runs yield to it, and what is kept for it."""
    room = row.room
    if room is None or room.attempt != row.attempt:
        return now
    kept = _reservation(room)
    if room.declined:
        kept = f"; asking others to yield would not make room: even then {in_words(room.declined)}{kept}"
    if room.victims:
        asked = f"{several(len(room.victims), 'job')} {is_one(room.victims, 'was', 'were')} asked to yield for it"
        evidence: Detail = {**now.detail, "asked": len(room.victims), "next": "it starts when they have ended"}
        return reason("making_room", f"{asked}: {name_list(room.victims)}{kept}", **evidence)
    named = f"; {several(room.named, 'job')} may be asked to yield for it" if room.named else ""
    return reason(now.code, f"{now.message}{named}{kept}", **now.detail)


def _reservation(room: StarvationRow) -> str:
    """Return what is kept for the job: "; n12 is kept for it from about … (by the limits of jobs 7, 9); job 31 runs there
    and does not delay it".
    """
    if not room.nodes:
        waited = format_duration(room.waited_ns) if room.waited_ns else ""
        return f"; it has waited for {waited}, so what comes free is kept for it" if waited else ""
    found = f"; {name_list(room.nodes)} {is_one(room.nodes)} kept for it"
    if room.start_ns:
        found += f" from about {rfc3339(room.start_ns)}"
        if room.waits_for and room.basis == "limits":
            found += f" (by the {is_one(room.waits_for, 'limit', 'limits')} of {job_list(room.waits_for)})"
        elif room.waits_for:
            found += f" (going by how long runs like {job_list(room.waits_for)} took)"
    elif room.waits_for:
        found += f"; it is unknown when {job_list(room.waits_for)} will end"
    if room.guests:
        runs, does = is_one(room.guests, "runs", "run"), is_one(room.guests, "does", "do")
        found += f"; {job_list(room.guests)} {runs} there and {does} not delay it"
    return found
