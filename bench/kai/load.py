"""KAI-Scheduler's scale tests as job files, queue files and figures. Pure.

Source: test/e2e/scale of NVIDIA/KAI-Scheduler, which plays 500 nodes of 8 GPUs (KWOK), and the figures published with it.
A gang that reclaims takes more than half of each of its nodes, so that no two of its pods share one.
"""

from typing import NamedTuple

GPU = "nvidia.com/gpu"
FILL, OWNER = "fill", "owner"


class Size(NamedTuple):
    """Sizes at which the load is played."""

    nodes: int = 500
    gpus: int = 8
    #: Pods of the gang on the empty cluster, two GPUs each.
    gang: int = 512
    #: Jobs that are judged, and that reclaim one GPU each: the mean of so many counts.
    samples: int = 10
    #: Gangs that reclaim, and the pods of each, and of the one that cannot fit.
    gangs: int = 50
    pods: int = 10

    @property
    def total(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus

    @property
    def large(self) -> int:
        """GPUs of the gang that cannot fit."""
        return self.pods * self.gpus

    @property
    def per_pod(self) -> int:
        """GPUs of a pod that reclaims: more than half of a node's."""
        return self.gpus // 2 + 1


class Figure(NamedTuple):
    """Goal of a row, and KAI's own figure for the same, in seconds."""

    goal: float
    published: float


FILLED = Figure(8.0, 398.0)
GANG = Figure(1.0, 49.0)
JUDGED = Figure(0.2, 249.0)
RECLAIMED_ONE = Figure(0.5, 13.9)
RECLAIMED_GANGS = Figure(10.0, 717.0)


def queue_file(size: Size, *, owned: int) -> dict[str, object]:
    """Two queues: what is not guaranteed to `owner` is to `fill`, which borrows the rest. Runs are safe for no time."""
    preemption = {"reclaim": "any", "protect": "0s"}
    guaranteed = {FILL: size.total - owned, OWNER: owned}
    return {
        "queues": {
            name: {"guaranteed": {GPU: gpus}, "preemption": preemption} if gpus else {"preemption": preemption}
            for name, gpus in guaranteed.items()
        }
    }


def one_gpu(queue: str) -> dict[str, object]:
    """A job on one GPU that runs until it is ended."""
    return _job(queue, 1)


def shared_gang(size: Size) -> dict[str, object]:
    """Gang of which all pods start or none; they may share nodes."""
    return {**_job(FILL, 2), "tasks": size.gang}


def too_large(size: Size) -> dict[str, object]:
    """Whole nodes, one GPU more in all than its queue is guaranteed: what is needed beyond that is another's own."""
    return {**_job(OWNER, size.gpus), "nodes": size.pods}


def reclaiming_gang(size: Size) -> dict[str, object]:
    """A gang within its queue's guarantee."""
    return {**_job(OWNER, size.per_pod), "nodes": size.pods}


def _job(queue: str, gpus: int) -> dict[str, object]:
    resources = {GPU: gpus, "cpu": "1", "memory": "1Gi"}
    return {"command": ["sleep", "86400"], "queue": queue, "resources": resources, "time": {"grace": "1s"}}
