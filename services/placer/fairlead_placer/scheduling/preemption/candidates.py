"""Runs that may yield, and what it costs to ask each.

Price of a run's part of one node.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.cluster.entities import PlacedRun, run_key
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire.events import Part, Victim

#: More than there are candidates: GPU-seconds count before the number of runs.
RUNS = 1 << 12


class VictimCandidate(NamedTuple):
    """A run that may yield, what would come free, and its cost: GPU-seconds before the run itself."""

    victim: Victim
    parts: tuple[Part, ...]
    cost: int


def is_stopping(run: PlacedRun) -> bool:
    """Return True if every living rank has been, or is being, ordered to stop."""
    return run.is_stopping


def living_parts(run: PlacedRun) -> tuple[Part, ...]:
    """Return the parts whose rank has not ended. Parts that ended and are not clean come free at an unknown time."""
    return tuple(part for rank, part in enumerate(run.parts) if not run.ended >> rank & 1)


def _cost(victim: Victim) -> int:
    return (0 if victim.rule == "idle" else max(0, victim.gpu_s)) * RUNS + 1


def may_yield(state: ClusterState, victims: Sequence[Victim]) -> list[VictimCandidate]:
    """Return the victims that run under the named attempt and are not stopping, each once, in order. An idle run costs next to
    nothing, and is left out once it is no longer idle.
    """
    found: dict[str, VictimCandidate] = {}
    for victim in victims:
        key = run_key(victim.job, victim.attempt)
        run = state.runs.get(key)
        if run is None or key in found or is_stopping(run) or (victim.rule == "idle" and not run.idle):
            continue
        if parts := living_parts(run):
            found[key] = VictimCandidate(victim, parts, _cost(victim))
    return list(found.values())


class VictimPrice(NamedTuple):
    """A run (its place among the candidates), its part of the node, and what it counts for there."""

    at: int
    part: Part
    price: int
