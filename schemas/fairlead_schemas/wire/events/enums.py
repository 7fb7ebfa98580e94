"""Closed sets of words that events use."""

from typing import Literal

JobKind = Literal["batch", "session", "service"]

#: Reason why an attempt's run ended.
RunOutcome = Literal[
    "exited",  # the process ended by itself, or was ended because its application was dead; exit_code and signal say how
    "stopped",  # it was asked to stop (cancel, time limit, drain, preemption) and has ended
    "start_failed",  # the runtime could not start it; message says why
    "preflight",  # its node did not pass the check before it, and started nothing; message says why
    "node_lost",  # a node of the run was lost and has fenced itself
    "node_rebooted",  # a node of the run rebooted under it
    "exit_unknown",  # it ended while its agent was away, so its exit code is unknown
    "gpu_memory",  # it used more GPU memory than its share and was stopped for it; message says how much, of what
    "oom",  # the kernel killed a process of it because it reached its memory limit; exit_code and signal as for exited
]
#: Cause of a failed start, to the extent that its agent can tell.
StartFault = Literal[
    "",  # not known
    "job",  # the job file: an image that does not exist or is unreadable, secrets on a node without containers
    "node",  # the node: a full disk; another node could start it
]
StopReason = Literal[
    "cancelled",  # a person wants it to end
    "time_limit",  # its time is up
    "idle",  # it is idle by a policy, and its notice is over
    "reclaimed",  # its queue holds more than it may since a change that asked for it back; it waits again afterwards
    "requeued",  # a person wants another run of it; it waits again afterwards
]
WithdrawReason = Literal[
    "hold",  # a person holds the job
    "quota",  # others could use what it is charged for, and the placer has refused it
    "queue_held",  # its queue, or one above it, is held
    "order",  # others go before it now, and the placer has as many offers as it looks ahead over
]
RequeueReason = Literal[
    "retry",
    "oom",
    "gpu_memory",
    "node_lost",
    "node_rebooted",
    "gpu_fault",
    "drained",
    "preempted",
    "start_failed",
    "preflight",
    "exit_unknown",
    "idle",
    "requeued",
]
FailReason = Literal[
    "exit_code",
    "time_limit",
    "start_failed",
    "infrastructure",
    "element_failed",
    "dependency",
    "gpu_memory",
    "oom",
    "idle",
]

#: Why the queue does not offer a job now.
DeferReason = Literal[
    "maximum",  # a queue above it (or its own) would hold more than its maximum
    "user_limit",  # its user would hold more than the queue grants one user
    "reserved",  # the rest of the capacity is kept for the guarantee of a queue that does not lend it
    "claimed",  # what is free is kept for a job that has waited longer
    "budget",  # a budget above it is spent
    "queue_held",  # its queue, or one above it, is held
    "array_limit",  # as many elements of the array run as may at once
    "turn",  # others go first, and the placer has as many offers as it looks ahead over
]
#: By which rule a run may be asked to yield.
YieldRule = Literal[
    "lower_priority",  # of the same queue, of lower priority
    "over_slice",  # it has had its slice, and another job goes before it
    "over_guarantee",  # its queue uses what another queue is guaranteed
    "over_share",  # its queue is above its fair share, the other below
    "idle",  # it is idle, and its policy gives what it holds to a waiting job
    "defragmentation",  # it fits elsewhere, the other nowhere else (where the pool asks for it)
]
#: Class that set a node's state. People may undo every state; no class undoes the state that another class
#: has set.
Setter = Literal[
    "person",  # a command
    "maintenance",  # a maintenance window
    "rollout",  # a rolling upgrade
    "health",  # a report of a device's health, or how runs ended on the node
    "silence",  # the node's agent has missed some beats
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
#: Change of a GPU's MIG mode in addition to repartitioning it.
MigMode = Literal[
    "",  # nothing: it is on, and stays so
    "on",  # turned on before the first instance is made
    "off",  # turned off after the last instance is gone
]
#: Reason why a plan to repartition a GPU was dropped before its agent answered.
MigDropReason = Literal[
    "node",  # its node takes no work any more, or runs under another boot or journal
    "gpu",  # the GPU is faulted, or has left the node
    "late",  # no answer came in time
]
#: State in which the dependency of a job is met.
DependencyState = Literal["succeeded", "failed", "ended"]

#: What a time is reckoned by: limits of jobs, or, where some have none, what such runs took before ("": it is not known).
Basis = Literal["limits", "evidence", ""]
