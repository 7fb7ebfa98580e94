"""Nodes that are kept for a job, that nearly have room for one, or soon have maintenance: when, by what, and who is there.
Pure."""

from fairlead_gateway.moments import rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Refusal, Room
from fairlead_gateway.why.amounts import these
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.wire.events import NearMiss

#: Jobs of which one sentence says what is kept for them.
HOSTS_MAX = 2


def kept(room: Room) -> str:
    """Return what is kept for the job: "; n12 is kept for it from about … (by the limits of jobs 7, 9); job 31 runs there
    until then".
    """
    if not room.nodes:
        waited = format_duration(room.waited_ns) if room.waited_ns else ""
        return f"; it has waited for {waited}, so what comes free is kept for it" if waited else ""
    verb = "is" if len(room.nodes) == 1 else "are"
    return f"; {these(room.nodes)} {verb} kept for it{_from(room)}{_guests(room)}"


def _from(room: Room) -> str:
    if not room.start_ns:
        return f"; nobody knows when {_jobs(room.waits_for)} will end" if room.waits_for else ""
    by = ""
    if room.waits_for and room.basis == "limits":
        limits = "limit" if len(room.waits_for) == 1 else "limits"
        by = f" (by the {limits} of {_jobs(room.waits_for)})"
    elif room.waits_for:
        by = f" (going by how long runs like {_jobs(room.waits_for)} took)"
    return f" from about {rfc3339(room.start_ns)}{by}"


def _guests(room: Room) -> str:
    if not room.guests:
        return ""
    verbs = ("runs", "does") if len(room.guests) == 1 else ("run", "do")
    return f"; {_jobs(room.guests)} {verbs[0]} there and {verbs[1]} not delay it"


def _jobs(jobs: tuple[str, ...]) -> str:
    return f"job{'' if len(jobs) == 1 else 's'} {these(jobs)}"


def nearly(refusal: Refusal) -> str:
    """The nodes that lack one job's end: "; n7 fits after job 812 ends, at … at the latest"."""
    part = refusal.fitting or refusal.request.units > 1
    nodes: dict[tuple[str, str], list[str]] = {}
    for miss in refusal.near:
        nodes.setdefault((miss.job, _when(miss)), []).append(miss.node)
    told = ""
    for (job, when), names in nodes.items():
        takes = "could take part" if part else "fits" if len(names) == 1 else "fit"
        told += f"; {these(names)} {takes} after job {job} ends{when}"
    return told


def _when(miss: NearMiss) -> str:
    if not miss.at_ns:
        return ""
    return f", {'at the latest' if miss.basis == 'limits' else 'most likely'} at {rfc3339(miss.at_ns)}"


def kept_from_it(views: Views, row: JobRow, refusal: Refusal) -> str:
    """Return which jobs the nodes are kept for that the job cannot have: "; n12 is kept for job 9 from about …, until when
    a job whose time limit ends before may run there".
    """
    if not refusal.reasons.get("reserved"):
        return ""
    hosts: dict[str, list[str]] = {}
    for node, job in sorted(views.waiting.keepers().items()):
        if job != row.id and views.jobs.rows[job].request.pool == row.request.pool:
            hosts.setdefault(job, []).append(node)
    told = ""
    for job in sorted(hosts)[:HOSTS_MAX]:
        start_ns = views.waiting.kept_from_ns(job)
        from_then = (
            f" from about {rfc3339(start_ns)}: a job whose time limit ends before may run there" if start_ns else ""
        )
        told += f"; {these(hosts[job])} {'is' if len(hosts[job]) == 1 else 'are'} kept for job {job}{from_then}"
    return told


def maintained(views: Views, refusal: Refusal) -> str:
    """The windows that would come over it: "; maintenance cooling begins at …: a job whose time limit ends before may run
    there"."""
    told = ""
    for name in refusal.windows:
        row = views.plans.windows.get(name)
        if row is not None:
            told += f"; maintenance {name} begins at {rfc3339(row.starts_ns)}: a job whose time limit ends before may run there"
    return told
