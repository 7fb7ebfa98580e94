"""The placer's findings on nodes, in words: what a job needs of each, and what keeps them from giving it. Pure.

Nodes that are kept for a job, that nearly have room for one, or soon have maintenance: when, by what, and who is there.
Pure.
"""

from collections.abc import Mapping

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, PlacementRefusal, StarvationRow
from fairlead_gateway.why.sentences import name_list
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.events import NearMiss
from fairlead_schemas.wire.resources import Request

#: What kept a node from taking part, in words: (one node, several nodes).
_NODE_REFUSALS: dict[str, tuple[str, str]] = {
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
    "draining": ("is draining or drained", "are draining or drained"),
    "lost": ("is lost", "are lost"),
    "quarantined": ("is in quarantine", "are in quarantine"),
    "suspect": (
        "is suspect and has its one run, or rests after a failure",
        "are suspect and have their one run, or rest after a failure",
    ),
    "taint": ("has a taint that the job does not tolerate", "have taints that the job does not tolerate"),
    "gpu_faulted": ("has too many faulted GPUs", "have too many faulted GPUs"),
    "avoided": ("is where the job has failed", "are where the job has failed"),
    "maintenance": ("has maintenance before it would have ended", "have maintenance before it would have ended"),
    "reserved": ("is kept for another job", "are kept for other jobs"),
    "sharing": (
        "gives its GPUs out otherwise (whole, or as replicas)",
        "give their GPUs out otherwise (whole, or as replicas)",
    ),
    "mig_profile": ("has no GPU for the MIG profile", "have no GPU for the MIG profile"),
    "mig_mode": ("gives its GPUs by MIG instances only", "give their GPUs by MIG instances only"),
    "free_mig": ("lacks free MIG instances of the profile", "lack free MIG instances of the profile"),
    "topology": ("never has that close together", "never have that close together"),
    "nics": ("has too few network devices", "have too few network devices"),
    "free_gpu_memory": ("lacks free GPU memory", "lack free GPU memory"),
    "not_empty": ("is not empty", "are not empty"),
    "free_links": ("has free GPUs enough, but not so connected", "have free GPUs enough, but not so connected"),
    "free_numa": (
        "has no NUMA node or socket with both the GPUs and the CPUs free",
        "have no NUMA node or socket with both the GPUs and the CPUs free",
    ),
    "pool": ("is in another pool", "are in another pool"),
}


def where(request: Request) -> str:
    """All nodes that may take it: "the cluster", or a pool of its own."""
    return f"pool {request.pool}" if request.pool else "the cluster"


def over_nodes(refusal: PlacementRefusal, request: Request) -> str:
    """Return the findings over all nodes: "of 4 nodes 3 lack free GPUs, 1 is cordoned"."""
    if not refusal.nodes:
        return f"{where(request)} has no nodes"
    told = node_refusals(refusal.reasons)
    if refusal.fitting and request.units > 1:
        told += f"{', ' if told else ''}{refusal.fitting} could take part"
    of = f"of {refusal.nodes} node{'s' if refusal.nodes != 1 else ''}"
    return f"{of} {told or 'too few fit'}"


def node_refusals(reasons: Mapping[str, int]) -> str:
    """Return how many nodes each reason keeps from taking part, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {_node_refusal(reason, count)}" for reason, count in ordered)


def _node_refusal(reason: str, count: int) -> str:
    words = _NODE_REFUSALS.get(reason)
    if words is None:
        return f"by {reason.replace('_', ' ')}"
    return words[0] if count == 1 else words[1]


def no_repartition(refusal: PlacementRefusal) -> str:
    """Return that no instances are made for the job, where it lacks instances (docs/concepts/mig.md); "" otherwise."""
    if not refusal.request.also or not refusal.reasons.get("free_mig"):
        return ""
    return "; no GPU is cut for jobs with groups: it waits for instances as they are"


#: Jobs of which one sentence says what is kept for them.
HOSTS_MAX = 2


def reservation(room: StarvationRow) -> str:
    """Return what is kept for the job: "; n12 is kept for it from about … (by the limits of jobs 7, 9); job 31 runs there
    until then".
    """
    if not room.nodes:
        waited = format_duration(room.waited_ns) if room.waited_ns else ""
        return f"; it has waited for {waited}, so what comes free is kept for it" if waited else ""
    verb = "is" if len(room.nodes) == 1 else "are"
    return f"; {name_list(room.nodes)} {verb} kept for it{_from(room)}{_guests(room)}"


def _from(room: StarvationRow) -> str:
    if not room.start_ns:
        return f"; it is unknown when {_jobs(room.waits_for)} will end" if room.waits_for else ""
    by = ""
    if room.waits_for and room.basis == "limits":
        limits = "limit" if len(room.waits_for) == 1 else "limits"
        by = f" (by the {limits} of {_jobs(room.waits_for)})"
    elif room.waits_for:
        by = f" (going by how long runs like {_jobs(room.waits_for)} took)"
    return f" from about {rfc3339(room.start_ns)}{by}"


def _guests(room: StarvationRow) -> str:
    if not room.guests:
        return ""
    verbs = ("runs", "does") if len(room.guests) == 1 else ("run", "do")
    return f"; {_jobs(room.guests)} {verbs[0]} there and {verbs[1]} not delay it"


def _jobs(jobs: tuple[str, ...]) -> str:
    return f"job{'' if len(jobs) == 1 else 's'} {name_list(jobs)}"


def near_misses(refusal: PlacementRefusal) -> str:
    """The nodes that lack one job's end: "; n7 fits after job 812 ends, at … at the latest"."""
    part = refusal.fitting or refusal.request.units > 1
    nodes: dict[tuple[str, str], list[str]] = {}
    for miss in refusal.near:
        nodes.setdefault((miss.job, _when(miss)), []).append(miss.node)
    told = ""
    for (job, when), names in nodes.items():
        takes = "could take part" if part else "fits" if len(names) == 1 else "fit"
        told += f"; {name_list(names)} {takes} after job {job} ends{when}"
    return told


def _when(miss: NearMiss) -> str:
    if not miss.at_ns:
        return ""
    return f", {'at the latest' if miss.basis == 'limits' else 'most likely'} at {rfc3339(miss.at_ns)}"


def reserved_for_others(views: Views, row: JobRow, refusal: PlacementRefusal) -> str:
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
        told += f"; {name_list(hosts[job])} {'is' if len(hosts[job]) == 1 else 'are'} kept for job {job}{from_then}"
    return told


def maintenance_windows(views: Views, refusal: PlacementRefusal) -> str:
    """The windows that would come over it: "; maintenance cooling begins at …: a job whose time limit ends before may run
    there"."""
    told = ""
    for name in refusal.windows:
        row = views.plans.windows.get(name)
        if row is not None:
            told += f"; maintenance {name} begins at {rfc3339(row.starts_ns)}: a job whose time limit ends before may run there"
    return told
