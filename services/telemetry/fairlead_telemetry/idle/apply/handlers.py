"""Handlers that apply each event to the idle core's state. State changes in no other way; there are no rules and no
refusals here.

An own event may come when its run has just ended: the placer's commit was not folded yet when it was decided. It then
has no effect.
"""

from collections.abc import Callable
from typing import Any

from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_telemetry.idle.state import IdlePeriod, IdleState, JobOwner, RunDevices, TrackedRun

WRITER = "telemetry"


def evolve(state: IdleState, commit: Commit) -> list[str]:
    """Fold one commit of any writer. The jobs whose runs it was about; "" for all runs."""
    touched: list[str] = []
    for event in commit.events:
        handler = HANDLERS.get(type(event))
        if handler is not None:
            job = handler(state, event, commit.at_ns)
            if job is not None:
                touched.append(job)
    return touched


def _submitted(state: IdleState, event: ev.JobSubmitted, at_ns: int) -> None:
    state.births[event.job] = JobOwner(event.user, event.project, event.kind)


def _ended(state: IdleState, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at_ns: int) -> None:
    state.births.pop(event.job, None)


def _placed(state: IdleState, event: ev.JobPlaced, at_ns: int) -> None:
    birth = state.births.get(array_of(event.job) or event.job, JobOwner("", "", "batch"))
    parts = tuple(RunDevices(part.node, part.instances or part.gpus) for part in event.parts)
    state.runs[event.job] = TrackedRun(job=event.job, attempt=event.attempt, birth=birth, parts=parts)


def _started(state: IdleState, event: ev.RunStarted, at_ns: int) -> str | None:
    run = _run(state, event)
    if run is None:
        return None
    run.started_ns = at_ns
    return run.job


def _run_ended(state: IdleState, event: ev.RunEnded, at_ns: int) -> str | None:
    run = _run(state, event)
    if run is None:
        return None
    del state.runs[event.job]
    return run.job


def _stopping(state: IdleState, event: ev.JobStopRequested | ev.PreemptionStarted, at_ns: int) -> str | None:
    run = _run(state, event)
    if run is None:
        return None
    run.stopping = True
    return run.job


def _set(state: IdleState, event: ev.IdlePoliciesSet, at_ns: int) -> str:
    if event.policies:
        state.policies[event.scope] = event.policies
    else:
        state.policies.pop(event.scope, None)
    return ""


def _idle(state: IdleState, event: ev.JobIdle, at_ns: int) -> str | None:
    run = _run(state, event)
    policy = next((each for each in state.policies.get(event.scope, ()) if each.rule == event.rule), None)
    if run is None or policy is None:
        return None
    run.idle[event.rule] = IdlePeriod(
        scope=event.scope,
        policy=policy,
        since_ns=event.since_ns,
        said_ns=at_ns,
        reclaim_at_ns=event.reclaim_at_ns,
        evidence=event.evidence,
    )
    return run.job


def _active(state: IdleState, event: ev.JobActive, at_ns: int) -> str | None:
    run = _run(state, event)
    if run is None:
        return None
    run.idle.pop(event.rule, None)
    return run.job


def _extended(state: IdleState, event: ev.JobExtended, at_ns: int) -> str | None:
    run = _run(state, event)
    if run is None:
        return None
    run.extended_ns, run.extensions = event.until_ns, event.count
    return run.job


def _stepped(
    state: IdleState, event: ev.ReclaimSimulated | ev.LeaseShrunk | ev.ReclaimRequested, at_ns: int
) -> str | None:
    run = _run(state, event)
    idle = run.idle.get(event.rule) if run is not None else None
    if run is None or idle is None:
        return None
    match event:
        case ev.ReclaimSimulated():
            idle.step = "foreseen"
        case ev.LeaseShrunk():
            idle.step, idle.until_ns = "shrunk", event.until_ns
        case ev.ReclaimRequested():
            idle.step = "asked"
    return run.job


def _run(state: IdleState, event: Any) -> TrackedRun | None:
    """The run that an event is about, if it is still there."""
    run = state.runs.get(event.job)
    return run if run is not None and run.attempt == event.attempt else None


#: What is not listed changes nothing here.
HANDLERS: dict[type[ev.EventBase], Callable[[IdleState, Any, int], str | None]] = {
    ev.JobSubmitted: _submitted,
    ev.JobSucceeded: _ended,
    ev.JobFailed: _ended,
    ev.JobCancelled: _ended,
    ev.JobPlaced: _placed,
    ev.RunStarted: _started,
    ev.RunEnded: _run_ended,
    ev.JobStopRequested: _stopping,
    ev.PreemptionStarted: _stopping,
    ev.IdlePoliciesSet: _set,
    ev.JobIdle: _idle,
    ev.JobActive: _active,
    ev.JobExtended: _extended,
    ev.ReclaimSimulated: _stepped,
    ev.LeaseShrunk: _stepped,
    ev.ReclaimRequested: _stepped,
}
