"""The rows that the views keep: compact, mutable, written to snapshots as they are."""

import msgspec

from fairlead_schemas.policies.idle import IdleEvidence, IdlePolicy
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.queuefile.settings import Amounts, PoolSettings, QueueSettings
from fairlead_schemas.units.selectors import with_name
from fairlead_schemas.wire.events import Dependency, NearMiss, Part
from fairlead_schemas.wire.resources import Inventory, Request

NO_SPEC = msgspec.Raw(b"null")


class DeferralRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queue's newest reason not to offer a job, or other jobs of its queue with the same request."""

    job: str
    sequence: int
    at_ns: int
    reason: str
    #: Of a limit: whose it is, and what of; held + needed would be more than the ceiling (as in the log).
    queue: str = ""
    resource: str = ""
    held: int = 0
    needed: int = 0
    ceiling: int = 0
    holder: str = ""
    #: Whose limit or array it is about, where others of the class may still be offered.
    user: str = ""
    array: str = ""


class PreemptionRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Request to a run to yield: the job that made it, the rule, and the facts that made the rule hold then."""

    attempt: int
    sequence: int
    #: The job that gains; "" if a limit was lowered and no particular job gains (rule "reclaimed").
    beneficiary: str
    rule: str
    priority: int = 0
    beneficiary_priority: int = 0
    #: The queue of the run, or the one above it that the rule speaks of, and what it used over its guarantee.
    queue: str = ""
    over: int = 0
    resource: str = ""
    beneficiary_queue: str = ""


class StarvationRow(msgspec.Struct, omit_defaults=True):
    """Room being made for a starving job's attempt."""

    attempt: int
    #: Runs that may be asked to yield for it, and those that were.
    named: int = 0
    victims: tuple[str, ...] = ()
    #: Nodes by the reason why each could not take part even then, if for that reason no run was asked to yield.
    declined: dict[str, int] = {}
    #: It has waited so long that what it needs is kept for it as it comes free: on these nodes, where there are any.
    waited_ns: int = 0
    nodes: tuple[str, ...] = ()
    #: When they will have room for it (Unix ns, 0: not known), by what, after which jobs; who runs there until then.
    start_ns: int = 0
    basis: str = ""
    waits_for: tuple[str, ...] = ()
    guests: tuple[str, ...] = ()


class IdleReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A policy's finding on a run: since when it is idle, when that was seen, what follows when, and on what evidence.
    Unix ns.
    """

    sequence: int
    scope: str
    rule: str
    action: str
    mode: str
    since_ns: int
    seen_ns: int
    #: 0: nothing follows.
    reclaim_at_ns: int
    #: Time at which it was asked back (on demand, where the mode says so); 0: it was only reported.
    reclaim_requested_ns: int
    evidence: tuple[IdleEvidence, ...]


class SimulatedReclaim(msgspec.Struct, frozen=True):
    """A policy in dry run would have taken the run back at a time (Unix ns)."""

    scope: str
    rule: str
    action: str
    at_ns: int


class DryRunSavings(msgspec.Struct):
    """Savings of a policy in dry run: runs, and what these held afterwards until they were used again or ended."""

    scope: str
    rule: str
    action: str
    runs: int = 0
    gpu_milli_s: int = 0
    #: Runs that were used again.
    came_alive: int = 0


class IdlePolicies(msgspec.Struct, frozen=True):
    """The policies of one scope."""

    scope: str
    policies: tuple[IdlePolicy, ...]
    by: str
    sequence: int
    at_ns: int


class EndedAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt after which there was another one, and how it ended. Unix ns; 0: it never began."""

    attempt: int
    nodes: tuple[str, ...]
    started_ns: int
    ended_ns: int
    reason: str
    exit_code: int | None = None
    signal: int | None = None
    gpu_fault: str = ""
    message: str = ""


