"""Runs that are idle under policies that give them to waiting jobs. Only these are asked to yield by the rule "idle": a
user who returns after the queue named the run keeps it.
"""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import run_key
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev


def _reclaim_requested(state: State, seq: int, index: int, at_ns: int, event: ev.ReclaimRequested) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and event.rule not in run.idle:
        state.set(run, "idle", (*run.idle, event.rule))


def _active(state: State, seq: int, index: int, at_ns: int, event: ev.JobActive) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and event.rule in run.idle:
        state.set(run, "idle", tuple(rule for rule in run.idle if rule != event.rule))


def _extended(state: State, seq: int, index: int, at_ns: int, event: ev.JobExtended) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and run.idle:
        state.set(run, "idle", ())


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.ReclaimRequested: _reclaim_requested,
    ev.JobActive: _active,
    ev.JobExtended: _extended,
}
