"""Effects of telemetry's events about idle runs: reclaim requested, used again, extended.

A request is withdrawn only before it has been acted upon. A program that was asked to end is busy ending, and that is
no sign of life. The order of the log therefore decides between a returning user and the stop. Before the stop, the run
is spared. If the stop was decided without having seen the return, the job waits again instead of ending.
"""

from collections.abc import Callable
from typing import Any

from fairlead_queue.state import State
from fairlead_queue.waiting.idle import TELLS_ONLY, Idle
from fairlead_queue.waiting.jobs import Job
from fairlead_schemas.wire import events as ev


def _spoken_of(state: State, event: Any) -> Job | None:
    """Return the run that is meant, if it is still alive; an event for an attempt that is over, or on its way out, is too
    late.
    """
    job = state.jobs.get(event.job)
    if job is None or job.attempt != event.attempt or job.state not in ("placed", "running"):
        return None
    return None if job.end is not None or job.yields_to else job


def _reclaim_requested(state: State, event: ev.ReclaimRequested, id_: str, at_ns: int) -> None:
    job = _spoken_of(state, event)
    if job is None or event.action in TELLS_ONLY:
        return
    wish = Idle(id_, event.scope, event.rule, event.action, event.on_demand, state.at_ns)
    state.lies_idle(job, (*_without(job, event.rule), wish))


def _active(state: State, event: ev.JobActive, id_: str, at_ns: int) -> None:
    job = _spoken_of(state, event)
    if job is not None:
        state.lies_idle(job, _without(job, event.rule))


def _extended(state: State, event: ev.JobExtended, id_: str, at_ns: int) -> None:
    job = _spoken_of(state, event)
    if job is not None:
        state.lies_idle(job, ())


def _without(job: Job, rule: str) -> tuple[Idle, ...]:
    return tuple(wish for wish in job.idle if wish.rule != rule)


HANDLERS: dict[type[ev.EventBase], Callable[[State, Any, str, int], None]] = {
    ev.ReclaimRequested: _reclaim_requested,
    ev.JobActive: _active,
    ev.JobExtended: _extended,
}
