"""Questions answered from the queue's folded state: its own functions, and words for jobs that do not wait. Pure.

Runs that would be moved, from the placer's folded state: its own plan, in words. Pure.

Packing of a pool and its free resources, from the placer's folded state: its own facts. Pure.
"""

from collections.abc import Collection

import msgspec

from fairlead_placer.cluster.state import NOTHING_YET
from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_placer.explain.pool_facts import pool_facts
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.scheduling.defragment import WHY_NOT, DefragmentationPlan, plans
from fairlead_queue.explain.explain import explain
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.jobs import Array
from fairlead_schemas.queries.cluster_map import DomainCapacity, OneNode, PoolPacking
from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan, ExplainerAnswer, Explanation
from fairlead_schemas.units.ids import array_of, is_job_id

#: Characters of a job's id that are repeated to the sender.
SHOWN_CHARS_MAX = 40


def why(state: QueueState, sequence: int, id_: str) -> ExplainerAnswer:
    """Return the reason for a job's state as of a sequence; `not_found` where the state does not know the job."""
    job = state.jobs.get(id_)
    if job is not None:
        return ExplainerAnswer(sequence=sequence, why=explain(state, job))
    ended = state.finished.get(id_)
    if ended is not None:
        return ExplainerAnswer(sequence=sequence, why=Explanation(reason="", message=f"job {id_} has ended: {ended}"))
    array = state.jobs.get(array_of(id_) or "")
    if isinstance(array, Array) and array.is_unborn(id_):
        explained = explain(state, array)
        message = f"it comes into being when it is offered, by its array {array.id}"
        if explained.message:
            message += f"; of that: {explained.message}"
        return ExplainerAnswer(sequence=sequence, why=msgspec.structs.replace(explained, message=message))
    return ExplainerAnswer(sequence=sequence, error="not_found", message=_missing(state, sequence, id_))


def _missing(state: QueueState, sequence: int, id_: str) -> str:
    shown = id_[:SHOWN_CHARS_MAX]
    if not is_job_id(id_):
        return f'"{shown}" is no id of a job: expected a number such as 812, or 812_3 for an array\'s element'
    number = int(array_of(id_) or id_)
    if number >= state.next_number:
        return f"job {shown} was not there at sequence {sequence}: the newest was {state.next_number - 1}"
    if array_of(id_) is not None:
        return f"element {shown} ended long ago, or its array does not have it"
    return f"job {shown} ended long ago; its events show how"


def defrag(state: PlacerState, sequence: int, pool: str, now_ns: int) -> ExplainerAnswer:
    """Return the runs that would be moved in a pool for its first big jobs; no plans if no job waits or the pool has no nodes."""
    found = tuple(_plan(plan) for plan in plans(state, pool, now_ns))
    on = pool in state.defragmented
    return ExplainerAnswer(sequence=sequence, defrag=Defrag(pool=pool, on=on, plans=found, sequence=sequence))


def _plan(plan: DefragmentationPlan) -> DefragPlan:
    moves = tuple(
        DefragMove(
            job=move.victim.job,
            attempt=move.victim.attempt,
            gpu_milli=move.gpu_milli,
            sources=move.sources,
            targets=move.targets,
            cost_gpu_s=move.victim.gpu_s,
        )
        for move in plan.moves
    )
    return DefragPlan(
        job=plan.offer.job,
        attempt=plan.offer.attempt,
        gpu_milli=plan.offer.request.gpu_milli_total,
        moves=moves,
        nodes=plan.nodes,
        gain_gpu_s=plan.gain_gpu_s,
        cost_gpu_s=plan.cost_gpu_s,
        why_not=plan.why_not,
        message=WHY_NOT.get(plan.why_not, ""),
    )


def packing(state: PlacerState, sequence: int, pool: str, away: Collection[str] = ()) -> ExplainerAnswer:
    """The facts; of a pool without nodes, its policy alone. Nodes `away` take no work, whatever the log says."""
    policy = state.packings.get(pool, DEFAULT)
    index = state.pools.each().get(pool)
    if index is None:
        return ExplainerAnswer(sequence=sequence, packing=PoolPacking(pool=pool, policy=policy, sequence=sequence))
    found = pool_facts(pool, index, state.arrivals.get(pool, NOTHING_YET), away)
    one = found.on_one_node
    gangs = {
        level: tuple(DomainCapacity(domain=gang.domain, nodes=gang.nodes, gpus_per_node=gang.gpus) for gang in each)
        for level, each in found.gangs.items()
    }
    return ExplainerAnswer(
        sequence=sequence,
        packing=PoolPacking(
            pool=pool,
            policy=policy,
            nodes=found.nodes,
            gpus=found.gpus,
            gpu_milli_free=found.free_milli,
            gpu_milli_aside=found.aside_milli,
            gpu_milli_unusable=found.unusable_milli,
            requests_seen=found.arrived,
            largest_on_one_node=OneNode(node=one[0], gpus=one[1]) if one else None,
            largest_gangs=gangs,
            sequence=sequence,
        ),
    )
