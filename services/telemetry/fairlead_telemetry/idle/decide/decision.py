"""Decisions of the idle core: answers to commands first, in a commit of their own; else the events due for runs."""

from collections.abc import Callable, Iterable, Mapping

from fairlead_schemas.policies.idle import IdleRule
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.idle.decide.commands import Plan, carry_out
from fairlead_telemetry.idle.decide.policy_evaluation import judge
from fairlead_telemetry.idle.decide.schedule import Agenda, next_moment
from fairlead_telemetry.idle.limits import JUDGED_EVENTS_MAX
from fairlead_telemetry.idle.questions import Answer
from fairlead_telemetry.idle.scopes import InForce
from fairlead_telemetry.idle.state import Run, State

type Resolve = Callable[[Run], Mapping[IdleRule, InForce]]


def answer(state: State, commands: Iterable[object], now_ns: int) -> list[ev.TelemetryEvent]:
    """Return the events of the commands, in their order. The effect on runs is emitted in the next decision, on the state of
    that time.
    """
    plan = Plan(state, now_ns)
    return [event for command in commands for event in carry_out(plan, command)]


def review(
    state: State, agenda: Agenda, resolve: Resolve, answers: Iterable[Answer], now_ns: int
) -> list[ev.TelemetryEvent]:
    """Return the events due for runs that were touched, are due or were answered for. Events that do not fit wait: folded
    changes and moments stay on the agenda, answers stay with the watch, which repeats them.
    """
    agenda.wake(now_ns)
    seen: dict[str, dict[IdleRule, Answer]] = {}
    for each in answers:
        run = state.runs.get(each.job)
        if run is not None and run.attempt == each.attempt:
            seen.setdefault(each.job, {})[each.rule] = each
    events: list[ev.TelemetryEvent] = []
    for job in [*agenda.looks, *(job for job in seen if job not in agenda.looks)]:
        if len(events) >= JUDGED_EVENTS_MAX:
            break
        run = state.runs.get(job)
        if run is None:
            agenda.settled(job, None)
            continue
        policies = resolve(run)
        said = list(judge(run, policies, seen.get(job, {}), now_ns))
        events += said
        if not said:
            agenda.settled(job, next_moment(run, policies))
    return events
