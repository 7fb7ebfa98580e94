"""A plan to move runs, in words. Pure."""

from collections.abc import Iterator

from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan
from fairlead_schemas.units.quantities import format_milli

NODES_SHOWN = 4


def lines(found: Defrag) -> Iterator[str]:
    """The pool, and for each job what would be moved and what would start, or why nothing is moved."""
    state = "on: plans that gain are carried out, one at a time" if found.on else "off: nothing is ever moved"
    yield f"pool {found.pool}: defragmentation is {state}"
    if not found.plans:
        yield "no job waits for a place"
    for plan in found.plans:
        yield from _plan(plan)


def _plan(plan: DefragPlan) -> Iterator[str]:
    yield f"job {plan.job} ({format_milli(plan.gpu_milli)} GPUs): {_verdict(plan)}"
    for move in plan.moves:
        yield f"  move {_move(move)}"


def _verdict(plan: DefragPlan) -> str:
    if not plan.moves:
        return plan.message
    sums = f"gains {plan.gain_gpu_s} GPU-seconds, costs {plan.cost_gpu_s}"
    start = f"would start on {_names(plan.nodes)}"
    return f"{start}, but {plan.message}: {sums}" if plan.why_not else f"{start}: {sums}"


def _move(move: DefragMove) -> str:
    where = f"from {_names(move.sources)} to {_names(move.targets)}"
    return f"job {move.job} ({format_milli(move.gpu_milli)} GPUs) {where}, costs {move.cost_gpu_s} GPU-seconds"


def _names(nodes: tuple[str, ...]) -> str:
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    return ", ".join(nodes[:NODES_SHOWN]) + more
