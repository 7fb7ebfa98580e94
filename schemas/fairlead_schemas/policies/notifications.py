"""Kinds of notifications, and the events of the log that each of them is sent for. A person's rules name kinds."""

from typing import Literal, get_args

NotificationKind = Literal[
    "start",  # a run has started
    "end",  # a job has ended, well or not
    "failure",  # a job has failed
    "requeue",  # a job goes back to the queue for another attempt
    "preemption",  # a run yields to another job
    "idle",  # a run counts as idle, or is asked back for that
    "deadline",  # a job cannot end by its deadline
    "budget",  # a queue has used 80 or 100 percent of its budget
    "node",  # a node or a GPU is lost, unhealthy or out of work, or is well again
]
KINDS: tuple[NotificationKind, ...] = get_args(NotificationKind)

#: {type of event: the kinds that it belongs to}
EVENT_KINDS: dict[str, tuple[NotificationKind, ...]] = {
    "RunStarted": ("start",),
    "JobSucceeded": ("end",),
    "JobFailed": ("end", "failure"),
    "JobCancelled": ("end",),
    "JobRequeued": ("requeue",),
    "PreemptionStarted": ("preemption",),
    "JobIdle": ("idle",),
    "LeaseShrunk": ("idle",),
    "ReclaimRequested": ("idle",),
    "DeadlineMissed": ("deadline",),
    "BudgetReached": ("budget",),
    "NodeLost": ("node",),
    "NodeReturned": ("node",),
    "NodeUnhealthy": ("node",),
    "NodeRecovered": ("node",),
    "NodeSuspected": ("node",),
    "NodeCleared": ("node",),
    "NodeQuarantined": ("node",),
    "NodeUnquarantined": ("node",),
    "GpuFaulted": ("node",),
    "GpuRestored": ("node",),
    "BreakerTripped": ("node",),
}

#: Kinds that an array's elements are left out of, unless a rule asks for them: an array of 10,000 is one job for its owner.
KINDS_OF_WHOLE_ARRAYS: frozenset[NotificationKind] = frozenset({"start", "end", "failure", "requeue", "deadline"})

#: Scope of a rule about the owner's own jobs, and about every queue and node that the owner may see.
MINE = "mine"
