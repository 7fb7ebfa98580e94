"""The map of the cluster: each node's GPUs, who holds them, and who they are. Pure; what pools have left: `poolroom.py`."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from fairlead_gateway.moments import moment_or_none
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.gpustates import gpu_states, node_access, taints_of
from fairlead_gateway.views.nodes import node_state, run_name
from fairlead_gateway.views.poolroom import pool_rooms
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queries.cluster_map import (
    WHOLE_MILLI,
    ClusterMap,
    GpuHolder,
    MapGpu,
    MapInstance,
    MapJob,
    MapNode,
)
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of
from fairlead_schemas.units.ids import array_of


def cluster_map(views: Views, *, pool: str = "", rack: str = "") -> ClusterMap:
    """The map as of the views, of one pool or of the racks of one name only ("": of all). What is counted is what is
    shown."""
    keepers = views.waiting.keepers()
    rows = (row for _, row in sorted(views.nodes.rows.items()))
    nodes = [
        map_node(views, row, keepers.get(row.id, "")) for row in rows
        if pool in ("", _pool_of(row)) and rack in ("", domain_of(row.inventory.labels, "rack"))
    ]  # fmt: skip
    return ClusterMap(
        sequence=views.sequence, at=moment_or_none(views.at_ns), pools=pool_rooms(nodes), nodes=nodes,
        jobs=_jobs(views, nodes),
    )  # fmt: skip


def known_places(views: Views) -> tuple[set[str], set[str]]:
    """Return the names of all pools and racks as of the views."""
    rows = views.nodes.rows.values()
    pools = {row.name for row in views.queues.pool_rows()} | {_pool_of(row) for row in rows}
    return pools, {rack for row in rows if (rack := domain_of(row.inventory.labels, "rack"))}


def _pool_of(row: NodeRow) -> str:
    return row.inventory.labels.get(POOL_LABEL) or DEFAULT_POOL


def map_node(views: Views, row: NodeRow, keeper: str) -> MapNode:
    """Return the map of one node. `keeper`: the waiting job that it is kept for."""
    labels = row.inventory.labels
    domains = {level: domain for level in DOMAIN_LABELS if (domain := domain_of(labels, level))}
    silent_s = views.silent_s(row.id)
    holders = _holders(views, row)
    access = node_access(row, silent=silent_s > 0, keeper=keeper)
    states = gpu_states(row, views.jobs, access)
    faulted = row.faulted
    gpus = [
        MapGpu(
            uuid=gpu.uuid, index=gpu.index, model=gpu.model, holders=holders.get(gpu.uuid, []), state=state,
            instances=[MapInstance(uuid=one.uuid, profile=one.profile) for one in gpu.instances], fault=faulted.get(gpu.uuid, ""),
        )
        for gpu, state in sorted(zip(row.inventory.gpus, states, strict=True), key=lambda each: each[0].index)
    ]  # fmt: skip
    return MapNode(
        id=row.id, pool=_pool_of(row), domains=domains, state=node_state(row, silent=silent_s > 0), reason=row.reason,
        simulated=row.inventory.simulated, reserved_for=keeper, gpus=gpus,
        reserved_from=moment_or_none(views.waiting.kept_from_ns(keeper)) if keeper else None,
        access=access, taints=taints_of(row), silent_seconds=silent_s,
    )  # fmt: skip


def _holders(views: Views, row: NodeRow) -> dict[str, list[GpuHolder]]:
    """Return the ranks that hold each GPU of a node, by UUID."""
    holders: defaultdict[str, list[GpuHolder]] = defaultdict(list)
    for run, part in row.held.items():
        job, _, number = run.rpartition(".")
        attempt = int(number)
        rank, milli = _rank(views, job, attempt, row.id), part.gpu_milli or WHOLE_MILLI
        instances = part.instances or ("",) * len(part.gpus)
        for uuid, instance in zip(part.gpus, instances, strict=True):
            holders[uuid].append(GpuHolder(job=job, attempt=attempt, rank=rank, milli=milli, instance=instance))
    return holders


def _rank(views: Views, job: str, attempt: int, node: str) -> int:
    """The rank of a node's part; of a run whose job is not known any more, 0."""
    nodes = views.nodes.gangs.get(run_name(job, attempt), ())
    known = views.jobs.rows.get(job)
    if not nodes and known is not None:
        now = tuple(part.node for part in known.parts)
        nodes = now if known.attempt == attempt else known.past.get(str(attempt), ())
    return nodes.index(node) if node in nodes else 0


def _jobs(views: Views, nodes: Iterable[MapNode]) -> list[MapJob]:
    """Return the jobs that hold GPUs of the nodes: the most first, equals in the order of their ids."""
    held = Counter[str]()
    for node in nodes:
        for gpu in node.gpus:
            for holder in gpu.holders:
                held[holder.job] += holder.milli
    found = [_job(views, job, milli) for job, milli in held.items()]
    return sorted(found, key=lambda job: (-job.gpu_milli, [int(part) for part in job.id.split("_")]))


def _job(views: Views, job: str, gpu_milli: int) -> MapJob:
    row = views.jobs.rows.get(job) or views.jobs.rows.get(array_of(job) or "")
    if row is None:
        return MapJob(id=job, name="", user="", queue="", state="", gpu_milli=gpu_milli)
    return MapJob(id=job, name=row.name, user=row.user, queue=row.queue, state=row.state, gpu_milli=gpu_milli)