class JobRow(msgspec.Struct, gc=False, omit_defaults=True):
    """Row of one job, one array, or one element of an array. Times are Unix ns; 0: has not happened."""

    id: str
    name: str
    queue: str
    user: str
    project: str
    kind: str
    priority: int
    request: Request
    #: The job file; `NO_SPEC` for an element, whose array has it.
    spec: msgspec.Raw
    state: str
    #: Rises with each row: the order of lists.
    born: int
    submitted_ns: int
    changed_seq: int
    start_at_ns: int = 0
    attempt: int = 1
    #: Rank of the open offer; offers are taken in rising rank.
    offer_rank: int = 0
    #: Log sequence at which this attempt was offered.
    offered_seq: int = 0
    placed_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    parts: tuple[Part, ...] = ()
    #: {earlier attempt: the nodes it ran on}, in rank order: the nodes with its output. Keys of JSON are text.
    past: dict[str, tuple[str, ...]] = {}
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    #: The rank whose end those three are.
    end_rank: int = 0
    #: Why the job was queued again or ended (closed words of the events).
    reason: str = ""
    by: str = ""
    not_before_ns: int = 0
    charged: bool = False
    #: Units of the request that the placement lacks, if the request states how few are enough.
    missing: int = 0
    run_ended: bool = False
    #: When the attempt's run ended, and the fault of a GPU that ended it; the attempts before, the newest ones.
    run_ended_ns: int = 0
    gpu_fault: str = ""
    attempts: tuple[EndedAttempt, ...] = ()
    #: An element's array; "" for others.
    array_id: str = ""
    array: tuple[int, int] | None = None
    #: For an array: {state: elements}, "waiting" for those not offered yet.
    elements: dict[str, int] | None = None
    #: Elements that may be at work at once; 0: all.
    array_limit: int = 0
    after: tuple[Dependency, ...] = ()
    deadline_ns: int = 0
    deadline_missed: bool = False
    #: How much of the priority is from waiting; another attempt begins without.
    aged: int = 0
    slice_ns: int = 0
    total_ns: int = 0
    grace_ns: int = 0
    on_partition: OnPartition = AS_THE_CLUSTER
    notice_ns: int = 0
    #: Last report that its work is saved: the time (the log's clock, as below) and the note. Then the time lost
    #: at its ends in all, and at the last of them.
    saved_ns: int = 0
    saved_note: str = ""
    lost_ns: int = 0
    lost_last_ns: int = 0
    #: Run time of the attempts that this one continues, its own ended run included; then since when it runs now.
    #: Both by the log's clock, which never goes back: writers' own clocks may differ.
    used_ns: int = 0
    runs_since_ns: int = 0
    #: How often it has yielded, and to whom and why the last time (or is asked to now).
    preempted: int = 0
    yielding: PreemptionRow | None = None
    #: Reason why the queue does not offer it, if the queue gave one for this very job.
    deferral: DeferralRow | None = None
    room: StarvationRow | None = None
    #: What policies say of the run, one for each rule; what those in dry run would have done; until when none of them acts, and
    #: how often it was extended; by which the last run was taken back.
    idle: tuple[IdleReport, ...] = ()
    foreseen: tuple[SimulatedReclaim, ...] = ()
    extended_until_ns: int = 0
    extensions: int = 0
    reclaimed: IdleReport | None = None
    #: Jobs that were asked to yield to this attempt because they lay idle.
    idle_from: tuple[str, ...] = ()
    #: When its application served for the first time in the newest run.
    app_ready_ns: int = 0

    @property
    def has_yielded(self) -> bool:
        """True if the job waits because the attempt before this one has yielded to another job."""
        is_same_attempt = self.yielding is not None and self.yielding.attempt == self.attempt - 1
        return self.reason == "preempted" or (self.reason == "idle" and is_same_attempt)

    @property
    def holds(self) -> Request:
        """Amounts that the attempt is charged for: its request, or the part of it that it got."""
        return self.request.without(self.missing)


class PlacementRefusal(msgspec.Struct, frozen=True):
    """The placer's newest refusal of a class of equal requests: the decision's own words."""

    request: Request
    job: str
    attempt: int
    sequence: int
    at_ns: int
    reasons: dict[str, int]
    nodes: int
    fitting: int
    gpu_milli_free: int
    gpu_milli_total: int
    #: Nodes that lack one job's end only.
    near: tuple[NearMiss, ...] = ()
    #: Of a gang that must lie in one domain: its level, and the most units that one domain takes.
    level: str = ""
    best: int = 0
    #: Maintenance windows that keep it from nodes with room.
    windows: tuple[str, ...] = ()


