"""Packing of a pool and its free resources, from the placer's folded state: its own facts. Pure."""

from collections.abc import Collection

from fairlead_placer.capacity.facts import facts
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.state import NOTHING_YET, State
from fairlead_schemas.queries.cluster_map import DomainCapacity, OneNode, PoolPacking
from fairlead_schemas.queries.explainer import ExplainerAnswer


def packing(state: State, sequence: int, pool: str, away: Collection[str] = ()) -> ExplainerAnswer:
    """The facts; of a pool without nodes, its policy alone. Nodes `away` take no work, whatever the log says."""
    policy = state.packings.get(pool, DEFAULT)
    index = state.pools.each().get(pool)
    if index is None:
        return ExplainerAnswer(sequence=sequence, packing=PoolPacking(pool=pool, policy=policy, sequence=sequence))
    found = facts(pool, index, state.arrivals.get(pool, NOTHING_YET), away)
    one = found.on_one_node
    gangs = {
        level: tuple(DomainCapacity(domain=gang.domain, nodes=gang.nodes, gpus_per_node=gang.gpus) for gang in each)
        for level, each in found.gangs.items()
    }
    return ExplainerAnswer(
        sequence=sequence,
        packing=PoolPacking(
            pool=pool, policy=policy, nodes=found.nodes, gpus=found.gpus, gpu_milli_free=found.free_milli,
            gpu_milli_aside=found.aside_milli, gpu_milli_unusable=found.unusable_milli, requests_seen=found.arrived,
            largest_on_one_node=OneNode(node=one[0], gpus=one[1]) if one else None, largest_gangs=gangs,
            sequence=sequence,
        ),
    )  # fmt: skip
