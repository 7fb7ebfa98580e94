"""The life of a job: every legal move, in one table. docs/reference/lifecycle.md is generated from it.

The queue's core moves jobs by it and the gateway's views follow by it. A move that is not listed
here cannot happen on a valid log.
"""

from typing import NamedTuple

STATES: dict[str, str] = {
    "scheduled": "accepted; waits for its start time or for other jobs",
    "queued": "waits for its turn in the queue",
    "held": "waits until a person releases it",
    "offered": "its turn has come; waits for a place",
    "placed": "has its nodes and GPUs; starts",
    "running": "every rank runs",
    "stopping": "was asked to end and has not yet",
    "succeeded": "ended with exit code 0",
    "failed": "ended otherwise, and will not be tried again",
    "cancelled": "ended at a person's request",
}
END_STATES: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})
#: States in which a job counts against its queue's quota.
CHARGED_STATES: frozenset[str] = frozenset({"offered", "placed", "running", "stopping"})
#: Reasons of JobRequeued after which a job continues with the rest of its time. After any other reason it
#: restarts.
GOES_ON: frozenset[str] = frozenset({"preempted", "drained", "gpu_fault", "preflight", "idle", "requeued"})


class JobMove(NamedTuple):
    """Legal move of a job between states."""

    source: str  # "" for birth
    event: str
    target: str
    driven_by: str
    emitted_by: str
    carries: str


# fmt: off
MOVES: tuple[JobMove, ...] = (
    JobMove("", "JobSubmitted", "queued", "a person submits", "queue", "the spec and what it asks for, in integers"),
    JobMove("", "JobSubmitted", "scheduled", "a person submits with a start time or behind other jobs", "queue", "the spec and what it waits for"),
    JobMove("", "JobSubmitted", "held", "a person submits a job to be held", "queue", "the spec"),
    JobMove("", "JobOffered", "offered", "an array's element gets its turn", "queue", "attempt, rank of the offer"),
    JobMove("scheduled", "JobQueued", "queued", "the start time has come, the other jobs have ended", "queue", "–"),
    JobMove("scheduled", "JobFailed", "failed", "a job it waited for has ended otherwise", "queue", "reason dependency"),
    JobMove("scheduled", "JobMoved", "scheduled", "its queue is removed, or a person moves it", "queue", "the other queue"),
    JobMove("scheduled", "JobHeld", "held", "a person holds", "queue", "who"),
    JobMove("scheduled", "JobCancelled", "cancelled", "a person cancels", "queue", "who"),
    JobMove("queued", "JobOffered", "offered", "its turn has come and the quota allows", "queue", "attempt, rank of the offer"),
    JobMove("queued", "JobMoved", "queued", "its queue is removed, or a person moves it", "queue", "the other queue"),
    JobMove("queued", "JobHeld", "held", "a person holds", "queue", "who"),
    JobMove("queued", "JobCancelled", "cancelled", "a person cancels", "queue", "who"),
    # Array parents end when their last element does.
    JobMove("queued", "JobSucceeded", "succeeded", "an array's last element succeeded, and so did all", "queue", "–"),
    JobMove("queued", "JobFailed", "failed", "an array's last element ended, and one had failed", "queue", "reason"),
    JobMove("queued", "JobStopRequested", "stopping", "a person cancels an array with live elements", "queue", "reason, who"),
    # A delay between attempts is over; and what the queue asked of an offer that was coming back meanwhile.
    JobMove("queued", "JobQueued", "queued", "the delay before another attempt (or offer) is over", "queue", "–"),
    JobMove("queued", "OfferWithdrawn", "queued", "a hold, while the offer was coming back", "queue", "reason"),
    JobMove("held", "JobReleased", "queued", "a person releases", "queue", "who"),
    JobMove("held", "JobMoved", "held", "its queue is removed, or a person moves it", "queue", "the other queue"),
    JobMove("held", "JobStopRequested", "stopping", "a person cancels a held array with live elements", "queue", "reason, who"),
    JobMove("held", "JobCancelled", "cancelled", "a person cancels", "queue", "who"),
    JobMove("offered", "JobOffered", "offered", "its place in the order has changed", "queue", "another rank"),
    JobMove("offered", "JobPlaced", "placed", "it fits", "placer", "nodes, GPUs, CPUs, memory, rendezvous, score"),
    JobMove("offered", "JobUnplaceable", "offered", "it fits nowhere now", "placer", "reasons counted over nodes"),
    JobMove("offered", "OfferWithdrawn", "offered", "a hold, or quota that others could use", "queue", "reason"),
    JobMove("offered", "OfferReturned", "queued", "the queue withdrew it", "placer", "–"),
    JobMove("offered", "JobStopRequested", "stopping", "a person cancels", "queue", "reason, who"),
    JobMove("placed", "RankStarted", "placed", "one rank of a gang runs", "placer", "rank"),
    JobMove("placed", "JobOffered", "placed", "too late: it was placed meanwhile", "queue", "another rank"),
    JobMove("placed", "OfferWithdrawn", "placed", "too late: it was placed meanwhile", "queue", "reason"),
    JobMove("placed", "RunStarted", "running", "every rank runs", "placer", "–"),
    JobMove("placed", "RankEnded", "placed", "one rank of a gang has ended", "placer", "outcome, exit code, signal"),
    JobMove("placed", "RunEnded", "placed", "it ended before every rank ran", "placer", "outcome, exit code, signal"),
    JobMove("placed", "JobStopRequested", "stopping", "a person cancels or requeues, its time is up, it is idle, or its queue holds too much", "queue", "reason, who"),
    JobMove("placed", "JobSucceeded", "succeeded", "the run ended with 0", "queue", "–"),
    JobMove("placed", "JobFailed", "failed", "the run ended otherwise, no retry left", "queue", "exit code, signal, reason"),
    JobMove("placed", "JobRequeued", "queued", "the run ended, and a retry is left", "queue", "new attempt, reason, not before"),
    JobMove("running", "RankEnded", "running", "one rank of a gang has ended", "placer", "outcome, exit code, signal"),
    JobMove("running", "JobOffered", "running", "too late: it was placed meanwhile", "queue", "another rank"),
    JobMove("running", "OfferWithdrawn", "running", "too late: it was placed meanwhile", "queue", "reason"),
    JobMove("running", "RunEnded", "running", "every rank has ended", "placer", "outcome, exit code, signal"),
    JobMove("running", "JobStopRequested", "stopping", "a person cancels or requeues, its time is up, it is idle, or its queue holds too much", "queue", "reason, who"),
    JobMove("running", "JobSucceeded", "succeeded", "the run ended with 0", "queue", "–"),
    JobMove("running", "JobFailed", "failed", "the run ended otherwise, no retry left", "queue", "exit code, signal, reason"),
    JobMove("running", "JobRequeued", "queued", "the run ended, and a retry is left", "queue", "new attempt, reason, not before"),
    JobMove("stopping", "JobPlaced", "stopping", "it was placed before the stop was seen", "placer", "as above; the run is stopped at once"),
    JobMove("stopping", "JobUnplaceable", "stopping", "it fitted nowhere before the stop was seen", "placer", "reasons"),
    JobMove("stopping", "OfferReturned", "stopping", "the offer was still open", "placer", "–"),
    JobMove("stopping", "RankStarted", "stopping", "one rank started before the stop arrived", "placer", "rank"),
    JobMove("stopping", "RunStarted", "stopping", "every rank started before the stop arrived", "placer", "–"),
    JobMove("stopping", "RankEnded", "stopping", "one rank of a gang has ended", "placer", "outcome, exit code, signal"),
    JobMove("stopping", "RunEnded", "stopping", "every rank has ended", "placer", "outcome, exit code, signal"),
    JobMove("stopping", "JobStopRequested", "stopping", "a person cancels what was to wait again, or to end at its time limit", "queue", "reason, who"),
    JobMove("stopping", "JobRequeued", "queued", "a person requeued it, its queue has got back what it held too much, it was idle, or it was drained or yielded before its time limit", "queue", "new attempt, reason"),
    JobMove("stopping", "JobCancelled", "cancelled", "the stop a person asked for is done", "queue", "who"),
    JobMove("stopping", "JobSucceeded", "succeeded", "the run ended with 0 before the stop took effect", "queue", "–"),
    JobMove("stopping", "JobFailed", "failed", "the stop for its time limit is done, or because it was idle", "queue", "reason time_limit or idle"),
)
# fmt: on

