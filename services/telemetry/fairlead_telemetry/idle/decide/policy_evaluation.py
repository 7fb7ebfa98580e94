"""Events for one run now: at most one for each rule. The module reads the state, never changes it. Start at `judge`.

no event ── idle for `after` ──> JobIdle ── notice over ──> ReclaimSimulated (dry run)
   ^                              │                   └──> LeaseShrunk ── its time over ──> ReclaimRequested
   │                              │                   └──> ReclaimRequested
   └── active, unseen, extended, another policy: JobActive ┘ (not once it was reclaimed for good; a cut lease is not
                                                              withdrawn by the run's later use)
"""

from collections.abc import Iterator, Mapping
from typing import get_args

from fairlead_schemas.policies.idle import ActiveReason, IdleEvidence, IdleRule, IdleSignal
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.idle.questions import ActivityAnswer, is_quiet
from fairlead_telemetry.idle.scopes import RULES, PolicyInForce
from fairlead_telemetry.idle.state import IdlePeriod, TrackedRun

_SIGNALS: tuple[IdleSignal, ...] = get_args(IdleSignal)
#: After which nothing follows.
NOTIFY_ONLY = frozenset(("note", "warn"))
CAUSE = "clock"


def evaluate(
    run: TrackedRun, policies: Mapping[IdleRule, PolicyInForce], answers: Mapping[IdleRule, ActivityAnswer], now_ns: int
) -> Iterator[ev.TelemetryEvent]:
    """Yield the events for the run. `policies` holds the policies in force for it; `answers` the latest readings, if any."""
    if not run.started_ns or run.stopping or any(idle.is_final for idle in run.idle.values()):
        return
    for rule in RULES:
        idle, found = run.idle.get(rule), policies.get(rule)
        if idle is not None and found != (idle.scope, idle.policy):
            yield _active(run, rule, "policy")
        elif found is None:
            continue
        elif now_ns < run.extended_ns:
            if idle is not None:
                yield _active(run, rule, "extended")
        elif idle is None:
            yield from _becomes_idle(run, found, answers.get(rule), now_ns)
        else:
            yield from _goes_on(run, idle, answers.get(rule), now_ns)


def _becomes_idle(
    run: TrackedRun, found: PolicyInForce, answer: ActivityAnswer | None, now_ns: int
) -> Iterator[ev.TelemetryEvent]:
    policy = found.policy
    evidence: tuple[IdleEvidence, ...] = ()
    if policy.rule == "lifetime":
        since_ns = run.started_ns
        if now_ns - since_ns < policy.after_ns:
            return
    else:
        if answer is None or not _is_idle(found, answer, now_ns):
            return
        since_ns = max(answer.readings[signal].since_ns for signal in asked_signals(found))
        evidence = _evidence(found, answer)
    acts = policy.mode != "dry_run" and policy.action not in NOTIFY_ONLY
    yield ev.JobIdle(
        cause=CAUSE,
        job=run.job,
        attempt=run.attempt,
        scope=found.scope,
        rule=policy.rule,
        action=policy.action,
        mode=policy.mode,
        since_ns=since_ns,
        reclaim_at_ns=now_ns + policy.notice_ns if acts else 0,
        evidence=evidence,
    )


def _goes_on(
    run: TrackedRun, idle: IdlePeriod, answer: ActivityAnswer | None, now_ns: int
) -> Iterator[ev.TelemetryEvent]:
    """A run that counts as idle: it is active again, or its time is over, or there is nothing to say."""
    found = PolicyInForce(idle.scope, idle.policy)
    if idle.step == "shrunk":
        if now_ns >= idle.until_ns:
            yield _reclaim(run, idle, idle.evidence)
        return
    by_time = idle.policy.rule == "lifetime"
    if answer is None and not by_time:
        return
    if answer is not None and not by_time and not _is_idle(found, answer, now_ns):
        risen = _risen(found, answer, idle.since_ns)
        yield _active(run, idle.policy.rule, "active" if risen else "unseen", risen)
        return
    if idle.step == "told" and idle.policy.action not in NOTIFY_ONLY and now_ns >= due_ns(idle):
        yield _act(run, idle, _evidence(found, answer) if answer is not None else (), now_ns)


def due_ns(idle: IdlePeriod) -> int:
    """Return when the notice is over, or would be."""
    return idle.reclaim_at_ns or idle.notified_ns + idle.policy.notice_ns


def _act(run: TrackedRun, idle: IdlePeriod, evidence: tuple[IdleEvidence, ...], now_ns: int) -> ev.TelemetryEvent:
    policy = idle.policy
    if policy.mode == "dry_run":
        return ev.ReclaimSimulated(
            cause=CAUSE,
            job=run.job,
            attempt=run.attempt,
            scope=idle.scope,
            rule=policy.rule,
            action=policy.action,
            since_ns=idle.since_ns,
            evidence=evidence,
        )
    if policy.action == "shrink":
        return ev.LeaseShrunk(
            cause=CAUSE,
            job=run.job,
            attempt=run.attempt,
            until_ns=now_ns + policy.shrink_ns,
            scope=idle.scope,
            rule=policy.rule,
        )
    return _reclaim(run, idle, evidence)


def _reclaim(run: TrackedRun, idle: IdlePeriod, evidence: tuple[IdleEvidence, ...]) -> ev.ReclaimRequested:
    policy = idle.policy
    return ev.ReclaimRequested(
        cause=CAUSE,
        job=run.job,
        attempt=run.attempt,
        scope=idle.scope,
        rule=policy.rule,
        action=policy.action,
        on_demand=policy.mode == "on_demand",
        since_ns=idle.since_ns,
        evidence=evidence,
    )


def _active(
    run: TrackedRun, rule: IdleRule, reason: ActiveReason, evidence: tuple[IdleEvidence, ...] = ()
) -> ev.JobActive:
    return ev.JobActive(cause=CAUSE, job=run.job, attempt=run.attempt, rule=rule, reason=reason, evidence=evidence)


def _is_idle(found: PolicyInForce, answer: ActivityAnswer, now_ns: int) -> bool:
    """Every signal that is asked about is there and says so."""
    return all(
        (reading := answer.readings.get(signal)) is not None
        and is_quiet(signal, reading, threshold, found.policy.after_ns, now_ns)
        for signal, threshold in asked_signals(found).items()
    )


def asked_signals(found: PolicyInForce) -> Mapping[IdleSignal, int]:
    """{signal: threshold} of a policy that samples decide. A person's absence is that at the terminal."""
    return found.policy.below if found.policy.rule == "utilization" else {"terminal": found.policy.after_ns}


def _evidence(found: PolicyInForce, answer: ActivityAnswer) -> tuple[IdleEvidence, ...]:
    asked = asked_signals(found)
    return tuple(
        IdleEvidence(signal=signal, highest=one.highest, mean=one.mean, threshold=asked[signal], samples=one.samples)
        for signal in _SIGNALS
        if signal in asked and (one := answer.readings.get(signal)) is not None
    )


def _risen(found: PolicyInForce, answer: ActivityAnswer, since_ns: int) -> tuple[IdleEvidence, ...]:
    """The signals that were not below their thresholds since the run lay idle, and what they rose to."""
    asked = asked_signals(found)
    return tuple(
        IdleEvidence(signal=signal, highest=one.rose, mean=one.rose, threshold=asked[signal], samples=1)
        for signal in _SIGNALS
        if signal in asked and (one := answer.readings.get(signal)) is not None and one.rose_ns > since_ns
    )
