"""Events of the telemetry service: idle runs, notices to their owners, and reclaims."""

from fairlead_schemas.policies.idle import ActiveReason, IdleAction, IdleEvidence, IdleMode, IdlePolicy, IdleRule
from fairlead_schemas.wire.events.base import EventBase


class IdlePoliciesSet(EventBase, tag=True, frozen=True, kw_only=True):
    """The policies of one scope are these from here on (all of them, not a change); none: the scope has no say."""

    scope: str
    policies: tuple[IdlePolicy, ...]  # at most one for each rule
    by: str = ""


class JobIdle(EventBase, tag=True, frozen=True, kw_only=True):
    """A run counts as idle by a policy from here on; its owner has until `reclaim_at_ns` to use it or extend it."""

    job: str
    attempt: int
    scope: str
    rule: IdleRule
    action: IdleAction
    mode: IdleMode  # whether it is done
    since_ns: int
    #: 0: nothing follows.
    reclaim_at_ns: int
    evidence: tuple[IdleEvidence, ...]


class JobActive(EventBase, tag=True, frozen=True, kw_only=True):
    """A run does not count as idle by this rule any more; what was asked because of it is withdrawn."""

    job: str
    attempt: int
    rule: IdleRule
    reason: ActiveReason  # why it counts as active again
    #: Of "active": the signal that rose, and to what.
    evidence: tuple[IdleEvidence, ...] = ()


class JobExtended(EventBase, tag=True, frozen=True, kw_only=True):
    """No policy acts on the run before this Unix time."""

    job: str
    attempt: int
    until_ns: int  # when it ends; another may follow
    #: Which extension of this run it is, from 1.
    count: int
    by: str = ""


class LeaseShrunk(EventBase, tag=True, frozen=True, kw_only=True):
    """The run is asked back at this Unix time unless it is extended before."""

    job: str
    attempt: int
    until_ns: int  # when the lease ends
    scope: str
    rule: IdleRule


class ReclaimRequested(EventBase, tag=True, frozen=True, kw_only=True):
    """The notice is over: the run is to end (`on_demand`: when waiting work can use the run's resources)."""

    job: str
    attempt: int
    scope: str
    rule: IdleRule
    action: IdleAction
    on_demand: bool = False  # only for a waiting job that can use it
    since_ns: int
    evidence: tuple[IdleEvidence, ...]


class ReclaimSimulated(EventBase, tag=True, frozen=True, kw_only=True):
    """A policy in dry run would ask for the run here; nothing follows."""

    job: str
    attempt: int
    scope: str
    rule: IdleRule
    action: IdleAction
    since_ns: int
    evidence: tuple[IdleEvidence, ...]


class TelemetryCommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the telemetry service was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""
    #: As of CommandRejected.
    verb: str = ""
    #: The job or scope that it names; "" where it names none.
    about: str = ""