#: {(state, event): next state}; the key of a job's first event is "". "scheduled", "held" and "queued"
#: are distinguished by what the event carries, so this table omits two entries of the birth row.
NEXT: dict[tuple[str, str], str] = {(m.source, m.event): m.target for m in reversed(MOVES)}


def next_state(state: str, event: str) -> str:
    """Return the state after a move. Raises KeyError naming both when the move is not legal."""
    try:
        return NEXT[(state, event)]
    except KeyError:
        raise KeyError(f"no move from state {state!r} by event {event!r}") from None


#: Events that move no job, and why; together with MOVES they are all events there are.
NOT_MOVING: dict[str, str] = {
    "QueuesApplied": "is about queues",
    "PoolConfigured": "is about a pool",
    "PoolRemoved": "is about a pool",
    "QueueConfigured": "is about a queue",
    "QueueRemoved": "is about a queue",
    "QueueHeld": "is about a queue",
    "QueueDrained": "is about a queue",
    "QueueReleased": "is about a queue",
    "PriceSet": "is about a GPU model",
    "BudgetReached": "is about a queue",
    "JobUpdated": "the job stays where it is; its name, labels, priority or time limit are others",
    "JobSignalRequested": "the run continues; its programs get a signal",
    "PriorityAged": "the jobs wait on, before others than till now",
    "JobDeferred": "explains why the job keeps waiting",
    "DeadlineMissed": "the job continues without a deadline",
    "ReservationRequested": "the job waits on; what it needs is to be kept for it",
    "PreemptionRequested": "the job waits on; others may be asked to yield",
    "PreemptionStarted": "the run continues through its notice and grace; the job moves with RunEnded",
    "AppReady": "the run continues; people can open its application",
    "CheckpointSaved": "the run continues; its work up to then is saved",
    "PreemptionDeclined": "no run yields",
    "ReservationMade": "is about nodes",
    "ReservationEnded": "is about nodes",
    "JobRejected": "the job never entered",
    "JobsRetired": "the jobs had ended; they leave folded state",
    "CommandRejected": "nothing was done",
    "CommandRepeated": "the job exists already",
    "NodeJoined": "is about a node",
    "NodeChanged": "is about a node",
    "NodeLost": "is about a node; what ran there ends by RunEnded",
    "NodeReturned": "is about a node",
    "NodeDeclaredDead": "is about a node; what ran there ends by RunEnded",
    "NodeRemoved": "is about a node, on which nothing runs any more",
    "NodeCordoned": "is about a node",
    "NodeUncordoned": "is about a node",
    "NodeDraining": "is about a node; what runs there ends by RunEnded",
    "NodeDrained": "is about a node",
    "NodeTainted": "is about a node; what must leave it ends by RunEnded",
    "NodeUntainted": "is about a node",
    "NodeSuspected": "is about a node",
    "NodeCleared": "is about a node",
    "NodeQuarantined": "is about a node",
    "NodeUnquarantined": "is about a node",
    "GpuFaulted": "is about a device; a run that is stopped for it ends by RunEnded",
    "GpuRestored": "is about a device",
    "NodeUnhealthy": "is about a node",
    "NodeRecovered": "is about a node",
    "MigLayoutPlanned": "is about a device; the jobs that it is for wait on",
    "MigLayoutChanged": "is about a device; who gets its instances is placed by JobPlaced",
    "MigLayoutFailed": "is about a device",
    "MigLayoutDropped": "is about a device",
    "BreakerTripped": "is about all nodes",
    "BreakerReset": "is about all nodes",
    "MaintenanceScheduled": "is about nodes",
    "MaintenanceStarted": "is about nodes",
    "MaintenanceEnded": "is about nodes",
    "RolloutStarted": "is about nodes",
    "RolloutAdvanced": "is about a node",
    "RolloutPaused": "is about nodes",
    "RolloutResumed": "is about nodes",
    "RolloutEnded": "is about nodes",
    "AllocationReleased": "is about a node's devices; the job moved with the end of its run",
    "ReportRejected": "nothing was done",
    "NodeCommandRejected": "nothing was done",
    "IdlePoliciesSet": "is about a scope",
    "JobIdle": "the run continues; its owner is notified",
    "JobActive": "the run continues",
    "JobExtended": "the run continues",
    "LeaseShrunk": "the run continues until then",
    "ReclaimSimulated": "nothing was done: a dry run",
    "ReclaimRequested": "the queue stops the run, or names it to who waits",
    "TelemetryCommandRejected": "nothing was done",
    "QueueClockStepped": "is about a clock; no job is decided by it",
    "PlacerClockStepped": "is about a clock; no job is decided by it",
    "TelemetryClockStepped": "is about a clock; no job is decided by it",
    "PrincipalAdmitted": "is about a principal",
    "PrincipalSuspended": "is about a principal; its jobs continue",
    "RoleGranted": "is about a role",
    "RoleRevoked": "is about a role; what was submitted under it continues",
    "ServiceApplied": "is about a service; its replicas are submitted by JobSubmitted",
    "ServiceScaled": "is about a service; replicas come by JobSubmitted and go by JobStopRequested",
    "ServiceLoad": "is about a service and an app proxy",
    "ServiceBlocked": "is about a service, of which no replica was submitted",
    "ServiceStopped": "is about a service; its replicas end by JobStopRequested",
    "ReplicaRetired": "the run continues without new requests, until JobStopRequested",
    "ServiceKeyIssued": "is about a key",
    "ServiceKeyRevoked": "is about a key",
    "RolesApplied": "is about the roles that a file states",
    "GroupSynced": "is about a group",
    "TokenIssued": "is about a token",
    "TokenRevoked": "is about a token",
    "SessionOpened": "is about a sign-in",
    "SessionEnded": "is about a sign-in",
    "LevelRaised": "is about the log itself",
    "AccessCommandRejected": "nothing was done",
    "AccessClockStepped": "is about a clock; no job is decided by it",
    "StorageClassSet": "is about a class of storage",
    "StorageClassRemoved": "is about a class of storage",
    "VolumeCreated": "is about a volume",
    "VolumeResized": "is about a volume; what runs with it continues",
    "VolumeDeleted": "is about a volume; what runs with it continues",
    "DatasetAdded": "is about a dataset",
    "DatasetRetired": "is about a dataset; what runs with it continues",
    "StorageCommandRejected": "nothing was done",
    "StorageClockStepped": "is about a clock; no job is decided by it",
}
