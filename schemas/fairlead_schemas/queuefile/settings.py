"""Settings of queues and pools, in integers: the meaning of a queue file.

Amounts are {resource: amount}: "gpu" (milli-GPU), "gpu:<model>" (milli-GPU of one model class, named as in the
node label nvidia.com/gpu.product), "cpu" (milli-CPU), "memory" (MiB). A resource that is not named is not
limited; a guarantee of it is nothing.
"""

from typing import Literal, get_args

import msgspec

type Amounts = dict[str, int]

#: The pool of nodes and queues that name none.
DEFAULT_POOL = "default"
#: Node label that says to which pool the node belongs.
POOL_LABEL = "fairlead/pool"
#: Node label that names the GPU model, by which model classes go.
MODEL_LABEL = "nvidia.com/gpu.product"

RESOURCES = ("gpu", "cpu", "memory")
GPU_CLASS_PREFIX = "gpu:"
WEIGHT_MAX = 1_000_000
QUEUE_PRIORITY_MAX = 1000
#: Queues and pools that one change may set or remove: all of it is one commit.
CHANGES_MAX = 400
#: The user in `users` that means every user without an entry.
ANY_USER = "*"
#: Replicas of one GPU, at most.
REPLICAS_MAX = 64
#: What a budget counts in: thousandths of a GPU, for seconds, times the price of its model.
GPU_HOUR_MILLI_S = 3_600_000

type Period = Literal["day", "week", "month", "year"]
type Reclaim = Literal["any", "lower_priority", "never"]
#: How a pool chooses among nodes that could take a job, where the job does not say it.
type Packing = Literal["fragmentation", "fgd", "most_allocated", "spread", "weights"]
PACKINGS: tuple[Packing, ...] = get_args(Packing.__value__)


class _Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Budget(_Setting, frozen=True, kw_only=True):
    """GPU time that a queue and those below it may use in each calendar period (UTC)."""

    gpu_milli_s: int  # milli-GPU-seconds, weighted by model: one GPU-hour is GPU_HOUR
    period: Period = "month"
    #: Consequence of a spent budget: nothing more is offered, or only capacity that no other job needs.
    when_spent: Literal["refuse", "demote"] = "refuse"


class Preemption(_Setting, frozen=True, kw_only=True):
    """Rules of preemption: the running jobs that may be asked to yield to a job of this queue, and the protection of
    its own.
    """

    #: From other queues: what they use over their guarantee, when this one is within its own.
    reclaim: Reclaim = "any"
    #: From other queues whose share would still not be the smaller one, whatever is guaranteed. Runs of people who
    #: did nothing wrong end by it, so it must be asked for.
    rebalance: bool = False
    #: In this queue: jobs of lower priority.
    lower_priority: bool = True
    #: A run is not asked to yield before it has lasted so long.
    protect_ns: int = 60_000_000_000


class QueueSettings(_Setting, frozen=True, kw_only=True):
    """Complete settings of one queue."""

    #: The pool; only a queue at the top names one, those below are in the same.
    pool: str = ""
    guaranteed: Amounts = {}
    maximum: Amounts = {}
    #: Beyond the guarantee, at most this much.
    borrowing: Amounts = {}
    #: Of an idle guarantee, others may use at most this much.
    lending: Amounts = {}
    weight: int = 1
    #: Queues of higher priority go first among their siblings.
    priority: int = 0
    #: {user: the most that this user may hold in this queue}; "*": everybody who is not named.
    users: dict[str, Amounts] = {}
    budget: Budget | None = None
    preemption: Preemption = Preemption()


class Ageing(_Setting, frozen=True, kw_only=True):
    """A waiting job's priority rises by one each time it has waited `every_ns`, by `most` at most."""

    every_ns: int
    most: int


class Sharing(_Setting, frozen=True, kw_only=True):
    """GPUs that their nodes slice by time, each into so many replicas (nvidia.com/gpu.shared)."""

    replicas: int
    #: A node or task gets one at most: two might lie on one GPU, and would give it no more time.
    one_each: bool = False


class PoolSettings(_Setting, frozen=True, kw_only=True):
    """Complete settings of one pool. Its nodes are those with the label `fairlead/pool: <name>`."""

    #: Who goes first: drf, fifo, lifo, fairshare, or a name of an entry point in group fairlead.sequencers.
    sequencer: str = "drf"
    #: Past use counts with half its weight after so long. 0: 7 days.
    half_life_ns: int = 0
    #: How much of a share is past use, in percent (drf: 0 by default; fairshare: all of it).
    past_percent: int = 0
    #: Users and projects that may submit to its queues; both empty: everybody.
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    ageing: Ageing | None = None
    #: A job that has waited for so long, and is first, gets what it needs kept free for it.
    patience_ns: int = 300_000_000_000
    #: What a GPU of each model class counts for in budgets, in thousandths; one that is not named: 1000.
    prices: dict[str, int] = {}
    #: None: its GPUs are not sliced by time.
    sharing: Sharing | None = None
    #: Runs that save and continue are moved where a move makes room for a big waiting job.
    defragment: bool = False
    #: Which of the nodes that could take a job gets it.
    packing: Packing = "fragmentation"


class QueueEntry(_Setting, frozen=True, kw_only=True):
    """A queue and its settings."""

    path: str
    settings: QueueSettings


class PoolEntry(_Setting, frozen=True, kw_only=True):
    """A pool and its settings."""

    pool: str
    settings: PoolSettings


class QueueRemoval(_Setting, frozen=True, kw_only=True):
    """A queue to be removed; its waiting jobs go to `move_to` ("": it must have none)."""

    path: str
    move_to: str = ""


def gpu_class(model: str) -> str:
    """The resource that counts the GPUs of one model: `gpu_class("NVIDIA-L40S") == "gpu:NVIDIA-L40S"`."""
    return GPU_CLASS_PREFIX + model


def is_resource(name: str) -> bool:
    """True for "gpu", "cpu", "memory" and "gpu:<model>"."""
    return name in RESOURCES or (name.startswith(GPU_CLASS_PREFIX) and len(name) > len(GPU_CLASS_PREFIX))
