"""What each pool has left: free GPUs, those that are fragmented, and the largest jobs that could start now. Pure.

Only GPUs are looked at: whether a node has the CPUs and the memory for a job, `POST /v1/jobs:dryrun` says.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from fairlead_schemas.clustermap import GPU_STATES, WHOLE_MILLI, Gang, MapGpu, MapNode, OneNode, PoolRoom
from fairlead_schemas.topology import DOMAIN_LABELS

#: The level whose one domain is all of the pool.
POOL_LEVEL = "pool"


def pool_rooms(nodes: Iterable[MapNode]) -> list[PoolRoom]:
    """One per pool that has one of the nodes, by name."""
    pools: defaultdict[str, list[MapNode]] = defaultdict(list)
    for node in nodes:
        pools[node.pool].append(node)
    return [_room(pool, pools[pool]) for pool in sorted(pools)]


def _room(pool: str, nodes: Sequence[MapNode]) -> PoolRoom:
    states = Counter(gpu.state for node in nodes for gpu in node.gpus)
    free = {node.id: free_gpus(node) for node in nodes}
    whole = [node for node in nodes if is_whole(node)]
    most = min(nodes, key=lambda node: (-free[node.id], node.id))
    levels = [level for level in DOMAIN_LABELS if any(level in node.domains for node in nodes)]
    return PoolRoom(
        pool=pool, nodes=len(nodes), nodes_simulated=sum(node.simulated for node in nodes),
        gpus=states.total(), states={state: states[state] for state in GPU_STATES},
        gpus_fragmented=sum(free.values()) - sum(len(node.gpus) for node in whole),
        shares_free_milli=sum(share_free_milli(gpu) for node in nodes if _is_open(node) for gpu in node.gpus),
        largest_on_one_node=OneNode(node=most.id, gpus=free[most.id]) if free[most.id] else None,
        largest_of_whole_nodes={level: largest_gang(whole, level) for level in (*levels, POOL_LEVEL)},
    )  # fmt: skip


def _is_open(node: MapNode) -> bool:
    return node.state == "ready" and not node.reserved_for


def free_gpus(node: MapNode) -> int:
    """GPUs of a node that anybody's job may have."""
    return sum(gpu.state == "free" for gpu in node.gpus)


def is_whole(node: MapNode) -> bool:
    """True for a node with GPUs, of which all are free."""
    return bool(node.gpus) and free_gpus(node) == len(node.gpus)


def share_free_milli(gpu: MapGpu) -> int:
    """What is left of a GPU that is held in part."""
    if gpu.state != "held":
        return 0
    return max(0, WHOLE_MILLI - sum(holder.milli for holder in gpu.holders))


def largest_gang(whole: Iterable[MapNode], level: str) -> Gang | None:
    """The most GPUs that whole nodes of one domain have together, all with equally many; then the most nodes, then
    the domain that comes first by name. A node without a domain at the level is in none."""
    counts = Counter(
        (domain, len(node.gpus)) for node in whole
        if (domain := node.pool if level == POOL_LEVEL else node.domains.get(level))
    )  # fmt: skip
    if not counts:
        return None
    domain, gpus = min(counts, key=lambda found: (-counts[found] * found[1], -counts[found], found))
    return Gang(domain=domain, nodes=counts[domain, gpus], gpus_per_node=gpus)
