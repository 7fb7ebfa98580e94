"""What is wrong with policies that somebody wants to set: by themselves, and against the bounds of wider scopes. Pure."""

from collections.abc import Iterator

from fairlead_schemas.idle import IdlePolicy
from fairlead_schemas.quantities import format_duration
from fairlead_telemetry.idle.limits import (
    AFTER_LEAST_NS,
    DURATION_MOST_NS,
    EXTENSIONS_MOST,
    NAME_CHARS_MAX,
    SCOPES_MAX,
    THRESHOLD_MOST,
)
from fairlead_telemetry.idle.scopes import GLOBAL, PROJECT, USER, Policies, beyond


def refusal(policies: Policies, scope: str, wanted: tuple[IdlePolicy, ...]) -> tuple[str, str]:
    """(code, message) that says which field, what was expected and what to do; ("", "") where nothing is wrong."""
    message = _scope(scope) or (
        f"scope: there are {SCOPES_MAX} scopes with policies already; take one away"
        if wanted and scope not in policies and len(policies) >= SCOPES_MAX
        else ""
    )
    for at, policy in enumerate(wanted):
        if any(other.rule == policy.rule for other in wanted[:at]):
            message = message or f"policies[{at}].rule: {policy.rule} is there twice; expected one policy for each rule"
        message = message or next((f"policies[{at}].{what}" for what in _problems(policy)), "")
    if message:
        return "invalid", message
    for at, policy in enumerate(wanted):
        if message := _beyond(policies, scope, policy, f"policies[{at}]"):
            return "beyond_bounds", message
    return "", ""


def _scope(scope: str) -> str:
    if scope == GLOBAL:
        return ""
    for prefix in (PROJECT, USER):
        if scope.startswith(prefix) and 0 < len(scope) - len(prefix) <= NAME_CHARS_MAX:
            return ""
    return f'scope: expected "global", "project:<name>" or "user:<name>", found "{scope[:60]}"'


def _problems(policy: IdlePolicy) -> Iterator[str]:
    """What is wrong with one policy by itself, field by field."""
    if not AFTER_LEAST_NS <= policy.after_ns <= DURATION_MOST_NS:
        yield f"after_ns: expected {AFTER_LEAST_NS} to {DURATION_MOST_NS}, found {policy.after_ns}"
    times = {
        "notice_ns": policy.notice_ns, "extend_ns": policy.extend_ns, "shrink_ns": policy.shrink_ns,
        "after_max_ns": policy.after_max_ns,
    }  # fmt: skip
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


def _beyond(policies: Policies, scope: str, policy: IdlePolicy, path: str) -> str:
    """A project's policy is held against the global one of its rule, and a user's too. (Which project a user's runs are of is not
    known here: where it lies beyond that one's bounds, it has no say there.)"""
    for wider in policies.get(GLOBAL, ()) if scope != GLOBAL else ():
        same = wider.rule == policy.rule
        if same and not (wider.kinds and policy.kinds and not set(wider.kinds) & set(policy.kinds)):
            found = beyond(policy, wider)
            if found is not None:
                told = [
                    format_duration(each) if isinstance(each, int) and found.field.endswith("_ns") else each
                    for each in found[1:]
                ]
                return f"{path}.{found.field}: {told[0]} is beyond the bound of scope global, {told[1]}; stay within it"
    return ""
