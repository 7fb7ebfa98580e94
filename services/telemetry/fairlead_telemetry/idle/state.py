"""State of the idle core: policies by scope, the submitter and kind of each job, and every run that has a place. Integers
and words only.

Only `apply/handlers.py` changes it. A run is in the state from its placement to its end, so the state is as small as the
cluster's present.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from fairlead_schemas.policies.idle import IdleEvidence, IdlePolicy, IdleRule

#: Progress of a rule with a run: its owner was notified (or nothing follows), a dry run has reported its
#: action, the lease was cut, the run was asked back.
Step = Literal["told", "foreseen", "shrunk", "asked"]


class JobOwner(NamedTuple):
    """Owner and kind of a job or array."""

    user: str
    project: str
    kind: str


class RunDevices(NamedTuple):
    """Devices of one node that a run holds: UUIDs of GPUs, or of MIG instances where GPUs are cut."""

    node: str
    devices: tuple[str, ...]


class IdlePeriod(msgspec.Struct, kw_only=True, rename={"notified_ns": "said_ns"}):
    """A rule by which a run counts as idle now."""

    scope: str
    #: The policy when the run was called idle: under another policy, idleness starts over.
    policy: IdlePolicy
    since_ns: int
    #: Time of the event that says so, which notifies the owner.
    notified_ns: int
    reclaim_at_ns: int
    evidence: tuple[IdleEvidence, ...]
    step: Step = "told"
    #: Of "shrunk": when the lease ends.
    until_ns: int = 0

    @property
    def is_final(self) -> bool:
        """The run was asked back, and nothing that it does withdraws that."""
        return self.step == "asked" and self.policy.mode == "always"


class TrackedRun(msgspec.Struct, kw_only=True, rename={"owner": "birth"}):
    """Attempt of a job, from its place to its end."""

    job: str
    attempt: int
    owner: JobOwner
    parts: tuple[RunDevices, ...]
    #: 0 until every rank runs.
    started_ns: int = 0
    #: Another cause ends the run already.
    stopping: bool = False
    #: No policy acts before; how often it was extended.
    extended_ns: int = 0
    extensions: int = 0
    idle: dict[IdleRule, IdlePeriod] = {}


class IdleState:
    """All of it."""

    def __init__(self) -> None:
        #: {scope: its policies, at most one for each rule}; a scope without policies is not here.
        self.policies: dict[str, tuple[IdlePolicy, ...]] = {}
        #: {job or array: its owner}, from submit to end.
        self.owners: dict[str, JobOwner] = {}
        #: {job or array element: its run}.
        self.runs: dict[str, TrackedRun] = {}
        #: Jobs whose runs have changed since `take_changed`, and all after a change of policies (derived).
        self.changed: dict[str, None] = {}

    def take_changed(self) -> Iterable[str]:
        """Return the jobs whose runs have changed, and forget them."""
        changed, self.changed = self.changed, {}
        return changed
