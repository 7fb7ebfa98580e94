"""Policy in force for a run: for each rule the narrowest that applies to it, within the bounds of the wider ones."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from fairlead_schemas.policies.idle import IdleAction, IdleMode, IdlePolicy, IdleRule
from fairlead_telemetry.idle.state import JobOwner

GLOBAL, PROJECT, USER = "global", "project:", "user:"
RULES: tuple[IdleRule, ...] = get_args(IdleRule)
#: From the softest to the hardest.
MODES: tuple[IdleMode, ...] = get_args(IdleMode)
ACTIONS: tuple[IdleAction, ...] = ("note", "warn", "shrink", "requeue", "stop")

type Policies = Mapping[str, tuple[IdlePolicy, ...]]


class PolicyInForce(NamedTuple):
    """A policy that counts, and whose it is."""

    scope: str
    policy: IdlePolicy


class BoundViolation(NamedTuple):
    """A field by which a policy goes beyond the bounds of a wider one, what it says, and the most that it may."""

    field: str
    found: int | str
    bound: int | str


def policies_in_force(policies: Policies, owner: JobOwner) -> dict[IdleRule, PolicyInForce]:
    """Return {rule: policy in force for a run of this job}. A policy beyond the bounds of a wider one has no effect, and the
    wider one applies. The wider one was set later, or is that of the run's project.
    """
    scopes = (f"{USER}{owner.user}", f"{PROJECT}{owner.project}" if owner.project else "", GLOBAL)
    found: dict[IdleRule, PolicyInForce] = {}
    for rule in RULES:
        speaking = [
            PolicyInForce(scope, policy)
            for scope in scopes
            for policy in policies.get(scope, ())
            if policy.rule == rule and applies_to(policy, owner.kind)
        ]
        for at, each in enumerate(speaking):
            if not any(bound_violation(each.policy, wider.policy) for wider in speaking[at + 1 :]):
                found[rule] = each
                break
    return found


def applies_to(policy: IdlePolicy, kind: str) -> bool:
    """Return True if the policy applies to jobs of this kind."""
    return not policy.kinds or kind in policy.kinds


def bound_violation(policy: IdlePolicy, wider: IdlePolicy) -> BoundViolation | None:
    """The first bound of a wider policy of the same rule that a narrower one breaks, if any.

    The time is bounded in any case; everything else only where the wider one may not be softened.
    """
    longest = wider.after_max_ns or wider.after_ns
    if policy.after_ns > longest:
        return BoundViolation("after_ns", policy.after_ns, longest)
    if wider.may_soften:
        return None
    if MODES.index(policy.mode) < MODES.index(wider.mode):
        return BoundViolation("mode", policy.mode, wider.mode)
    if ACTIONS.index(policy.action) < ACTIONS.index(wider.action):
        return BoundViolation("action", policy.action, wider.action)
    return _longer(policy, wider) or _less_sensitive(policy, wider)


#: What gives the owner more time.
_TIMES: tuple[Literal["notice_ns", "extend_ns", "extensions_max"], ...] = ("notice_ns", "extend_ns", "extensions_max")


def _longer(policy: IdlePolicy, wider: IdlePolicy) -> BoundViolation | None:
    for field in _TIMES:
        found, most = int(getattr(policy, field)), int(getattr(wider, field))
        if found > most:
            return BoundViolation(field, found, most)
    if policy.action == wider.action == "shrink" and policy.shrink_ns > wider.shrink_ns:
        return BoundViolation("shrink_ns", policy.shrink_ns, wider.shrink_ns)
    return None


def _less_sensitive(policy: IdlePolicy, wider: IdlePolicy) -> BoundViolation | None:
    """Every further signal, and every lower threshold, makes it harder to count as idle; of a person's absence, every longer one."""
    for signal, threshold in policy.below.items():
        bound = wider.below.get(signal)
        if bound is None:
            return BoundViolation(f"below.{signal}", threshold, "not asked about")
        if threshold > bound if signal in PRESENCE else threshold < bound:
            return BoundViolation(f"below.{signal}", threshold, bound)
    return None


#: Signals whose value is the time since the last presence of a user: idle is at or above the threshold, not
#: below.
PRESENCE = frozenset(("terminal", "proxy"))