class BudgetUse(msgspec.Struct, frozen=True):
    """Use of a budget when the queue last reported it. milli-GPU-seconds, weighted; Unix ns."""

    percent: int
    spent: int
    budget: int
    period_ns: int


class ClosureRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Hold or drain of a queue: who, why, and since which Unix time."""

    by: str
    reason: str
    at_ns: int


class QueueRow(msgspec.Struct, gc=False, omit_defaults=True):
    """Row of one queue. `states` counts all its own jobs and elements so far, by state; arrays themselves are not counted."""

    path: str
    #: False for one that is only above another, or was removed.
    exists: bool = False
    settings: QueueSettings | None = None
    #: Charged to it and to those below, and what of it has a place: the rest are open offers.
    charged: Amounts = {}
    used: Amounts = {}
    #: {user: charged to this very queue}
    users: dict[str, Amounts] = {}
    states: dict[str, int] = {}
    #: Elements of its arrays that were not offered yet.
    unborn: int = 0
    #: Attempts of its own jobs that ended by yielding.
    preempted: int = 0
    reached: BudgetUse | None = None
    held: ClosureRow | None = None
    drained: ClosureRow | None = None


class PoolRow(msgspec.Struct, gc=False):
    """Row of one pool of nodes and queues."""

    name: str
    settings: PoolSettings


class HealthIssueRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that is not well about a node (gpu "") or a GPU of it, as its agent saw it, since a Unix time."""

    gpu: str
    code: str
    evidence: str
    since_ns: int


class NodeRow(msgspec.Struct, gc=False, omit_defaults=True):
    """Row of one node, with what it holds: {"<job>.<attempt>": part}."""

    id: str
    inventory: Inventory
    boot_id: str
    incarnation: str
    cordoned: bool = False
    draining: bool = False
    drained: bool = False
    lost: bool = False
    #: For a lost node: time of its last heartbeat (Unix ns), and True if a person stated that nothing runs there.
    last_contact_ns: int = 0
    dead: bool = False
    quarantined: bool = False
    suspect: bool = False
    #: Until when it gets no work after the last failure, of a suspect one (Unix ns); 0: it does not rest.
    rests_until_ns: int = 0
    #: Why it is cordoned or drained, and which class set that; why it is in quarantine.
    reason: str = ""
    setter: str = ""
    quarantine_reason: str = ""
    #: (taint, setter), as they were set; those of the inventory stand there. {GPU UUID: what is wrong with it}.
    taints: list[tuple[str, str]] = []
    faulted: dict[str, str] = {}
    #: What is not well, with the evidence, oldest first. Jobs that failed fast there, where it is suspect or in quarantine for it.
    ailments: list[HealthIssueRow] = []
    blamed_by: tuple[str, ...] = ()
    held: dict[str, Part] = {}
    changed_seq: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """Labels as selectors see them: with the node's name."""
        return with_name(self.inventory.labels, self.id)


class OutcomeRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Outcome of a command. `code` is "" when it was carried out."""

    sequence: int
    job: str = ""
    code: str = ""
    message: str = ""
    field: str = ""
    #: The submit repeated an earlier one under its key.
    repeated: bool = False
    #: Of a change of queues: how many were configured, removed, and left as they were.
    applied: tuple[int, int, int] | None = None


class WindowRow(msgspec.Struct, gc=False):
    """A maintenance window that is not over."""

    name: str
    nodes: tuple[str, ...]
    starts_ns: int
    ends_ns: int
    notice_ns: int
    by: str
    reason: str
    started: bool = False


class RolloutRow(msgspec.Struct, gc=False):
    """A rolling upgrade, under way or one of the last that ended: {node: its newest step, "" before its turn}."""

    name: str
    nodes: dict[str, str]
    budget_gpus: int
    nodes_max: int
    want: tuple[str, ...]
    deadline_ns: int
    stop_long: bool
    by: str
    reason: str
    started_ns: int
    state: str = "running"  # running | paused | done | cancelled


class BreakerRow(msgspec.Struct, frozen=True, gc=False):
    """Cause that has tripped the breaker and has not been reset."""

    kind: str
    found: int
    allowed: int
    of: int
    at_ns: int
