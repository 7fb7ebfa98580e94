"""Meter that turns events into stays: the charge of each attempt on each of its nodes, from start to end. Pure, integers
only.

The placer's clock alone measures, for its commits record when a device is held and when it is free: the time of an event
is the highest `at_ns` of the placer's commits so far. So a clock that steps back pauses until it has caught up with
itself. No stay is negative, and no moment counts twice. A clock that steps forward counts the skipped time.

A stay is *charged* from the placement until the end of its run (as budgets of queues count it:
`fairlead_queue.fairness.budgets`), at the amount that the job requested. It is *held* until its devices came back on evidence, at
the amount that the node gave. Between the two, no other run can use the devices, and no user is billed for that time: a
lost node may come back at any time.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlead_schemas.queuefile.settings import DEFAULT_POOL, MODEL_LABEL
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory, Request

#: What a GPU of a model that its pool names no price for counts in budgets, in thousandths.
PRICE = 1000

type Metered = (
    ev.PoolConfigured
    | ev.PoolRemoved
    | ev.QueueConfigured
    | ev.QueueRemoved
    | ev.PriceSet
    | ev.JobSubmitted
    | ev.JobMoved
    | ev.JobSucceeded
    | ev.JobFailed
    | ev.JobCancelled
    | ev.NodeJoined
    | ev.NodeChanged
    | ev.JobPlaced
    | ev.RankEnded
    | ev.RunEnded
    | ev.AllocationReleased
)
#: The events that a meter takes; it passes over all others.
METERED: Final[tuple[type[ev.EventBase], ...]] = Metered.__value__.__args__


class Stay(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Node's part of one attempt. Times are Unix ns of the placer's clock."""

    job: str
    attempt: int
    rank: int
    node: str
    model: str  # the node's label nvidia.com/gpu.product; where it has none, what its GPUs say
    user: str
    project: str
    queue: str  # in which it got its place
    pool: str
    #: milli-GPU that the job is charged for, and what the node gave.
    charged_milli: int
    held_milli: int
    #: Weight of a GPU of the model in budgets, in thousandths, as stated by its pool at placement.
    weight: int
    begin_ns: int
    end_ns: int | None = None  # end of the run; None: it still runs
    back_ns: int | None = None  # when the devices were free again; None: they are not

    @property
    def is_over(self) -> bool:
        """True when nothing about it can change any more."""
        return self.end_ns is not None and self.back_ns is not None


class MeteredJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Data kept of a job, or of an array for all its elements, until it ends."""

    user: str
    project: str
    queue: str
    #: (nodes, milli-GPU of a unit) of each kind of unit, in the order of the ranks.
    kinds: tuple[tuple[int, int], ...]
    is_elastic: bool = False


class MeteredNode(msgspec.Struct, omit_defaults=True):
    """The GPU model of a node: its label, or what each GPU says."""

    label: str = ""
    models: dict[str, str] = {}


class MeterState(msgspec.Struct, kw_only=True):
    """Everything that a meter remembers; its canonical JSON is the snapshot."""

    #: The placer's clock.
    at_ns: int = 0
    births: dict[str, MeteredJob] = {}
    #: {queue at the top: its pool}
    pools: dict[str, str] = {}
    #: {pool: {model: thousandths}}
    weights: dict[str, dict[str, int]] = {}
    machines: dict[str, MeteredNode] = {}
    #: {"<job>.<attempt>": its stays that are not over}
    stays: dict[str, list[Stay]] = {}
    #: (model, millionths, currency, Unix ns from which it holds) of each price that was set, in the log's order.
    prices: list[tuple[str, int, str, int]] = []


class Meter:
    """Folds the log's events, in order; `over` collects the stays that have ended for good."""

    def __init__(self, state: MeterState | None = None) -> None:
        self.state = state or MeterState()
        #: (sequence of the commit that ended it, stay); the owner takes them away.
        self.over: list[tuple[int, Stay]] = []

    @property
    def open(self) -> Iterable[Stay]:
        """Stays that are not over."""
        return (stay for stays in self.state.stays.values() for stay in stays)

    def pass_time(self, at_ns: int) -> None:
        """The placer has committed something at this moment of its clock."""
        self.state.at_ns = max(self.state.at_ns, at_ns)

    def take(self, sequence: int, event: Metered) -> None:
        """Take the next event. For an event of the placer, `pass_time` must have received its commit's time before."""
        state = self.state
        match event:
            case ev.JobSubmitted():
                state.births[event.job] = _metered_job(event)
            case ev.JobPlaced():
                self._placed(event)
            case ev.RunEnded():
                self._back(sequence, event.job, event.attempt, nodes=event.released, ended=True)
            case ev.RankEnded():
                if event.released:
                    self._back(sequence, event.job, event.attempt, rank=event.rank)
            case ev.AllocationReleased():
                self._back(sequence, event.job, event.attempt, nodes=(event.node,))
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                state.births.pop(event.job, None)
            case ev.JobMoved():
                state.births[event.job].queue = event.queue
            case ev.QueueRemoved():
                self._queue_removed(event)
            case ev.QueueConfigured():
                if event.settings is not None and "/" not in event.path:
                    state.pools[event.path] = event.settings.pool or DEFAULT_POOL
            case ev.PriceSet():
                state.prices.append((event.model, event.micro, event.currency, event.from_ns))
            case ev.PoolConfigured():
                state.weights[event.pool] = dict(event.settings.prices)
            case ev.PoolRemoved():
                state.weights.pop(event.pool, None)
            case ev.NodeJoined() | ev.NodeChanged():
                state.machines[event.node] = _machine(event.inventory)

    def _queue_removed(self, event: ev.QueueRemoved) -> None:
        self.state.pools.pop(event.path, None)
        if event.move_to:
            for metered in self.state.births.values():
                if metered.queue == event.path:
                    metered.queue = event.move_to

    def _placed(self, event: ev.JobPlaced) -> None:
        state = self.state
        metered = state.births[array_of(event.job) or event.job]
        pool = state.pools.get(metered.queue.partition("/")[0], DEFAULT_POOL)
        weights = state.weights.get(pool, {})
        charges = charged(metered, event.parts)
        stays: list[Stay] = []
        for rank, (part, milli) in enumerate(zip(event.parts, charges, strict=True)):
            given = len(part.gpus) * (part.gpu_milli or 1000)
            if not milli and not given:
                continue  # CPUs and memory are not GPU time
            machine = state.machines.get(part.node, MeteredNode())
            stays.append(
                Stay(
                    job=event.job,
                    attempt=event.attempt,
                    rank=rank,
                    node=part.node,
                    model=_model(machine, part),
                    user=metered.user,
                    project=metered.project,
                    queue=metered.queue,
                    pool=pool,
                    charged_milli=milli,
                    held_milli=given,
                    weight=weights.get(machine.label, PRICE),
                    begin_ns=state.at_ns,
                )
            )
        if stays:
            state.stays[f"{event.job}.{event.attempt}"] = stays

    def _back(
        self, sequence: int, job: str, attempt: int, *, nodes: tuple[str, ...] = (), rank: int = -1, ended: bool = False
    ) -> None:
        """Record that parts came back, or that the whole run has ended; finished stays leave. A repeated record changes nothing."""
        key, now_ns = f"{job}.{attempt}", self.state.at_ns
        stays = self.state.stays.get(key, [])
        for stay in stays:
            if ended and stay.end_ns is None:
                stay.end_ns = now_ns
            if stay.back_ns is None and (stay.node in nodes or stay.rank == rank):
                stay.back_ns = now_ns
        self.over += [(sequence, stay) for stay in stays if stay.is_over]
        left = [stay for stay in stays if not stay.is_over]
        if left:
            self.state.stays[key] = left
        else:
            self.state.stays.pop(key, None)


def charged(metered: MeteredJob, parts: Iterable[ev.Part]) -> list[int]:
    """milli-GPU of each part: its units, at what the job asked for one of their kind. An elastic job that got fewer units
    than the most it asks for has them all of the first kind."""
    parts = list(parts)
    left = [nodes for nodes, _ in metered.kinds]
    if metered.is_elastic:
        left[0] -= sum(left) - sum(part.tasks for part in parts)
    at, charges = 0, list[int]()
    for part in parts:
        while not left[at] and at + 1 < len(left):  # the parts of a kind come after those of the kinds before it
            at += 1
        charges.append(part.tasks * metered.kinds[at][1])
        left[at] -= part.tasks
    return charges


def _metered_job(event: ev.JobSubmitted) -> MeteredJob:
    request: Request = event.request
    return MeteredJob(
        user=event.user,
        project=event.project,
        queue=event.queue,
        kinds=tuple((kind.nodes, kind.gpu_milli) for kind in request.kinds),
        is_elastic=bool(request.nodes_min),
    )


def _machine(inventory: Inventory) -> MeteredNode:
    label = inventory.labels.get(MODEL_LABEL, "")
    return MeteredNode(label, {} if label else {gpu.uuid: gpu.model for gpu in inventory.gpus})


def _model(machine: MeteredNode, part: ev.Part) -> str:
    return machine.label or next((machine.models.get(uuid, "") for uuid in part.gpus), "")
