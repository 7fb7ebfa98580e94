"""Free room of each pool: free GPUs, fragmented ones, and the largest jobs that could start now. Pure.

Only GPUs are looked at: for a node's CPUs and memory, use `POST /v1/jobs:dryrun`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from fairlead_schemas.queries.cluster_map import (
    GPU_STATES,
    WHOLE_MILLI,
    GpuState,
    MapGang,
    MapGpu,
    MapNode,
    OneNode,
    PoolRoom,
)
from fairlead_schemas.units.hardware import DOMAIN_LABELS

#: The level whose one domain is all of the pool.
POOL_LEVEL = "pool"


def pool_rooms(nodes: Iterable[MapNode]) -> list[PoolRoom]:
    """Return the room of each pool that has one of the nodes, by name."""
    rooms = Rooms()
    for node in nodes:
        rooms.add(node)
    return rooms.documents()


class Rooms:
    """Free room of pools, counted node by node, in any order."""

    def __init__(self) -> None:
        self._pools: dict[str, _Room] = {}

    def add(self, node: MapNode) -> None:
        """Count one more node."""
        self._pools.setdefault(node.pool, _Room()).add(node)

    def documents(self) -> list[PoolRoom]:
        """Return the room of each pool, by name. No node is looked at again."""
        return [self._pools[pool].document(pool) for pool in sorted(self._pools)]


class _Room:
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
        free, whole = free_gpus(node), is_whole(node)
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
            pool=pool, nodes=self.nodes, nodes_simulated=self.simulated, gpus=self.states.total(),
            states={state: self.states[state] for state in GPU_STATES}, gpus_fragmented=self.fragmented,
            shares_free_milli=self.shares_milli, largest_on_one_node=OneNode(node=node, gpus=-free) if free else None,
            largest_of_whole_nodes={level: _largest_gang(self.whole[level]) for level in levels},
        )  # fmt: skip


def free_gpus(node: MapNode) -> int:
    """GPUs of a node that anybody's job may have."""
    return [gpu.state for gpu in node.gpus].count("free")


def is_whole(node: MapNode) -> bool:
    """True for a node with GPUs, of which all are free."""
    return bool(node.gpus) and free_gpus(node) == len(node.gpus)


def share_free_milli(gpu: MapGpu) -> int:
    """Return the thousandths that are left of a GPU which is held in part, though not clean; of one that is faulted or in MIG mode, 0."""
    if gpu.state not in ("held", "cleaning") or gpu.fault or gpu.instances:
        return 0
    return max(0, WHOLE_MILLI - sum(holder.milli for holder in gpu.holders))


def _largest_gang(counts: Counter[tuple[str, int]]) -> MapGang | None:
    """The most GPUs that whole nodes of one domain have together, all with equally many; then the most nodes, then
    the domain that comes first by name. A node without a domain at the level is in none."""
    if not counts:
        return None
    domain, gpus = min(counts, key=lambda found: (-counts[found] * found[1], -counts[found], found))
    return MapGang(domain=domain, nodes=counts[domain, gpus], gpus_per_node=gpus)
