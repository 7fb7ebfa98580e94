"""Causes that keep a node from a unit of a job: the closed list of the names in `JobUnplaceable.reasons`.

The placer counts one cause for each node: the first that holds, in the order of `CAUSES`. Causes that waiting cannot end
come before those that it can. A new cause is one entry here and the placer's check. Where its numbers help people, it is
also one entry in the gateway's `why/causes.py`.
"""

from typing import NamedTuple


class Cause(NamedTuple):
    """Cause that keeps a node from a unit of a job: its wording and its kind."""

    #: After "1 " and "2 ": "1 lacks free GPUs", "2 lack free GPUs".
    one: str
    many: str
    #: True if no end of any run ends it.
    lasting: bool = False
    #: True if it is due to the node alone, and so the same for all kinds of units of a job.
    of_node: bool = False
    #: Resource that comes free on the node when runs end: "gpu", "cpu", "memory"; "" for other causes.
    short: str = ""


CAUSES: dict[str, Cause] = {
    "lost": Cause("is lost", "are lost", of_node=True),
    "cordoned": Cause("is cordoned", "are cordoned", of_node=True),
    "draining": Cause("is draining or drained", "are draining or drained", of_node=True),
    "quarantined": Cause("is in quarantine", "are in quarantine", of_node=True),
    "suspect": Cause(
        "is suspect and has its one run, or rests after a failure",
        "are suspect and have their one run, or rest after a failure",
        of_node=True,
    ),
    "taint": Cause(
        "has a taint that the job does not tolerate",
        "have taints that the job does not tolerate",
        lasting=True,
        of_node=True,
    ),
    "gpu_model": Cause("has another GPU model", "have another GPU model", lasting=True),
    "selector": Cause("does not match the node selector", "do not match the node selector", lasting=True),
    "sharing": Cause(
        "gives its GPUs out otherwise (whole, or as replicas)",
        "give their GPUs out otherwise (whole, or as replicas)",
        lasting=True,
    ),
    "mig_profile": Cause("has no GPU for the MIG profile", "have no GPU for the MIG profile", lasting=True),
    "mig_mode": Cause("gives its GPUs by MIG instances only", "give their GPUs by MIG instances only", lasting=True),
    "gpus": Cause("has too few GPUs", "have too few GPUs", lasting=True),
    "gpu_memory": Cause("has GPUs with too little memory", "have GPUs with too little memory", lasting=True),
    "compute_capability": Cause(
        "has GPUs of too low compute capability", "have GPUs of too low compute capability", lasting=True
    ),
    "topology": Cause("never has that close together", "never have that close together", lasting=True),
    "nics": Cause("has too few network devices", "have too few network devices", lasting=True),
    "cpu": Cause("has too few CPUs", "have too few CPUs", lasting=True),
    "memory": Cause("has too little memory", "have too little memory", lasting=True),
    "gpu_faulted": Cause("has too many faulted GPUs", "have too many faulted GPUs"),
    "avoided": Cause("is where the job has failed", "are where the job has failed"),
    "maintenance": Cause("has maintenance before it would have ended", "have maintenance before it would have ended"),
    "reserved": Cause("is kept for another job", "are kept for other jobs"),
    "free_gpus": Cause("lacks free GPUs", "lack free GPUs", short="gpu"),
    "free_mig": Cause("lacks free MIG instances of the profile", "lack free MIG instances of the profile"),
    "free_gpu_memory": Cause("lacks free GPU memory", "lack free GPU memory", short="gpu"),
    "free_cpu": Cause("lacks free CPUs", "lack free CPUs", short="cpu"),
    "free_memory": Cause("lacks free memory", "lack free memory", short="memory"),
    "not_empty": Cause("is not empty", "are not empty"),
    "free_links": Cause("has free GPUs enough, but not so connected", "have free GPUs enough, but not so connected"),
    "free_numa": Cause(
        "has no NUMA node or socket with both the GPUs and the CPUs free",
        "have no NUMA node or socket with both the GPUs and the CPUs free",
    ),
}


def in_words(reasons: dict[str, int]) -> str:
    """Return how many nodes each cause keeps from taking part, the most frequent first: "3 lack free GPUs, 1 is cordoned"."""
    return ", ".join(f"{reasons[name]} {_words(name, reasons[name])}" for name in by_frequency(reasons))


def by_frequency(reasons: dict[str, int]) -> list[str]:
    """Return the causes, that of most nodes first."""
    return sorted(reasons, key=lambda name: (-reasons[name], name))


def _words(name: str, nodes: int) -> str:
    cause = CAUSES.get(name)
    if cause is None:  # of a newer placer
        return f"by {name.replace('_', ' ')}"
    return cause.one if nodes == 1 else cause.many
