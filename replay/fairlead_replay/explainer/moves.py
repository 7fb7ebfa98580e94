"""Runs that would be moved, from the placer's folded state: its own plan, in words. Pure."""

from fairlead_placer.defragmenting.planning import WHY_NOT, Plan, plans
from fairlead_placer.state import State
from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan, ExplainerAnswer


def defrag(state: State, sequence: int, pool: str, now_ns: int) -> ExplainerAnswer:
    """Return the runs that would be moved in a pool for its first big jobs; no plans if no job waits or the pool has no nodes."""
    found = tuple(_plan(plan) for plan in plans(state, pool, now_ns))
    on = pool in state.defragmented
    return ExplainerAnswer(sequence=sequence, defrag=Defrag(pool=pool, on=on, plans=found, sequence=sequence))


def _plan(plan: Plan) -> DefragPlan:
    moves = tuple(
        DefragMove(
            job=move.victim.job, attempt=move.victim.attempt, gpu_milli=move.gpu_milli, sources=move.sources,
            targets=move.targets, cost_gpu_s=move.victim.gpu_s,
        )
        for move in plan.moves
    )  # fmt: skip
    return DefragPlan(
        job=plan.offer.job, attempt=plan.offer.attempt, gpu_milli=plan.offer.request.gpu_milli_total, moves=moves,
        nodes=plan.nodes, gain_gpu_s=plan.gain_gpu_s, cost_gpu_s=plan.cost_gpu_s, why_not=plan.why_not,
        message=WHY_NOT.get(plan.why_not, ""),
    )  # fmt: skip
