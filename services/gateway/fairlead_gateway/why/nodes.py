"""The placer's findings on nodes, in words: what a job needs of each, and what keeps them from giving it. Pure."""

from collections.abc import Mapping

from fairlead_gateway.views.rows import Refusal
from fairlead_schemas.wire.resources import Request

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


def over_nodes(refusal: Refusal, request: Request) -> str:
    """Return the findings over all nodes: "of 4 nodes 3 lack free GPUs, 1 is cordoned"."""
    if not refusal.nodes:
        return f"{where(request)} has no nodes"
    told = kept_back(refusal.reasons)
    if refusal.fitting and request.units > 1:
        told += f"{', ' if told else ''}{refusal.fitting} could take part"
    of = f"of {refusal.nodes} node{'s' if refusal.nodes != 1 else ''}"
    return f"{of} {told or 'too few fit'}"


def kept_back(reasons: Mapping[str, int]) -> str:
    """Return how many nodes each reason keeps from taking part, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {_kept_back(reason, count)}" for reason, count in ordered)


def _kept_back(reason: str, count: int) -> str:
    words = _KEPT_BACK.get(reason)
    if words is None:
        return f"by {reason.replace('_', ' ')}"
    return words[0] if count == 1 else words[1]


def not_cut(refusal: Refusal) -> str:
    """Return that no instances are made for the job, where it lacks instances (docs/concepts/mig.md); "" otherwise."""
    if not refusal.request.also or not refusal.reasons.get("free_mig"):
        return ""
    return "; no GPU is cut for jobs with groups: it waits for instances as they are"
