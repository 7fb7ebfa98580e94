"""Runs that may yield, and what it costs to ask each."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.entities import Run, run_key
from fairlead_placer.state import State
from fairlead_schemas.wire.events import Part, Victim

#: More than there are candidates: GPU-seconds count before the number of runs.
RUNS = 1 << 12


class Candidate(NamedTuple):
    """A run that may yield, what would come free, and its cost: GPU-seconds before the run itself."""

    victim: Victim
    parts: tuple[Part, ...]
    cost: int


def is_stopping(run: Run) -> bool:
    """Return True if every living rank has been, or is being, ordered to stop."""
    return run.is_stopping


def living_parts(run: Run) -> tuple[Part, ...]:
    """Return the parts whose rank has not ended. Parts that ended and are not clean come free at an unknown time."""
    return tuple(part for rank, part in enumerate(run.parts) if not run.ended >> rank & 1)


def _cost(victim: Victim) -> int:
    return (0 if victim.rule == "idle" else max(0, victim.gpu_s)) * RUNS + 1


def may_yield(state: State, victims: Sequence[Victim]) -> list[Candidate]:
    """Return the victims that run under the named attempt and are not stopping, each once, in order. An idle run costs next to
    nothing, and is left out once it is no longer idle.
    """
    found: dict[str, Candidate] = {}
    for victim in victims:
        key = run_key(victim.job, victim.attempt)
        run = state.runs.get(key)
        if run is None or key in found or is_stopping(run) or (victim.rule == "idle" and not run.idle):
            continue
        if parts := living_parts(run):
            found[key] = Candidate(victim, parts, _cost(victim))
    return list(found.values())
