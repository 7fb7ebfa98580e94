"""Every event of the log: what happened, said once, by the one writer that owns the fact.

Event types are closed: each has exactly one writer, one meaning and somebody who emits it.
Names are past tense, aggregate first. Fields may be added with defaults; a field's meaning never
changes under the same name. Integers only. `cause` says what led to the event:
"cmd:<id>", "<sequence>.<index>", "report:<node>:<n>" or "clock".
"""

from typing import Literal

import msgspec

from fairlead_schemas.queues import PoolSettings, QueueSettings
from fairlead_schemas.resources import Inventory, MigInstance, MigPlace, Request

JobKind = Literal["batch", "session", "service"]

#: Why an attempt's run came to its end.
RunOutcome = Literal[
    "exited",  # the process ended by itself; exit_code and signal say how
    "stopped",  # it was asked to stop (cancel, time limit, drain, preemption) and has ended
    "start_failed",  # the runtime could not start it; message says why
    "node_lost",  # a node of the run was lost and has fenced itself
    "node_rebooted",  # a node of the run booted anew under it
    "exit_unknown",  # it ended while its agent was away; nobody saw its exit code
]
StopReason = Literal[
    "cancelled",  # a person wants it to end
    "time_limit",  # its time is up
    "reclaimed",  # its queue holds more than it may since a change that asked for it back; it waits again afterwards
]
RecallReason = Literal[
    "hold",  # a person holds the job
    "quota",  # others could use what it is charged for, and the placer has refused it
    "order",  # others go before it now, and the placer has as many offers as it looks ahead over
]
RequeueReason = Literal["retry", "node_lost", "node_rebooted", "drained", "preempted", "start_failed", "exit_unknown"]
FailReason = Literal["exit_code", "time_limit", "start_failed", "infrastructure", "element_failed", "dependency"]

#: Why the queue does not offer a job now.
DeferReason = Literal[
    "maximum",  # a queue above it (or its own) would hold more than its maximum
    "user_limit",  # its user would hold more than the queue grants one user
    "reserved",  # the rest of the capacity is kept for the guarantee of a queue that does not lend it
    "claimed",  # what is free is kept for a job that has waited longer
    "budget",  # a budget above it is spent
    "array_limit",  # as many elements of the array run as may at once
    "turn",  # others go first, and the placer has as many offers as it looks ahead over
]
#: By which rule a run may be asked to yield.
YieldRule = Literal[
    "lower_priority",  # of the same queue, of lower priority
    "over_slice",  # it has had its slice, and somebody goes before it
    "over_guarantee",  # its queue uses what another queue is guaranteed
    "over_share",  # its queue is above its fair share, the other below
    "defragmentation",  # it fits elsewhere, the other nowhere else (where the pool asks for it)
]
#: Which class set a node's state. People may undo all; nobody else undoes what another class has set.
Setter = Literal[
    "person",  # a command
    "maintenance",  # a maintenance window
    "rollout",  # a rolling upgrade
    "health",  # a report of a device's health, or how runs ended on the node
]
#: What made automatic action stop.
BreakerKind = Literal[
    "nodes",  # too many nodes were about to be taken out of work in a short time
    "loss",  # too many nodes fell silent at once: perhaps it is the placer that cannot hear
]
#: What became of one node of a rollout.
RolloutStep = Literal[
    "draining",  # its turn has come
    "returned",  # it is done and takes work again
    "skipped",  # its turn came and it was as wanted already
    "left",  # another has it in hand: a person has cordoned, drained or returned it meanwhile, or it is gone
]
#: What is done to a GPU's MIG mode beside cutting it.
MigMode = Literal[
    "",  # nothing: it is on, and stays so
    "on",  # turned on before the first instance is made
    "off",  # turned off after the last instance is gone
]
#: Why a plan to cut a GPU anew came to nothing before its agent had answered.
MigDropReason = Literal[
    "node",  # its node takes no work any more, or runs under another boot or journal
    "gpu",  # the GPU is faulted, or has left the node
    "late",  # no answer came in time
]
#: When a job that waits for another may go on.
DependencyState = Literal["succeeded", "failed", "ended"]


