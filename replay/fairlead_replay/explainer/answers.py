"""Answers from the folded states of the queue and the placer, by their own functions. Pure."""

from collections.abc import Collection

from fairlead_placer.cluster.pool_facts import pool_facts
from fairlead_placer.cluster.state import NOTHING_YET
from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.scheduling.defragment import plans
from fairlead_queue.explain.explain import explain
from fairlead_queue.state import QueueState
from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.queries.explainer import Defrag, ExplainerAnswer


def why(state: QueueState, sequence: int, id_: str) -> ExplainerAnswer:
    """Return the explanation of a job or array that has not ended by a sequence. `not_found` for other ids, which the queue does
    not keep: the gateway's views and the log's events show how they ended.
    """
    job = state.jobs.get(id_)
    if job is None:
        found = f'expected a job or array that has not ended at sequence {sequence}, found "{id_[:40]}"'
        return ExplainerAnswer(sequence=sequence, error="not_found", message=found)
    return ExplainerAnswer(sequence=sequence, why=explain(state, job))


def defrag(state: PlacerState, sequence: int, pool: str, now_ns: int) -> ExplainerAnswer:
    """Return the runs that would be moved in a pool for its first big jobs; no plans if no job waits or the pool has no nodes."""
    found = tuple(plans(state, pool, now_ns))
    answer = Defrag(pool=pool, on=pool in state.defragmented, plans=found, sequence=sequence)
    return ExplainerAnswer(sequence=sequence, defrag=answer)


def packing(state: PlacerState, sequence: int, pool: str, away: Collection[str] = ()) -> ExplainerAnswer:
    """The facts; of a pool without nodes, its policy alone. Nodes `away` take no work, whatever the log says."""
    policy, index = state.packings.get(pool, DEFAULT), state.pools.each().get(pool)
    facts = PoolPacking(pool=pool, policy=policy, sequence=sequence)
    if index is not None:
        work = state.arrivals.get(pool, NOTHING_YET)
        facts = pool_facts(pool, index, work, away, policy=policy, sequence=sequence)
    return ExplainerAnswer(sequence=sequence, packing=facts)
