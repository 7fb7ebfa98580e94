"""Decisions on commands, one by one: every command leads to an event that names it; a command for several scopes leads to
one event for each of them.
"""

from collections.abc import Callable
from typing import Any

from fairlead_bus.core import CommandRefusal, CommitDraft, rejected, undecodable
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.idle.decide.policy_evaluation import NOTIFY_ONLY
from fairlead_telemetry.idle.decide.validation import RequestedPolicies, policy_refusal
from fairlead_telemetry.idle.limits import REFUSAL_CHARS_MAX
from fairlead_telemetry.idle.scopes import USER, PolicyInForce, policies_in_force
from fairlead_telemetry.idle.state import IdleState, TrackedRun


class IdleDraft(CommitDraft[IdleState, ev.TelemetryEvent]):
    """Events decided, and the state as it will be after them: the state itself stays as it is."""

    def __init__(self, state: IdleState, now_ns: int) -> None:
        super().__init__(state, now_ns)
        self.policies = state.policies  # replaced, never changed
        #: {job: (extended until, count)}
        self.extended: dict[str, tuple[int, int]] = {}


def decide_command(draft: IdleDraft, command: cmd.TelemetryCommand | cmd.Undecodable) -> None:
    """Decide one command: carry it out, or record why not."""
    if isinstance(command, cmd.Undecodable):
        draft.emit(undecodable(ev.TelemetryCommandRejected, command))
        return
    draft.repeat(command.authority)
    refusal = HANDLERS[type(command)](draft, command, f"cmd:{command.id}")
    if refusal is not None:
        draft.emit(rejected(ev.TelemetryCommandRejected, command, refusal, chars_max=REFUSAL_CHARS_MAX))
    draft.repeat(None)


def _set(draft: IdleDraft, command: cmd.SetIdlePolicies, cause: str) -> CommandRefusal | None:
    return _set_all(draft, {command.scope: command.policies}, "policies", command.user, cause)


def _apply(draft: IdleDraft, command: cmd.ApplyIdlePolicies, cause: str) -> CommandRefusal | None:
    return _set_all(draft, command.scopes, "scopes.{}", command.user, cause)


def _set_all(draft: IdleDraft, wanted: RequestedPolicies, root: str, by: str, cause: str) -> CommandRefusal | None:
    """All of these scopes' policies, or none: they are held against each other as they would be."""
    if not wanted:
        return CommandRefusal("invalid", "scopes: expected at least one scope, found none")
    together = {scope: of for scope, of in (draft.policies | dict(wanted)).items() if of}
    refusal = policy_refusal(together, wanted, _projects(draft.state, wanted), root)
    if refusal is not None:
        return refusal
    draft.policies = together
    for scope, of in wanted.items():
        draft.emit(ev.IdlePoliciesSet(cause=cause, scope=scope, policies=of, by=by))
    return None


def _projects(state: IdleState, wanted: RequestedPolicies) -> dict[str, set[str]]:
    """{user: projects of which the user has jobs now}, of the users whose policies these are."""
    found = {scope.removeprefix(USER): set[str]() for scope, of in wanted.items() if of and scope.startswith(USER)}
    for owner in state.owners.values() if found else ():
        if owner.project and owner.user in found:
            found[owner.user].add(owner.project)
    return found


def _extend(draft: IdleDraft, command: cmd.ExtendJob, cause: str) -> CommandRefusal | None:
    """The gateway has judged who may: `fairlead_rights.command_rights`, as for every verb of a job."""
    run = _running(draft.state, command.job)
    if isinstance(run, CommandRefusal):
        return run
    if any(idle.is_final for idle in run.idle.values()):
        return CommandRefusal("conflict", f"job {run.job} was asked back already; its notice is over")
    strictest = _strictest(draft, run)
    if strictest is None:
        return CommandRefusal("conflict", f"no policy acts on job {run.job}; there is nothing to extend")
    until_ns, count = draft.extended.get(run.job, (run.extended_ns, run.extensions))
    policy = strictest.policy
    if count >= policy.extensions_max:
        message = f"job {run.job} was extended {count} times; its policy {policy.rule} of scope {strictest.scope} allows {policy.extensions_max}"
        return CommandRefusal("beyond_bounds", message)
    if not 0 <= command.for_ns <= policy.extend_ns:
        message = f"for: expected at most {format_duration(policy.extend_ns)}, by policy {policy.rule} of scope {strictest.scope}, found {format_duration(command.for_ns)}"
        return CommandRefusal("beyond_bounds", message)
    until_ns = max(until_ns, draft.now_ns + (command.for_ns or policy.extend_ns))
    draft.extended[run.job] = (until_ns, count + 1)
    draft.emit(
        ev.JobExtended(
            cause=cause, job=run.job, attempt=run.attempt, until_ns=until_ns, count=count + 1, by=command.user
        )
    )
    return None


def _running(state: IdleState, job: str) -> TrackedRun | CommandRefusal:
    run = state.runs.get(job)
    if run is not None and run.started_ns and not run.stopping:
        return run
    if run is not None:
        phase = "ending" if run.stopping else "starting"
        return CommandRefusal("conflict", f"job {job} is {phase}; only what runs can be extended")
    if any(other.startswith(f"{job}_") for other in state.runs):
        return CommandRefusal("conflict", f"job {job} is an array; extend its elements, such as {job}_0")
    return CommandRefusal("not_found", f'no job "{job[:40]}" runs now; only what runs can be extended')


def _strictest(draft: IdleDraft, run: TrackedRun) -> PolicyInForce | None:
    """Return the acting policy of the run that allows the least; None where no policy acts."""
    acting = [each for each in policies_in_force(draft.policies, run.owner).values() if _acts(each.policy)]
    return min(acting, key=lambda each: (each.policy.extensions_max, each.policy.extend_ns), default=None)


def _acts(policy: IdlePolicy) -> bool:
    return policy.mode != "dry_run" and policy.action not in NOTIFY_ONLY


HANDLERS: dict[type, Callable[[IdleDraft, Any, str], CommandRefusal | None]] = {
    cmd.SetIdlePolicies: _set,
    cmd.ApplyIdlePolicies: _apply,
    cmd.ExtendJob: _extend,
}