#: What a field means in every event that has it and says nothing else.
FIELDS: dict[str, str] = {
    "job": 'Id of a job ("12"), an array ("12") or an array\'s element ("12_3").',
    "attempt": "The attempt it speaks of, from 1.",
    "rank": "Position of the node's part in the placement, from 0.",
    "node": "Id of the node.",
    "by": 'Who asked for it; "" when nobody did.',
    "user": "Who asked for it.",
    "command": "Id of the command that it answers.",
    "code": "A word for programs.",
    "message": "A sentence for people.",
    "reason": "Why.",
    "digest": "SHA-256 (hex) that names the bytes.",
    "outcome": "How it ended.",
    "exit_code": "What the process returned; none where a signal ended it or nobody saw.",
    "signal": "The signal that ended the process.",
    "inventory": "What the node has.",
    "boot_id": "Names the boot of the machine; another one means that it was restarted.",
    "queue": "Path of the queue.",
    "path": "Path of the queue.",
    "jobs": "Ids of jobs.",
    "deadline_ns": "The Unix time by which it was to have ended.",
    "pool": "Name of the pool.",
    "settings": "The whole setting, in integers.",
    "configured": "How many were made or changed.",
    "removed": "How many were removed.",
    "unchanged": "How many were as they are wanted already.",
    "move_to": "The queue that its waiting jobs are in from here on.",
    "resource": 'What of: "gpu", "gpu:<model>", "cpu" or "memory".',
    "held": "What is held under the limit.",
    "needed": "What the job needs.",
    "ceiling": "The limit.",
    "waited_ns": "How long it has waited.",
    "victims": "Who may yield, in order.",
    "amounts": "{resource: amount}.",
    "budget": "The whole budget, in the unit of `spent`.",
    "beneficiary": "Whom it yields to.",
    "rule": "By which rule.",
    "nodes": "Ids of nodes.",
    "state": "How the other must have ended.",
    "released": "Whether what it held is free again, on evidence.",
    "gpu": "UUID of the GPU.",
    "taint": 'As Kubernetes writes it: "key=value:Effect".',
    "setter": "Which class set it.",
    "name": "Its name.",
    "budget_gpus": "Most GPUs of its nodes that may take no work at once.",
    "starts_ns": "The Unix time at which the nodes must be empty.",
    "ends_ns": "The Unix time at which they take work again.",
    "plan": "Sequence of the commit whose MigLayoutPlanned it answers.",
    "mode": "What is done to the GPU's MIG mode.",
}


class EventBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """What every event carries."""

    cause: str


# ---------------------------------------------------------------------------- written by queue


class QueuesApplied(EventBase, tag=True, frozen=True, kw_only=True):
    """A change of queues and pools was accepted as a whole; what it changed stands in events of the same commit."""

    command: str
    configured: int = 0
    removed: int = 0
    unchanged: int = 0
    by: str = ""
    #: Queues that hold more than they may now shall give it back: runs are stopped and wait again.
    reclaim: bool = False


class PoolConfigured(EventBase, tag=True, frozen=True, kw_only=True):
    """A pool of nodes and queues has these settings from here on (the whole setting, not a change)."""

    pool: str
    settings: PoolSettings
    by: str = ""


class PoolRemoved(EventBase, tag=True, frozen=True, kw_only=True):
    """A pool that no queue is in is gone."""

    pool: str
    by: str = ""


