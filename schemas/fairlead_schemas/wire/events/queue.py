"""Events of the queue service: queues and pools, and jobs from submit to their end."""

import msgspec

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.wire.events.base import EventBase
from fairlead_schemas.wire.events.enums import (
    DeferReason,
    DependencyState,
    FailReason,
    JobKind,
    RequeueReason,
    StopReason,
    WithdrawReason,
    YieldRule,
)
from fairlead_schemas.wire.resources import Request


class QueuesApplied(EventBase, tag=True, frozen=True, kw_only=True):
    """A change of queues and pools was accepted as a whole; events of the same commit hold the changes."""

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
    """A queue is gone, and with it all roles granted at it; the jobs that waited in it, if any, wait in another from here on."""

    path: str
    move_to: str = ""
    by: str = ""


class QueueHeld(EventBase, tag=True, frozen=True, kw_only=True):
    """Nothing new of a queue, and of those below it, is offered until it is released; what runs goes on."""

    path: str
    reason: str = ""
    by: str = ""


class QueueDrained(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue, with those below it, accepts no further jobs until it is released; those that it has go on."""

    path: str
    reason: str = ""
    by: str = ""


class QueueReleased(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue is neither held nor drained any more; one above it may still be."""

    path: str
    by: str = ""


class PriceSet(EventBase, tag=True, frozen=True, kw_only=True):
    """An hour of one whole GPU of a model costs this from a moment on, until the moment of the model's next price."""

    #: "*": every model without a price of its own.
    model: str
    micro: int  # millionths of the currency
    currency: str  # three capitals, such as EUR
    from_ns: int  # Unix ns, whole microseconds
    by: str = ""


class Dependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job waits until another has reached a state."""

    job: str
    state: DependencyState = "succeeded"


class JobSubmitted(EventBase, tag=True, frozen=True, kw_only=True):
    """A job was accepted. The event holds the spec once, undecoded; `request` is the job's resource request."""

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
    #: Least run time before it yields to a job with a better claim; 0: only the queue's protection applies.
    slice_ns: int = 0
    #: Not before these jobs have ended as they say.
    after: tuple[Dependency, ...] = ()
    #: Elements of an array that may be offered, placed and running at once; 0: all.
    array_limit: int = 0
    #: When its node falls silent.
    on_partition: OnPartition = AS_THE_CLUSTER
    #: How it saves its work; None: it says nothing of it.
    checkpoint: Checkpoint | None = None
    #: What one rank's end means for the others (policies/launchers.py).
    gang: GangRule = ""
    #: It waits until a person releases it.
    held: bool = False
    #: Idempotency key of the submit and the digest of what was sent under it.
    key: str = ""
    digest: str = ""
    #: The service whose replica it is, and the revision of that; "": of none.
    service: str = ""
    revision: int = 0


class JobRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A submit was refused; the job never entered."""

    command: str
    code: str
    message: str
    field: str = ""  # the job file's field, as a path
    user: str = ""
    #: As the submit had it, so that a replay of the log under another policy can count refused demand; "": an older log.
    queue: str = ""
    #: As the submit had it; None: an older log.
    request: Request | None = None
    #: As the submit had it: its limit of run time; 0: none.
    total_ns: int = 0
    #: As the submit had it: first and last index.
    array: tuple[int, int] | None = None
    #: As the submit had it.
    project: str = ""


class JobQueued(EventBase, tag=True, frozen=True, kw_only=True):
    """The wait of a scheduled job is over: its start time has come, or other jobs have ended."""

    job: str


class JobMoved(EventBase, tag=True, frozen=True, kw_only=True):
    """A waiting job is in another queue now."""

    job: str
    queue: str
    by: str = ""


class JobUpdated(EventBase, tag=True, frozen=True, kw_only=True):
    """A person changed a job, or an array with all its elements. A field that is None is as it was."""

    job: str
    name: str | None = None
    #: As if it had been submitted with it; what it has gained by waiting is kept.
    priority: int | None = None
    #: Longest run time over all slices; 0: no limit.
    total_ns: int | None = None
    #: All labels of the job file.
    labels: dict[str, str] | None = None
    #: The limit was raised, or removed, while it had a place or an offer, so that others may wait longer than they were promised.
    extends: bool = False
    by: str = ""


class PriorityAged(EventBase, tag=True, frozen=True, kw_only=True):
    """The priority of the waiting jobs rises by one because of their long wait."""

    jobs: tuple[str, ...]


class JobDeferred(EventBase, tag=True, frozen=True, kw_only=True):
    """The queue does not offer a job now, and no other jobs of its queue with the same request. Emitted once per
    reason.
    """

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
    """The job can no longer end by its deadline (waiting), or has not (running). It continues without a deadline."""

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
    """The listed runs may yield to a starving job, in this order; the placer asks the cheapest of them that make room."""

    job: str
    attempt: int
    victims: tuple[Victim, ...]
    #: What must come free under `queue` ("": in the whole pool) before the job may be offered; nothing: it lacks a place
    #: only.
    queue: str = ""
    amounts: dict[str, int] = {}


class BudgetReached(EventBase, tag=True, frozen=True, kw_only=True):
    """A queue has used a given percentage of its budget of this period.

    The percentage is lower than the one recorded before if a new period has begun or the budget was raised.
    """

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


class OfferWithdrawn(EventBase, tag=True, frozen=True, kw_only=True):
    """The queue asks for an open offer back; the placer answers OfferReturned unless it has placed it."""

    job: str
    attempt: int
    reason: WithdrawReason
    #: Who asked for the hold of the job; "" for other reasons.
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
    #: Of one that was cancelled: it is to have its notice first. The others have it anyhow.
    save: bool = False
    #: Of a time limit: its agents begin the stop once it has run for so long by their own clocks.
    ran_ns: int = 0


class JobSignalRequested(EventBase, tag=True, frozen=True, kw_only=True):
    """A person's signal goes to the programs of a running attempt: to each rank at most once, and to none that is not running by
    then. The job stays as it is.
    """

    job: str
    attempt: int
    #: One of checkpoints.SENT_SIGNALS.
    signal: str
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
    #: Type of the command: "CancelJob"; "" for one that could not be read.
    verb: str = ""
    #: The job that it names; "" where it names none.
    about: str = ""


class CommandRepeated(EventBase, tag=True, frozen=True, kw_only=True):
    """A submit repeated an earlier one under the same idempotency key; it refers to the earlier job."""

    command: str
    job: str
