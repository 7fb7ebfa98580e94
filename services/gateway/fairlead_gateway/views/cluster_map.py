"""The map of the cluster: each node's GPUs, who holds them, and who they are. Pure.

Further parts:
- the state of every GPU of a node: the one computation behind the map, /metrics, lists of nodes, `top` and dry runs;
- free room of each pool: free GPUs, fragmented ones, and the largest jobs that could start now.

The state of a GPU agrees with the placer on the GPUs that may be given now (tests/gateway/views/test_gpu_states.py holds both to one
number). The one fact from outside the log is a silent agent: the placer waits for the end of the node's lease,
people need not.

Free room counts GPUs only: for a node's CPUs and memory, use `POST /v1/jobs:dryrun`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.jobs import JobsView
from fairlead_gateway.views.nodes import node_state, run_name
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queries.cluster_map import (
    GPU_STATES,
    WHOLE_MILLI,
    Access,
    ClusterMap,
    GpuHolder,
    GpuState,
    MapGang,
    MapGpu,
    MapInstance,
    MapJob,
    MapNode,
    OneNode,
    PoolRoom,
)
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.taints import NodeLabelError, Taint, parse_taint
from fairlead_schemas.units.timestamps import rfc3339_or_none
from fairlead_schemas.wire.resources import Gpu

#: Keys of taints that Fairlead sets by itself: what they stand for is wrong with the node, and no job is asked to tolerate it.
OWN_TAINTS = "fairlead/"
#: State of a healthy GPU that no run holds, by the node's access.
_UNHELD: Mapping[Access, GpuState] = {"open": "free", "kept": "kept", "tainted": "tainted", "closed": "closed"}


def node_access(row: NodeRow, *, silent: bool, keeper: str) -> Access:
    """Return whose new work the node takes. `keeper`: the waiting job that it is kept for ("": none)."""
    if silent or not is_open(row):
        return "closed"
    barring = barring_taints(row)
    if any(taint.key.startswith(OWN_TAINTS) for taint in barring):
        return "closed"
    if keeper:
        return "kept"
    return "tainted" if barring else "open"


def is_open(row: NodeRow) -> bool:
    """Return True if the node takes new work. A suspect node takes one run at a time, and none while it rests."""
    state = node_state(row)
    return state == "ready" or (state == "suspect" and not (row.held or row.rests_until_ns))


def taints_of(row: NodeRow) -> list[str]:
    """Return all taints of the node, its inventory's included, sorted."""
    if not row.taints and not row.inventory.taints:
        return []  # most nodes, and this is asked of every node of a cluster at once
    return sorted({*(taint for taint, _ in row.taints), *row.inventory.taints})


def barring_taints(row: NodeRow) -> list[Taint]:
    """Return the taints that keep out work which does not tolerate them."""
    found: list[Taint] = []
    for text in taints_of(row):
        try:
            taint = parse_taint(text)
        except NodeLabelError:
            continue
        if taint.effect != "PreferNoSchedule":
            found.append(taint)
    return found


def is_whole_gpu(row: NodeRow, gpu: Gpu) -> bool:
    """True for a GPU that can be given as a whole: it is well, and not in MIG mode."""
    return not gpu.mig and gpu.uuid not in row.faulted


def gpu_states(row: NodeRow, jobs: JobsView, access: Access) -> list[GpuState]:
    """Return the state of each GPU of the node's inventory, in the inventory's order. `access`: of `node_access`."""
    unheld = _UNHELD[access]
    gpus, used, faulted = row.inventory.gpus, held_gpus(row, jobs) if row.held else {}, row.faulted
    cut: GpuState = "cut" if unheld == "free" else unheld
    if not used and not faulted:
        return [cut if gpu.mig else unheld for gpu in gpus]
    return [
        ("held" if used[gpu.uuid] else "cleaning")
        if gpu.uuid in used
        else "unhealthy"
        if gpu.uuid in faulted
        else cut
        if gpu.mig
        else unheld
        for gpu in gpus
    ]


def held_gpus(row: NodeRow, jobs: JobsView) -> dict[str, bool]:
    """Return {UUID of a GPU that parts of runs are on: True while one of these runs has not ended}."""
    used: dict[str, bool] = {}
    for run, part in row.held.items():
        job, _, attempt = run.rpartition(".")
        lives = jobs.has_live_run(job, int(attempt))
        for uuid in part.gpus:
            used[uuid] = used.get(uuid, False) or lives
    return used


#: The level whose one domain is all of the pool.
POOL_LEVEL = "pool"


def pool_rooms(nodes: Iterable[MapNode]) -> list[PoolRoom]:
    """Return the room of each pool that has one of the nodes, by name."""
    rooms = PoolCapacity()
    for node in nodes:
        rooms.add(node)
    return rooms.documents()


class PoolCapacity:
    """Free room of pools, counted node by node, in any order."""

    def __init__(self) -> None:
        self._pools: dict[str, _PoolCount] = {}

    def add(self, node: MapNode) -> None:
        """Count one more node."""
        self._pools.setdefault(node.pool, _PoolCount()).add(node)

    def documents(self) -> list[PoolRoom]:
        """Return the room of each pool, by name. No node is looked at again."""
        return [self._pools[pool].document(pool) for pool in sorted(self._pools)]