class QueueConfigured(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue exists from here on with these settings (the whole setting, not a change)."""

    #: Names joined by "/": "research/vision".
    path: str
    settings: QueueSettings | None = None
    #: Of logs written before queues had settings: the maximum of "gpu".
    gpu_quota_milli: int | None = None
    by: str = ""


class QueueRemoved(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue is gone; the jobs that waited in it, if any, wait in another from here on."""

    path: str
    move_to: str = ""
    by: str = ""


class Dependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job waits until another has reached a state."""

    job: str
    state: DependencyState = "succeeded"


class JobSubmitted(EventBase, tag=True, frozen=True, kw_only=True):
    """A job was accepted. The spec stands here once, undecoded; `request` is what it asks for."""

    job: str
    name: str  # as the person named it
    queue: str  # the queue's path
    user: str
    request: Request  # resources of one attempt
    spec: msgspec.Raw  # the canonical job file
    project: str = ""  # whose account it goes to
    kind: JobKind = "batch"  # a session is a person's, a service runs until it is stopped
    priority: int = 50  # higher goes first
    #: First and last index of an array, both included; None: a single job.
    array: tuple[int, int] | None = None
    #: Further attempts after a failed exit.
    retries: int = 0
    #: Longest run time of one attempt; 0: none.
    total_ns: int = 0
    #: Between TERM and KILL.
    grace_ns: int = 0
    #: Not before this Unix time; 0: at once.
    start_at_ns: int = 0
    #: Shall have ended by this Unix time; 0: none.
    deadline_ns: int = 0
    #: Least run time before it yields to somebody who deserves it; 0: the queue's protection alone.
    slice_ns: int = 0
    #: Not before these jobs have ended as they say.
    after: tuple[Dependency, ...] = ()
    #: Elements of an array that may be offered, placed and running at once; 0: all.
    array_limit: int = 0
    #: Idempotency key of the submit and the digest of what was sent under it.
    key: str = ""
    digest: str = ""


class JobRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A submit was refused; the job never entered."""

    command: str
    code: str
    message: str
    field: str = ""  # the job file's field, as a path
    user: str = ""


class JobQueued(EventBase, tag=True, frozen=True, kw_only=True):
    """What a scheduled job waited for has come: its start time, or the end of other jobs."""

    job: str


class JobMoved(EventBase, tag=True, frozen=True, kw_only=True):
    """A waiting job is in another queue now."""

    job: str
    queue: str
    by: str = ""


class JobsAged(EventBase, tag=True, frozen=True, kw_only=True):
    """These waiting jobs have waited so long that their priority rises by one."""

    jobs: tuple[str, ...]


class JobDeferred(EventBase, tag=True, frozen=True, kw_only=True):
    """The queue does not offer a job now, nor others of its queue that ask for the same. Said once per reason."""

    job: str
    attempt: int
    reason: DeferReason
    #: Of a limit: the queue whose limit it is, and what of.
    queue: str = ""
    resource: str = ""
    #: held + needed would be more than ceiling.
    held: int = 0
    needed: int = 0
    ceiling: int = 0
    #: Of "claimed": the job that it is kept for.
    holder: str = ""


class DeadlineMissed(EventBase, tag=True, frozen=True, kw_only=True):
    """The job can no longer end by its deadline (waiting), or has not (running). It goes on without one."""

    job: str
    deadline_ns: int


class ReservationRequested(EventBase, tag=True, frozen=True, kw_only=True):
    """The first job in the order has waited for so long that what it needs shall be kept for it as it comes free."""

    job: str
    attempt: int
    waited_ns: int
    #: Of a job that is not offered yet: the queue under whose limit it claims ("": what the whole pool has). Of an offer:
    #: nothing, it needs a place.
    queue: str = ""


class Victim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run that may be asked to yield."""

    job: str
    attempt: int
    rule: YieldRule
    #: GPU-seconds that it would lose: since its last checkpoint, or since it started.
    gpu_s: int = 0


class PreemptionRequested(EventBase, tag=True, frozen=True, kw_only=True):
    """These may yield to a starving job, in this order; the placer asks the cheapest of them that make room."""

    job: str
    attempt: int
    victims: tuple[Victim, ...]
    #: What must come free under `queue` ("": in the whole pool) before the job may be offered; nothing: it lacks a place
    #: only.
    queue: str = ""
    amounts: dict[str, int] = {}


class BudgetReached(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue has used so much of its budget of this period; less than was said before where a new period has begun or the
    budget was raised."""

    queue: str
    percent: int  # 0, 80 or 100
    #: milli-GPU-seconds, weighted by model.
    spent: int
    budget: int
    period_ns: int  # Unix time at which the period began


class JobOffered(EventBase, tag=True, frozen=True, kw_only=True):
    """The queue offers an attempt for placement, or gives an open offer another rank. An array's element comes
    into being here."""

    job: str
    attempt: int
    #: Offers are taken in rising rank.
    rank: int


class JobRecalled(EventBase, tag=True, frozen=True, kw_only=True):
    """The queue asks for an open offer back; the placer answers OfferReturned unless it has placed it."""

    job: str
    attempt: int
    reason: RecallReason
    #: Who asked for the hold; "" for quota.
    by: str = ""


class JobHeld(EventBase, tag=True, frozen=True, kw_only=True):
    """The job waits until it is released."""

    job: str
    by: str = ""


class JobReleased(EventBase, tag=True, frozen=True, kw_only=True):
    """A held job may be offered again."""

    job: str
    by: str = ""


class JobStopRequested(EventBase, tag=True, frozen=True, kw_only=True):
    """An offered, placed or running attempt shall end; the placer returns the offer or ends the run."""

    job: str
    attempt: int
    reason: StopReason
    by: str = ""


class JobRequeued(EventBase, tag=True, frozen=True, kw_only=True):
    """The job goes back to the queue for another attempt."""

    job: str
    attempt: int  # the new one
    reason: RequeueReason
    not_before_ns: int = 0  # not offered before this Unix time; 0: at once


class JobSucceeded(EventBase, tag=True, frozen=True, kw_only=True):
    """End state: the last attempt exited with 0 (an array: every element did)."""

    job: str
    attempt: int = 0


class JobFailed(EventBase, tag=True, frozen=True, kw_only=True):
    """End state: no further attempt will be made."""

    job: str
    reason: FailReason
    attempt: int = 0
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""


class JobCancelled(EventBase, tag=True, frozen=True, kw_only=True):
    """End state: cancelled by a person."""

    job: str
    by: str = ""
    attempt: int = 0


class JobsRetired(EventBase, tag=True, frozen=True, kw_only=True):
    """Finished jobs leave folded state; the warehouse and the archive keep them."""

    jobs: tuple[str, ...]  # their ids, oldest first


class CommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the queue was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""


class CommandRepeated(EventBase, tag=True, frozen=True, kw_only=True):
    """A submit repeated an earlier one under the same idempotency key; it stands for that job."""

    command: str
    job: str


# --------------------------------------------------------------------------- written by placer


class NodeJoined(EventBase, tag=True, frozen=True, kw_only=True):
    """A node, under a new journal (incarnation), is part of the cluster. Its report numbers start at 1."""

    node: str
    #: Names the agent's journal; another one means that the old one is gone.
    incarnation: str
    boot_id: str
    inventory: Inventory


class NodeChanged(EventBase, tag=True, frozen=True, kw_only=True):
    """A known node reported another inventory or another boot."""

    node: str
    boot_id: str
    inventory: Inventory


class NodeLost(EventBase, tag=True, frozen=True, kw_only=True):
    """No word from the node for its whole lease; its work counts as fenced."""

    node: str
    #: How long it had been silent.
    silent_ns: int


class NodeReturned(EventBase, tag=True, frozen=True, kw_only=True):
    """A lost node was heard from again. What it held stays held until its agent reports it clean."""

    node: str


class NodeCordoned(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no new work."""

    node: str
    by: str = ""
    reason: str = ""
    setter: Setter = "person"


class NodeUncordoned(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets work again (ends a drain, too), as far as nothing else keeps it from work."""

    node: str
    by: str = ""
    setter: Setter = "person"


class NodeDraining(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no new work; at the deadline (0: never) its runs are stopped and requeued."""

    node: str
    by: str = ""
    reason: str = ""
    deadline_ns: int = 0  # Unix time
    setter: Setter = "person"


class NodeDrained(EventBase, tag=True, frozen=True, kw_only=True):
    """A draining node holds nothing any more."""

    node: str


class NodeTainted(EventBase, tag=True, frozen=True, kw_only=True):
    """The node repels work that does not tolerate this. With the effect NoExecute, what runs there and does not
    tolerate it is stopped and requeued. It takes the place of the setter's own taint of that key and effect."""

    node: str
    taint: str
    setter: Setter = "person"
    by: str = ""
    reason: str = ""


class NodeUntainted(EventBase, tag=True, frozen=True, kw_only=True):
    """The taint of that setter is gone."""

    node: str
    taint: str
    setter: Setter = "person"  # who had set it
    by: str = ""


class NodeSuspected(EventBase, tag=True, frozen=True, kw_only=True):
    """Different jobs failed fast on the node, and none has done well since: it gets one run at a time until one does."""

    node: str
    jobs: tuple[str, ...]  # those that failed


class NodeCleared(EventBase, tag=True, frozen=True, kw_only=True):
    """A run did well on a suspected node: it is suspected no more."""

    node: str


class NodeQuarantined(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no work until a person releases it; what runs there goes on."""

    node: str
    setter: Setter = "person"
    by: str = ""
    reason: str = ""
    jobs: tuple[str, ...] = ()  # those that failed fast there


class NodeReleased(EventBase, tag=True, frozen=True, kw_only=True):
    """Quarantine and suspicion are over, and what jobs failed there is forgotten."""

    node: str
    by: str = ""


class GpuFaulted(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU is neither free nor usable until it is restored."""

    node: str
    gpu: str
    code: str  # as the agent named it: "xid79"
    reason: str = ""  # what the agent saw
    stop: bool = False  # the run that holds it is stopped and requeued


class GpuRestored(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU may be used again: its node says that it is well, or a person does."""

    node: str
    gpu: str
    by: str = ""


class MigLayoutPlanned(EventBase, tag=True, frozen=True, kw_only=True):
    """A GPU, or what nobody uses of one, is to be cut anew for jobs that wait. Until MigLayoutChanged, MigLayoutFailed or
    MigLayoutDropped nobody gets what goes or what is made."""

    node: str
    gpu: str
    jobs: tuple[str, ...] = ()  # for whom; one that is to get several instances is named so often
    mode: MigMode = ""
    destroy: tuple[MigInstance, ...] = ()  # instances that nobody holds; all go before the first is made
    create: tuple[MigPlace, ...] = ()  # instances that are made
    #: Why this GPU and this layout, in numbers: thousandths of a request, of a slice.
    score: dict[str, int] = {}


class MigLayoutChanged(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU is cut as planned: its agent has reported these instances. From here on they are given out."""

    node: str
    gpu: str
    plan: int
    instances: tuple[MigInstance, ...] = ()  # all that are on it; none where MIG mode is off again


class MigLayoutFailed(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU was not cut as planned; the node's inventory says how it is now. It is left as it is for a while."""

    node: str
    gpu: str
    plan: int
    reason: str  # as the agent says it


class MigLayoutDropped(EventBase, tag=True, frozen=True, kw_only=True):
    """The plan is given up before its agent has answered."""

    node: str
    gpu: str
    plan: int
    reason: MigDropReason


class BreakerTripped(EventBase, tag=True, frozen=True, kw_only=True):
    """Nothing more is done to nodes by itself until a person resets it: no quarantine, no taint for ill health, no
    step of a rollout or window; and where nodes were lost (kind loss), what ran on them is not ended either."""

    kind: BreakerKind  # too many nodes taken out of work, or too many that fell silent
    found: int  # nodes hit within the time that is looked at, the one included that was too many
    allowed: int  # so many would have been no matter
    of: int  # nodes in all


class BreakerReset(EventBase, tag=True, frozen=True, kw_only=True):
    """Nodes are acted upon again."""

    by: str = ""


class MaintenanceScheduled(EventBase, tag=True, frozen=True, kw_only=True):
    """These nodes will take no work between the two times. From `notice_ns` before the start they get nothing new; at
    the start what still runs there is stopped and requeued."""

    name: str
    nodes: tuple[str, ...]
    starts_ns: int
    ends_ns: int
    notice_ns: int = 0  # how long before the start they get no new work
    by: str = ""
    reason: str = ""


class MaintenanceStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """The window's notice has come; its nodes drain, but those that another has in hand."""

    name: str


class MaintenanceEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """The window is over, or was cancelled; the nodes that it drained take work again."""

    name: str
    by: str = ""
    cancelled: bool = False  # before its time


class RolloutStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """These nodes will be drained and returned, as many at a time as the budget allows."""

    name: str
    nodes: tuple[str, ...]
    budget_gpus: int
    nodes_max: int = 0  # most nodes that may be in hand at once; 0: the budget alone decides
    #: Labels ("key=value") that a node has once it is done; none: another boot or journal says so, or a person.
    want: tuple[str, ...] = ()
    #: How long a run may go on once its node's turn has come; one without a limit, or with a later one, is long. Nodes
    #: with long runs have their turn last. 0: every run is.
    deadline_ns: int = 0
    stop_long: bool = False  # long runs are stopped at the deadline; else they are left to finish
    by: str = ""
    reason: str = ""


class RolloutAdvanced(EventBase, tag=True, frozen=True, kw_only=True):
    """One node of a rollout has gone a step further."""

    name: str
    node: str
    step: RolloutStep  # what became of it


class RolloutPaused(EventBase, tag=True, frozen=True, kw_only=True):
    """No further node of it is drained; those in hand are returned when they are done."""

    name: str
    by: str = ""
    reason: str = ""


class RolloutResumed(EventBase, tag=True, frozen=True, kw_only=True):
    """The rollout goes on."""

    name: str
    by: str = ""


class RolloutEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """Every node had its turn, or it was cancelled: nodes still in hand take work again."""

    name: str
    by: str = ""
    cancelled: bool = False  # before every node had its turn


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node's part of a placement; the rank is its position in `JobPlaced.parts`."""

    node: str
    gpus: tuple[str, ...] = ()  # UUIDs
    cpu_milli: int = 0
    memory_mib: int = 0
    #: Of each of the GPUs: thousandths, and what it may use of the memory; 0: all of it.
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    #: UUID of the MIG instance on each of the GPUs; () where they are not cut.
    instances: tuple[str, ...] = ()
    #: CPUs that it is pinned to, as Linux lists them: "0-7,40-47"; "": not pinned.
    cpus: str = ""
    #: The nearest network device of each of the GPUs; () where none is known.
    nics: tuple[str, ...] = ()
    #: Tasks that share the part.
    tasks: int = 1


class JobPlaced(EventBase, tag=True, frozen=True, kw_only=True):
    """An attempt got its resources, on all its nodes at once. This authorises one run."""

    job: str
    attempt: int
    #: What each node gives, in the order of the ranks.
    parts: tuple[Part, ...]
    #: Rendezvous of a gang, on the node of rank 0.
    master_address: str = ""
    master_port: int = 0  # 0 for a run on one node
    #: The parts of the score that chose these nodes, in whole points.
    score: dict[str, int] = {}
    #: The job that a node of these is kept for: this one ends before that one starts, or takes what it does not need.
    guest_of: str = ""

    @property
    def units(self) -> int:
        """How many of the units that it asks for it got: fewer than all only where it said how few will do."""
        return sum(part.tasks for part in self.parts)


#: What a time is reckoned by: limits of jobs, or, where some have none, what such runs took before ("": it is not known).
Basis = Literal["limits", "evidence", ""]


class NearMiss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node that would take a unit once one job there has ended."""

    node: str
    job: str
    #: When that is at the latest (limits) or most likely (evidence); Unix ns, 0: not known.
    at_ns: int = 0
    basis: Basis = ""  # what that is reckoned by
    #: What comes free on the node.
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0


class JobUnplaceable(EventBase, tag=True, frozen=True, kw_only=True):
    """An open offer fits nowhere now. It stays open; its whole equivalence class waits for a change."""

    job: str
    attempt: int
    #: Nodes by what kept each from taking part: {"free_gpus": 38, "cordoned": 1}.
    reasons: dict[str, int]
    nodes: int  # how many the request's pool has; no other pool's count in anything here
    #: Nodes that could take a part, where a gang wants more of them.
    fitting: int = 0
    gpu_milli_free: int = 0  # on the pool's nodes that take this work
    gpu_milli_total: int = 0  # of the pool, busy or not
    level: str = ""  # of topology.py, where all units must lie in one domain of it
    best: int = 0  # the most units that one domain of the level takes now
    #: Nodes that lack one job's end only, the soonest first; at most three, of those that were looked at.
    near: tuple[NearMiss, ...] = ()
    #: Maintenance windows that keep it from nodes with room ("maintenance"), the soonest first; at most three.
    windows: tuple[str, ...] = ()


class PreemptionStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """A run is asked to yield: notice, grace, then its end."""

    job: str  # who yields
    attempt: int
    beneficiary: str  # who it is for
    rule: YieldRule


class PreemptionDeclined(EventBase, tag=True, frozen=True, kw_only=True):
    """Nobody is asked to yield: all of those named would not make room for the job, or not free its amounts; or what
    they free already, because they are stopping, has the amounts."""

    job: str  # who asked
    attempt: int
    #: Nodes, by what would still keep each from taking part; none where amounts were asked for.
    reasons: dict[str, int] = {}


class ReservationMade(EventBase, tag=True, frozen=True, kw_only=True):
    """These nodes take no other work until the job has its place, here or elsewhere (JobPlaced ends it), or until
    ReservationEnded; only guests, who do not delay its start (JobPlaced.guest_of). Said again, it names the nodes that
    are kept from there on, and when the job starts there."""

    job: str
    attempt: int
    nodes: tuple[str, ...]
    #: When the nodes will have room for it, as far as is known now; Unix ns, 0: not known.
    start_ns: int = 0
    basis: Basis = ""  # what that is reckoned by
    #: Jobs whose ends it waits for, the last to end first; the first few.
    waits_for: tuple[str, ...] = ()


class ReservationEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """The nodes that were kept for a job take any work again, and it has no place; or there are none to be kept."""

    job: str
    attempt: int


class OfferReturned(EventBase, tag=True, frozen=True, kw_only=True):
    """A recalled or stopped offer is closed without having been placed."""

    job: str
    attempt: int


class RankStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """One rank of a gang runs (a run on one node has RunStarted alone)."""

    job: str
    attempt: int
    rank: int


class RunStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """Every rank of the attempt runs."""

    job: str
    attempt: int


class RankEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """One rank of a gang has ended while others have not (the last one's end is RunEnded)."""

    job: str
    attempt: int
    rank: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    released: bool = False


class RunEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """Every rank of the attempt has ended. The numbers are those of the rank that decided the outcome."""

    job: str
    attempt: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    rank: int = 0
    message: str = ""
    #: True when a drain asked for the stop.
    drained: bool = False
    #: True when a preemption asked for the stop.
    preempted: bool = False
    #: Nodes whose part came back on evidence with this event.
    released: tuple[str, ...] = ()
    #: Of a failure: the nodes on which the job has failed in the same way by now, where they are more than one.
    alike: tuple[str, ...] = ()


class AllocationReleased(EventBase, tag=True, frozen=True, kw_only=True):
    """A node's part of an ended (or ending) run is free again, on evidence that its devices are clean."""

    job: str
    attempt: int
    node: str


class ReportRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """Something on a node's report subject was not a report of that node."""

    node: str
    code: str
    message: str
    digest: str


class NodeCommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the placer was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""


QueueEvent = (
    QueuesApplied | PoolConfigured | PoolRemoved | QueueConfigured | QueueRemoved | BudgetReached
    | JobSubmitted | JobRejected | JobQueued | JobMoved | JobsAged | JobDeferred | DeadlineMissed | JobOffered
    | JobRecalled | JobHeld | JobReleased | ReservationRequested | PreemptionRequested
    | JobStopRequested | JobRequeued | JobSucceeded | JobFailed | JobCancelled | JobsRetired | CommandRejected
    | CommandRepeated
)  # fmt: skip
PlacerEvent = (
    NodeJoined | NodeChanged | NodeLost | NodeReturned | NodeCordoned | NodeUncordoned | NodeDraining | NodeDrained
    | NodeTainted | NodeUntainted | NodeSuspected | NodeCleared | NodeQuarantined | NodeReleased
    | GpuFaulted | GpuRestored | MigLayoutPlanned | MigLayoutChanged | MigLayoutFailed | MigLayoutDropped
    | BreakerTripped | BreakerReset
    | MaintenanceScheduled | MaintenanceStarted | MaintenanceEnded
    | RolloutStarted | RolloutAdvanced | RolloutPaused | RolloutResumed | RolloutEnded
    | JobPlaced | JobUnplaceable | OfferReturned | ReservationMade | ReservationEnded | PreemptionStarted
    | PreemptionDeclined | RankStarted | RunStarted | RankEnded | RunEnded
    | AllocationReleased | ReportRejected | NodeCommandRejected
)  # fmt: skip
Event = QueueEvent | PlacerEvent

#: Which writer emits which types; a commit holding another's type is out of contract.
EVENTS_OF: dict[str, tuple[type[EventBase], ...]] = {
    "queue": QueueEvent.__args__,
    "placer": PlacerEvent.__args__,
}
