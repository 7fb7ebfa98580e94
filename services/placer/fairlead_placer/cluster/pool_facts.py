"""Facts about a pool for people: what is free, how much of that is of no use to the usual work, and the largest jobs that
could start now. Changes nothing.

A job of n nodes with g GPUs on each, which asks for hardly any CPU and memory, for nothing else, and tolerates no taint,
could start within one domain of a level if and only if one of the level's gangs has at least n nodes with at least g GPUs.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_shape import MILLI
from fairlead_placer.cluster.capacity.topology_domains import LEVELS, Domains
from fairlead_placer.cluster.capacity.unit_request import typical, unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.policies import DEFAULT, fragmentation
from fairlead_placer.packing.policy import Arrivals, Ints
from fairlead_schemas.queries.cluster_map import DomainCapacity, OneNode, PoolPacking
from fairlead_schemas.queuefile.settings import Packing
from fairlead_schemas.units.taints import tolerates
from fairlead_schemas.wire.resources import Request

#: The level whose one domain is all of the pool.
POOL_LEVEL = "pool"
#: What fits wherever a GPU is free for everybody. Some CPU and memory there must be.
ONE_GPU = Request(gpu_milli=MILLI, cpu_milli=1, memory_mib=1)


def pool_facts(
    pool: str,
    index: PoolIndex,
    work: Arrivals[Request],
    away: Collection[str] = (),
    *,
    policy: Packing = DEFAULT,
    sequence: int = 0,
) -> PoolPacking:
    """Return the facts of a pool whose nodes are all where they belong. Nodes `away` take no work, whatever the state says.

    The usual request is weighted by how often each has arrived. As for packing, labels other than the model are ignored.
    """
    gpus, domains = _free_gpus(index, away), index.domains
    names, last = domains.names, len(domains.names)
    best = min(np.flatnonzero(gpus == gpus.max(initial=1)).tolist(), key=names.__getitem__, default=None)
    gangs = {
        level: _largest(gpus, *_standing(domains, level)) for level in LEVELS if (domains.of[level][:last] >= 0).any()
    }
    shut = _shut(index, away)
    left_out = Counter(node.row for node in shut)
    found = fragmentation(
        index.rows,
        typical(work, index.wanted),
        np.array([left_out[row] for row in index.rows.filled.tolist()], np.int64),
        sum(index.rows.free_of(node.row) for node in shut),
    )
    return PoolPacking(
        pool=pool,
        policy=policy,
        nodes=len(index.members),
        gpus=sum(_gpus_of(node.left) for node in index.members.values()),
        gpu_milli_free=found.free_milli,
        gpu_milli_aside=sum(node.left.free_milli for node in (*index.aside.values(), *shut)),
        gpu_milli_unusable=found.unusable_milli,
        requests_seen=work.arrived,
        largest_on_one_node=None if best is None else OneNode(node=names[best], gpus=int(gpus[best])),
        largest_gangs={**gangs, POOL_LEVEL: _largest(gpus, np.zeros(last, np.int64), [pool])},
        sequence=sequence,
    )


def _shut(index: PoolIndex, away: Collection[str]) -> list[ClusterNode]:
    """Return the nodes in rows that do not take anybody's work: their taints keep out what does not tolerate them."""
    tainted = {number for number in index.rows.builds if not tolerates(index.builds[number].taints, ())}
    return [
        node
        for node in index.members.values()
        if node.row >= 0 and (node.left.build.number in tainted or node.name in away)
    ]


def _gpus_of(left: FreeResources) -> int:
    """Return the number of GPUs as jobs request them: where all instances are alike, each of them is one."""
    if left.cuts is None or not left.build.single:
        return len(left.uuids)
    return len(left.cuts.cells) + (left.build.all_gpus & ~left.build.cut).bit_count()


def _free_gpus(index: PoolIndex, away: Collection[str]) -> Ints:
    """[node's number]: whole GPUs that a job may have there now."""
    wanted, rows, domains = index.wanted(unit_requests(ONE_GPU)[0]), index.rows, index.domains
    able = {
        build for build in rows.builds if build in index.builds and not wanted.ask.verdict(index.builds[build]).cause
    }
    whole = np.array([key.whole if key.build in able else 0 for key in rows.keys] + [0], np.int64)
    last = len(domains.names)
    room = (domains.cpu[:last] >= ONE_GPU.cpu_milli) & (domains.memory[:last] >= ONE_GPU.memory_mib)
    room[[index.members[name].slot for name in away if name in index.members]] = False
    return np.where(room, whole[domains.rows[:last]], 0)


def _standing(domains: Domains, level: str) -> tuple[Ints, list[str]]:
    """[node's number]: its domain; and their names. A node that names none is in one of its own, of its own name."""
    at, named = domains.of[level][: len(domains.names)], domains.domains[level]
    return np.where(at >= 0, at, len(named) + np.arange(len(at))), [*named, *domains.names]


def _largest(gpus: Ints, at: Ints, names: Sequence[str]) -> tuple[DomainCapacity, ...]:
    found: list[DomainCapacity] = []
    for each in sorted({*gpus[gpus > 0].tolist()}, reverse=True):
        counts = np.bincount(at[gpus >= each])
        most = int(counts.max())
        if not found or most > found[-1].nodes:
            domain = min(names[number] for number in np.flatnonzero(counts == most).tolist())
            found.append(DomainCapacity(domain=domain, nodes=most, gpus_per_node=each))
    return tuple(found)
