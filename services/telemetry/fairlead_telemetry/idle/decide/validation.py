"""Validation of policies to be set: each alone, and against the bounds of wider scopes. Pure."""

from collections.abc import Collection, Iterator, Mapping

from fairlead_bus.core import CommandRefusal
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.quantities import format_duration
from fairlead_telemetry.idle.limits import (
    AFTER_LEAST_NS,
    DURATION_MOST_NS,
    EXTENSIONS_MOST,
    NAME_CHARS_MAX,
    SCOPES_MAX,
    THRESHOLD_MOST,
)
from fairlead_telemetry.idle.scopes import GLOBAL, PROJECT, USER, Policies, bound_violation

type RequestedPolicies = Mapping[str, tuple[IdlePolicy, ...]]


def policy_refusal(
    policies: Policies, wanted: RequestedPolicies, projects: Mapping[str, Collection[str]], root: str
) -> CommandRefusal | None:
    """Refuse policies with a line for each problem, which names the field, the expectation and the remedy. `policies`: of all scopes as they would be; `projects`: {user: those of which the user has jobs now}; `root`: the path of a scope's
    policies in what was sent, with its name for {}."""
    found = [line for scope, of in wanted.items() for line in _of_scope(policies, scope, of, root.replace("{}", scope))]
    if found:
        return CommandRefusal("invalid", "\n".join(found))
    found = [
        line
        for scope, of in wanted.items()
        for at, policy in enumerate(of)
        for line in _beyond(policies, scope, policy, projects, f"{root.replace('{}', scope)}[{at}]")
    ]
    return CommandRefusal("beyond_bounds", "\n".join(found)) if found else None


def _of_scope(policies: Policies, scope: str, wanted: tuple[IdlePolicy, ...], path: str) -> Iterator[str]:
    """Yield the problems of one scope's policies, each taken alone."""
    if message := _scope(scope):
        yield message
    if wanted and len(policies) > SCOPES_MAX:
        yield f"scope: there would be {len(policies)} scopes with policies, at most {SCOPES_MAX} may be; take some away"
    for at, policy in enumerate(wanted):
        if any(other.rule == policy.rule for other in wanted[:at]):
            yield f"{path}[{at}].rule: {policy.rule} is there twice; expected one policy for each rule"
        yield from (f"{path}[{at}].{what}" for what in _problems(policy))


def _scope(scope: str) -> str:
    if scope == GLOBAL:
        return ""
    for prefix in (PROJECT, USER):
        if scope.startswith(prefix) and 0 < len(scope) - len(prefix) <= NAME_CHARS_MAX:
            return ""
    return f'scope: expected "global", "project:<name>" or "user:<name>", found "{scope[:60]}"'


def _problems(policy: IdlePolicy) -> Iterator[str]:
    """Yield the problems of one policy, taken alone, field by field."""
    if not AFTER_LEAST_NS <= policy.after_ns <= DURATION_MOST_NS:
        yield f"after_ns: expected {AFTER_LEAST_NS} to {DURATION_MOST_NS}, found {policy.after_ns}"
    times = {
        "notice_ns": policy.notice_ns,
        "extend_ns": policy.extend_ns,
        "shrink_ns": policy.shrink_ns,
        "after_max_ns": policy.after_max_ns,
    }
    for field, found in times.items():
        if not 0 <= found <= DURATION_MOST_NS:
            yield f"{field}: expected 0 to {DURATION_MOST_NS}, found {found}"
    if policy.after_max_ns and policy.after_max_ns < policy.after_ns:
        yield f"after_max_ns: expected 0 or at least after_ns ({policy.after_ns}), found {policy.after_max_ns}"
    if not 0 <= policy.extensions_max <= EXTENSIONS_MOST:
        yield f"extensions_max: expected 0 to {EXTENSIONS_MOST}, found {policy.extensions_max}"
    if bool(policy.extend_ns) != bool(policy.extensions_max):
        yield f"extend_ns: {policy.extend_ns} with extensions_max {policy.extensions_max}; expected both or neither"
    if (policy.action == "shrink") != bool(policy.shrink_ns):
        yield f"shrink_ns: found {policy.shrink_ns} with action {policy.action}; a time for shrink, and only for that"
    if (policy.rule == "utilization") != bool(policy.below):
        yield f"below: found {len(policy.below)} signals with rule {policy.rule}; thresholds for utilization, and only for that"
    for signal, threshold in policy.below.items():
        if not 0 < threshold <= THRESHOLD_MOST:
            yield f"below.{signal}: expected 1 to {THRESHOLD_MOST}, found {threshold}"


def _beyond(
    policies: Policies, scope: str, policy: IdlePolicy, projects: Mapping[str, Collection[str]], path: str
) -> Iterator[str]:
    """Yield a problem for each field of a policy that is beyond the bounds of its rule at a wider scope. A project's policy is
    checked against the global one. A user's policy is checked against those of the projects in which the user has jobs now,
    and the global one. (Other projects are not known to be the user's: a policy beyond the bounds of one of them has no
    effect there.)
    """
    user = scope.removeprefix(USER) if scope.startswith(USER) else None
    of_projects = sorted(f"{PROJECT}{project}" for project in projects.get(user, ())) if user is not None else []
    for wider in [*of_projects, *([GLOBAL] if scope != GLOBAL else [])]:
        for bounding in policies.get(wider, ()):
            same = bounding.rule == policy.rule
            found = bound_violation(policy, bounding) if same and _meet(policy, bounding) else None
            if found is not None:
                told = [
                    format_duration(each) if isinstance(each, int) and found.field.endswith("_ns") else each
                    for each in (found.found, found.bound)
                ]
                yield f"{path}.{found.field}: {told[0]} is beyond the bound of scope {wider}, {told[1]}; stay within it"


def _meet(policy: IdlePolicy, wider: IdlePolicy) -> bool:
    """Return True if there are jobs to which both policies apply."""
    return not (wider.kinds and policy.kinds and not set(wider.kinds) & set(policy.kinds))