class _PoolCount:
    """Free room of one pool."""

    def __init__(self) -> None:
        self.nodes = self.simulated = self.fragmented = self.shares_milli = 0
        self.states = Counter[GpuState]()
        #: (free GPUs, negative; node): the least is the node with the most.
        self.most: tuple[int, str] | None = None
        #: Levels that some node's labels name; {level: {(domain, GPUs of a whole node there): such nodes}}.
        self.levels = {POOL_LEVEL}
        self.whole = defaultdict[str, Counter[tuple[str, int]]](Counter)

    def add(self, node: MapNode) -> None:
        free, whole = free_gpus(node), is_whole_node(node)
        self.nodes += 1
        self.simulated += node.simulated
        self.states.update([gpu.state for gpu in node.gpus])
        self.fragmented += 0 if whole else free
        self.shares_milli += sum(map(share_free_milli, node.gpus)) if node.access == "open" else 0
        self.most = min(self.most or (-free, node.id), (-free, node.id))
        self.levels.update(node.domains)
        for level, domain in (*node.domains.items(), (POOL_LEVEL, node.pool)) if whole else ():
            self.whole[level][domain, len(node.gpus)] += 1

    def document(self, pool: str) -> PoolRoom:
        free, node = self.most or (0, "")
        levels = [level for level in (*DOMAIN_LABELS, POOL_LEVEL) if level in self.levels]
        return PoolRoom(
            pool=pool,
            nodes=self.nodes,
            nodes_simulated=self.simulated,
            gpus=self.states.total(),
            states={state: self.states[state] for state in GPU_STATES},
            gpus_fragmented=self.fragmented,
            shares_free_milli=self.shares_milli,
            largest_on_one_node=OneNode(node=node, gpus=-free) if free else None,
            largest_of_whole_nodes={level: _largest_gang(self.whole[level]) for level in levels},
        )


def free_gpus(node: MapNode) -> int:
    """GPUs of a node that anybody's job may have."""
    return [gpu.state for gpu in node.gpus].count("free")


def is_whole_node(node: MapNode) -> bool:
    """True for a node with GPUs, of which all are free."""
    return bool(node.gpus) and free_gpus(node) == len(node.gpus)


def share_free_milli(gpu: MapGpu) -> int:
    """Return the thousandths that are left of a GPU which is held in part, though not clean; of one that is faulted or in MIG mode, 0."""
    if gpu.state not in ("held", "cleaning") or gpu.fault or gpu.instances:
        return 0
    return max(0, WHOLE_MILLI - sum(holder.milli for holder in gpu.holders))


def _largest_gang(counts: Counter[tuple[str, int]]) -> MapGang | None:
    """Return the largest gang that whole nodes of one domain can hold, all with equally many GPUs. Ties go to more
    nodes, then to the first domain by name; nodes without a domain at the level do not count.
    """
    if not counts:
        return None
    domain, gpus = min(counts, key=lambda found: (-counts[found] * found[1], -counts[found], found))
    return MapGang(domain=domain, nodes=counts[domain, gpus], gpus_per_node=gpus)


def cluster_map(
    views: Views, *, pool: str = "", rack: str = "", sees: Callable[[NodeRow], bool] = lambda _row: True
) -> ClusterMap:
    """The map as of the views, of one pool or of the racks of one name only ("": of all), and of nodes that `sees` allows.
    What is counted is what is shown."""
    keepers = views.waiting.keepers()
    rows = (row for _, row in sorted(views.nodes.rows.items()))
    nodes = [
        map_node(views, row, keepers.get(row.id, ""))
        for row in rows
        if sees(row) and pool in ("", pool_of(row)) and rack in ("", domain_of(row.inventory.labels, "rack"))
    ]
    return ClusterMap(
        sequence=views.sequence,
        at=rfc3339_or_none(views.at_ns),
        pools=pool_rooms(nodes),
        nodes=nodes,
        jobs=_jobs(views, nodes),
    )


def known_places(views: Views, sees: Callable[[NodeRow], bool] = lambda _row: True) -> tuple[set[str], set[str]]:
    """Return the names of all pools and racks that have a node which `sees` allows, as of the views."""
    rows = [row for row in views.nodes.rows.values() if sees(row)]
    empty = {row.name for row in views.queues.pool_rows()} - {pool_of(row) for row in views.nodes.rows.values()}
    pools = empty | {pool_of(row) for row in rows}
    return pools, {rack for row in rows if (rack := domain_of(row.inventory.labels, "rack"))}


def pool_of(row: NodeRow) -> str:
    """Return the pool that the node is in."""
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
        id=row.id,
        pool=pool_of(row),
        domains=domains,
        state=node_state(row, silent=silent_s > 0),
        reason=row.reason,
        simulated=row.inventory.simulated,
        reserved_for=keeper,
        gpus=gpus,
        reserved_from=rfc3339_or_none(views.waiting.kept_from_ns(keeper)) if keeper else None,
        access=access,
        taints=taints_of(row),
        silent_seconds=silent_s,
    )


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
    return MapJob(
        id=job, name=row.name, user=views.name_of(row.user), queue=row.queue, state=row.state, gpu_milli=gpu_milli
    )
