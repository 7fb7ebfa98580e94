"""Table of event handlers for the idle core's state. The only way in which the state changes.

No rules, no refusals. An own event may come when its run has just ended: the placer's commit was not folded yet when it
was decided. It then has no effect.
"""

from typing import Any

from fairlead_bus.core import EventHandlers, EventPosition, apply_events
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_telemetry.idle.state import IdlePeriod, IdleState, JobOwner, RunDevices, TrackedRun

WRITER = "telemetry"


def fold(state: IdleState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    apply_events(HANDLERS, state, seq, commit)


def _submitted(state: IdleState, event: ev.JobSubmitted, at: EventPosition) -> None:
    state.owners[event.job] = JobOwner(event.user, event.project, event.kind)


def _ended(state: IdleState, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at: EventPosition) -> None:
    state.owners.pop(event.job, None)


def _placed(state: IdleState, event: ev.JobPlaced, at: EventPosition) -> None:
    owner = state.owners.get(array_of(event.job) or event.job, JobOwner("", "", "batch"))
    parts = tuple(RunDevices(part.node, part.instances or part.gpus) for part in event.parts)
    state.runs[event.job] = TrackedRun(job=event.job, attempt=event.attempt, owner=owner, parts=parts)


def _started(state: IdleState, event: ev.RunStarted, at: EventPosition) -> None:
    run = _run(state, event)
    if run is not None:
        run.started_ns = at.time_ns
        state.changed[run.job] = None


def _run_ended(state: IdleState, event: ev.RunEnded, at: EventPosition) -> None:
    run = _run(state, event)
    if run is not None:
        del state.runs[event.job]
        state.changed[run.job] = None


def _stopping(state: IdleState, event: ev.JobStopRequested | ev.PreemptionStarted, at: EventPosition) -> None:
    run = _run(state, event)
    if run is not None:
        run.stopping = True
        state.changed[run.job] = None


def _set(state: IdleState, event: ev.IdlePoliciesSet, at: EventPosition) -> None:
    if event.policies:
        state.policies[event.scope] = event.policies
    else:
        state.policies.pop(event.scope, None)
    state.changed.update(dict.fromkeys(state.runs))


def _idle(state: IdleState, event: ev.JobIdle, at: EventPosition) -> None:
    run = _run(state, event)
    policy = next((each for each in state.policies.get(event.scope, ()) if each.rule == event.rule), None)
    if run is None or policy is None:
        return
    run.idle[event.rule] = IdlePeriod(
        scope=event.scope,
        policy=policy,
        since_ns=event.since_ns,
        notified_ns=at.time_ns,
        reclaim_at_ns=event.reclaim_at_ns,
        evidence=event.evidence,
    )
    state.changed[run.job] = None


def _active(state: IdleState, event: ev.JobActive, at: EventPosition) -> None:
    run = _run(state, event)
    if run is not None:
        run.idle.pop(event.rule, None)
        state.changed[run.job] = None


def _extended(state: IdleState, event: ev.JobExtended, at: EventPosition) -> None:
    run = _run(state, event)
    if run is not None:
        run.extended_ns, run.extensions = event.until_ns, event.count
        state.changed[run.job] = None


def _stepped(
    state: IdleState, event: ev.ReclaimSimulated | ev.LeaseShrunk | ev.ReclaimRequested, at: EventPosition
) -> None:
    run = _run(state, event)
    idle = run.idle.get(event.rule) if run is not None else None
    if run is None or idle is None:
        return
    match event:
        case ev.ReclaimSimulated():
            idle.step = "foreseen"
        case ev.LeaseShrunk():
            idle.step, idle.until_ns = "shrunk", event.until_ns
        case ev.ReclaimRequested():
            idle.step = "asked"
    state.changed[run.job] = None


def _run(state: IdleState, event: Any) -> TrackedRun | None:
    """The run that an event is about, if it is still there."""
    run = state.runs.get(event.job)
    return run if run is not None and run.attempt == event.attempt else None


HANDLERS: EventHandlers[IdleState] = {
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
