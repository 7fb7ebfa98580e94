"""Maps of clusters, drawn by hand: one sign per GPU in, facts of `GET /v1/map` out."""

from collections import Counter
from typing import Any

from fairlead_gateway.views.cluster_map import pool_rooms
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI, ClusterMap, GpuHolder, GpuState, MapGpu, MapJob, MapNode

SIGNS: dict[str, GpuState] = {
    ".": "free",
    ":": "kept",
    ";": "tainted",
    "/": "cut",
    "-": "closed",
    "~": "cleaning",
    "*": "unhealthy",
}


def node(name: str, gpus: str, holders: dict[str, tuple[str, ...]] | None = None, **fields: Any) -> MapNode:
    """A node whose GPUs are the signs of `gpus`; another sign is held by the jobs that `holders` names for it, in equal
    shares. `rack`, `block` and `spine` are its domains."""
    holders = holders or {}
    domains = {level: fields.pop(level) for level in ("rack", "block", "spine") if level in fields}
    devices = [_gpu(f"GPU-{name}-{index}", index, sign, holders.get(sign, ())) for index, sign in enumerate(gpus)]
    rest = {"pool": "default", "state": "ready", "reason": "", "simulated": False, "reserved_for": "", **fields}
    rest.setdefault(
        "access", "closed" if rest["state"] not in ("ready", "suspect") else "kept" if rest["reserved_for"] else "open"
    )
    return MapNode(id=name, domains=domains, gpus=devices, **rest)


def _gpu(uuid: str, index: int, sign: str, jobs: tuple[str, ...]) -> MapGpu:
    held = [GpuHolder(job=job, attempt=1, rank=0, milli=WHOLE_MILLI // len(jobs)) for job in jobs]
    return MapGpu(uuid=uuid, index=index, model="A100", state=SIGNS.get(sign, "held"), holders=held)


def job(number: str, name: str = "train", user: str = "ada", queue: str = "research", state: str = "running") -> MapJob:
    """A job; what it holds, `facts` counts."""
    return MapJob(id=number, name=name, user=user, queue=queue, state=state, gpu_milli=0)


def facts(nodes: list[MapNode], *jobs: MapJob) -> ClusterMap:
    """The map of these nodes; jobs that are not given are called train."""
    held = Counter[str]()
    for one in nodes:
        for gpu in one.gpus:
            for holder in gpu.holders:
                held[holder.job] += holder.milli
    known = {one.id: one for one in jobs}
    found = [
        MapJob(id=one.id, name=one.name, user=one.user, queue=one.queue, state=one.state, gpu_milli=held[number])
        for number in held
        for one in [known.get(number, job(number))]
    ]
    found.sort(key=lambda one: (-one.gpu_milli, len(one.id), one.id))
    return ClusterMap(sequence=40, at="2026-01-01T00:00:03.000Z", pools=pool_rooms(nodes), nodes=nodes, jobs=found)
