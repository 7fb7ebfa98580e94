"""Decisions on commands, one by one: every command leads to an event that names it; a command for several scopes leads to
one event for each of them.
"""

from typing import Any

from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.idle.decide.policy_evaluation import SAID_ONLY
from fairlead_telemetry.idle.decide.validation import RequestedPolicies, policy_refusal
from fairlead_telemetry.idle.limits import REFUSAL_CHARS_MAX
from fairlead_telemetry.idle.scopes import USER, PolicyInForce, policies_in_force
from fairlead_telemetry.idle.state import IdleState, TrackedRun

#: Characters of a digest that stand for an id where a command has none.
DIGEST_CHARS = 16


class CommandRefused(Exception):
    """A command that is not carried out, and why; caught where commands are decided."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class IdleDraft:
    """The state as it will be after the commands decided so far: the state itself stays as it is."""

    def __init__(self, state: IdleState, now_ns: int) -> None:
        self.state, self.now_ns = state, now_ns
        self.policies = dict(state.policies)
        #: {job: (extended until, count)}
        self.extended: dict[str, tuple[int, int]] = {}


def decide_command(plan: IdleDraft, command: Any) -> list[ev.TelemetryEvent]:
    """Decide one command (or `Undecodable`)."""
    if isinstance(command, cmd.Undecodable):
        cause = f"cmd:{command.id or command.digest[:DIGEST_CHARS]}"
        return [_rejected(cause, command.id, "undecodable", command.message, command.digest)]
    cause = f"cmd:{command.id}"
    try:
        match command:
            case cmd.SetIdlePolicies():
                return _set(plan, {command.scope: command.policies}, "policies", command.user, cause)
            case cmd.ApplyIdlePolicies():
                return _set(plan, command.scopes, "scopes.{}", command.user, cause)
            case _:
                return [_extend(plan, command, cause)]
    except CommandRefused as refused:
        return [_rejected(cause, command.id, refused.code, str(refused))]


def _rejected(cause: str, command: str, code: str, message: str, digest: str = "") -> ev.TelemetryCommandRejected:
    return ev.TelemetryCommandRejected(
        cause=cause, command=command, code=code, message=message[:REFUSAL_CHARS_MAX], digest=digest
    )


def _set(plan: IdleDraft, wanted: RequestedPolicies, root: str, by: str, cause: str) -> list[ev.TelemetryEvent]:
    """All of these scopes' policies, or none: they are held against each other as they would be."""
    if not wanted:
        raise CommandRefused("invalid", "scopes: expected at least one scope, found none")
    together = {scope: of for scope, of in (plan.policies | dict(wanted)).items() if of}
    code, message = policy_refusal(together, wanted, _projects(plan.state, wanted), root)
    if message:
        raise CommandRefused(code, message)
    plan.policies = together
    return [ev.IdlePoliciesSet(cause=cause, scope=scope, policies=of, by=by) for scope, of in wanted.items()]


def _projects(state: IdleState, wanted: RequestedPolicies) -> dict[str, set[str]]:
    """{user: projects of which the user has jobs now}, of the users whose policies these are."""
    found = {scope.removeprefix(USER): set[str]() for scope, of in wanted.items() if of and scope.startswith(USER)}
    for birth in state.births.values() if found else ():
        if birth.project and birth.user in found:
            found[birth.user].add(birth.project)
    return found


def _extend(plan: IdleDraft, command: cmd.ExtendJob, cause: str) -> ev.JobExtended:
    run = _running(plan.state, command.job)
    # There are no roles yet: who says no name speaks for the service itself.
    if command.user not in ("", run.birth.user):
        raise CommandRefused("denied", f"user: job {run.job} is {run.birth.user}'s, who alone may extend it")
    if any(idle.is_final for idle in run.idle.values()):
        raise CommandRefused("conflict", f"job {run.job} was asked back already; its notice is over")
    strictest = _strictest(plan, run)
    until_ns, count = plan.extended.get(run.job, (run.extended_ns, run.extensions))
    policy = strictest.policy
    if count >= policy.extensions_max:
        message = f"job {run.job} was extended {count} times; its policy {policy.rule} of scope {strictest.scope} allows {policy.extensions_max}"
        raise CommandRefused("beyond_bounds", message)
    if not 0 <= command.for_ns <= policy.extend_ns:
        message = f"for: expected at most {format_duration(policy.extend_ns)}, by policy {policy.rule} of scope {strictest.scope}, found {format_duration(command.for_ns)}"
        raise CommandRefused("beyond_bounds", message)
    until_ns = max(until_ns, plan.now_ns + (command.for_ns or policy.extend_ns))
    plan.extended[run.job] = (until_ns, count + 1)
    return ev.JobExtended(
        cause=cause, job=run.job, attempt=run.attempt, until_ns=until_ns, count=count + 1, by=command.user
    )


def _running(state: IdleState, job: str) -> TrackedRun:
    run = state.runs.get(job)
    if run is not None and run.started_ns and not run.stopping:
        return run
    if run is not None:
        raise CommandRefused(
            "conflict", f"job {job} is {'ending' if run.stopping else 'starting'}; only what runs can be extended"
        )
    if any(other.startswith(f"{job}_") for other in state.runs):
        raise CommandRefused("conflict", f"job {job} is an array; extend its elements, such as {job}_0")
    raise CommandRefused("not_found", f'no job "{job[:40]}" runs now; only what runs can be extended')


def _strictest(plan: IdleDraft, run: TrackedRun) -> PolicyInForce:
    """Return the acting policy of the run that allows the least. Raises Refused where none acts."""
    acting = [each for each in policies_in_force(plan.policies, run.birth).values() if _acts(each.policy)]
    if not acting:
        raise CommandRefused("conflict", f"no policy acts on job {run.job}; there is nothing to extend")
    return min(acting, key=lambda each: (each.policy.extensions_max, each.policy.extend_ns))


def _acts(policy: IdlePolicy) -> bool:
    return policy.mode != "dry_run" and policy.action not in SAID_ONLY
