"""Waiting and running work of the queue, as one aggregate: jobs, the lanes and queues they wait in, and their pools.

A **job** is small and mutable, and never holds a spec. `wait` says where a job that waits can be found; it is "" when it
does not wait for an offer:

    line      in its lane's line: may be offered
    timer     until `timer_ns`: a start time, or the delay before another attempt
    array     an array of which as many elements live as may: until one ends
    jobs      until the jobs it depends on have ended
    returned  was withdrawn for quota: until capacity changes
    owed      the queue owes it an event (`end`, a requested hold, an array's end)

A **lane** holds the jobs of one request class in one leaf. They have the same request and are charged alike: a gate that
is closed for the first of them is closed for all, so a decision looks at lanes, not at jobs. A queue has one **leaf**, or
one for each user where it limits users.

A **pool** is the nodes of one kind of use, the tree of queues that share them, and the order in which they do. A request
belongs to one pool, so everything about the order of jobs is decided inside it.

Only `QueueState` and the handlers in `apply/` change any of it.
"""

from collections.abc import Iterable, Iterator

import msgspec

from fairlead_queue.fairness.ordering import Ranking
from fairlead_queue.fairness.tree import Amounts, JobCharge, QueueNode, QueueTree, parts
from fairlead_queue.fairness.waiting_line import WaitingLine, order_of
from fairlead_queue.sequencers.fifo import MissingSequencer
from fairlead_queue.sequencers.registry import sequencer_named
from fairlead_queue.waiting.attempts import AttemptEnd, IdleReclaim
from fairlead_queue.waiting.settled_order import SettledOrder
from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    GPU_CLASS_PREFIX,
    MODEL_LABEL,
    RESOURCES,
    PoolSettings,
    QueueSettings,
    gpu_class,
)
from fairlead_schemas.wire.resources import Request

#: What a job waits for that will never come: the other job has ended otherwise.
NEVER = "never"


class LiveJob:
    """Single job or element of an array that is not finished yet."""

    __slots__ = (
        "after",
        "aged",
        "ages_ns",
        "alarm_ns",
        "asked",
        "asked_ns",
        "asks",
        "attempt",
        "cause",
        "changed_seq",
        "deadline_ns",
        "end",
        "every_ns",
        "failures",
        "hold",
        "hold_by",
        "id",
        "idle",
        "lane",
        "losses",
        "missing",
        "nodes",
        "notice_ns",
        "offered_ns",
        "open",
        "order",
        "parent",
        "price",
        "rank",
        "retries",
        "saved_ns",
        "since_ns",
        "slice_ns",
        "start_at_ns",
        "started_ns",
        "starts",
        "state",
        "stop",
        "stop_by",
        "stop_saves",
        "submitted_ns",
        "timer_ns",
        "total_ns",
        "used_ns",
        "user",
        "wait",
        "withdrawal",
        "yielders",
        "yields_by",
        "yields_to",
    )  # fmt: skip

    def __init__(self, id: str, order: int, lane: "Lane", cause: str) -> None:
        self.id = id
        #: Its position in its line (fairness/waiting_line.py); for an array it rises with each element that is born.
        self.order = order
        self.lane = lane
        self.user = ""
        #: Id of the event that made it wait: what an offer names as its cause.
        self.cause = cause
        self.state = "queued"
        #: The current attempt, from 1.
        self.attempt = 1
        #: Attempts allowed after a failed exit; failed attempts; then losses and failed starts, which are counted
        #: apart.
        self.retries = self.failures = self.losses = self.starts = 0
        self.total_ns = self.start_at_ns = self.deadline_ns = self.slice_ns = 0
        #: Run time of the earlier attempts that this one continues; when the current one started (0: it has not).
        self.used_ns = self.started_ns = 0
        #: Notice before its end, interval of its saves without a notice, and time at which its run last reported a
        #: save (0: never).
        self.notice_ns = self.every_ns = self.saved_ns = 0
        self.submitted_ns = 0
        #: Since when it waits (for an offer and then for a place), by how much its priority has risen meanwhile, and when it
        #: rises next (0: it does not).
        self.since_ns = self.aged = self.ages_ns = 0
        #: Jobs it waits for: {job: how it must end}.
        self.after: dict[str, str] | None = None
        self.wait = ""
        #: When it stops waiting by the clock or its run is over; when its deadline is missed.
        self.timer_ns = self.alarm_ns = 0
        #: True while the placer holds an offer of it; the rank of that, and since when.
        self.open = False
        self.rank = self.offered_ns = 0
        #: "" | "hold" | "quota" | "order": the open offer was asked back.
        self.withdrawal = ""
        #: A person wants it held as soon as its offer is back.
        self.hold = False
        self.hold_by = ""
        #: "" | "cancelled" | "time_limit" | "idle" | "reclaimed" | "requeued"
        self.stop = ""
        self.stop_by = ""
        #: Of one that was cancelled: it is to have its notice first.
        self.stop_saves = False
        #: The job that it was asked to yield to, and by which rule; how many were asked to yield to it and have not ended.
        self.yields_to = self.yields_by = ""
        self.yielders = 0
        #: While it waits: "" | "asked": the placer has been asked to make room | "declined": it could not; and when.
        self.asked = ""
        self.asked_ns = 0
        #: How often it got such an answer while it waited.
        self.asks = 0
        #: Policies that request its run's GPUs back because it is idle, in the order of their requests.
        self.idle: tuple[IdleReclaim, ...] = ()
        #: Log sequence at which a person last updated, moved, held or released it (0: never).
        self.changed_seq = 0
        #: What its run counts for in budgets: milli-GPU times the price of the model (0: nothing, or it has no place).
        self.price = 0
        #: Units of its request that its placement has not; they are not charged.
        self.missing = 0
        #: Place of its run: the node of each of its units.
        self.nodes: tuple[str, ...] = ()
        self.end: AttemptEnd | None = None
        self.parent: Array | None = None

    def with_elements(self) -> "tuple[LiveJob, ...]":
        """Return the job, and of an array also the elements that live."""
        return (self,)

    @property
    def awaits_cancel(self) -> bool:
        """Return True until a cancel has been carried to it. A stop for a time limit does not count as one: agents hold
        it back until the run has had its time by their own clocks."""
        return self.state != "stopping" or self.stop == "time_limit"

    @property
    def had_its_time(self) -> bool:
        """Return True if its attempts together have run up to the notice of its time limit."""
        return 0 < self.total_ns <= self.used_ns + self.notice_ns


class Array(LiveJob):
    """Array of jobs: waits in line for its next unborn element, and counts those that were born."""

    __slots__ = ("cancelled", "ended", "failed", "first", "last", "limit", "live", "reported", "unstopped")

    def __init__(self, id: str, order: int, lane: "Lane", cause: str, bounds: tuple[int, int]) -> None:
        super().__init__(id, order, lane, cause)
        self.attempt = 0
        self.first, self.last = bounds
        #: Elements that may live at once (0: all), and True if it was reported that the array waits for that limit.
        self.limit = 0
        self.reported = False
        #: Elements born and not ended, in order of birth.
        self.live: dict[str, LiveJob] = {}
        self.ended = self.failed = self.cancelled = 0
        #: While it stops: live elements that have not been asked to.
        self.unstopped = 0

    def with_elements(self) -> tuple[LiveJob, ...]:
        """Return the array and its elements that live."""
        return (self, *self.live.values())

    @property
    def unborn(self) -> int:
        """Elements that have not come into being."""
        return self.last - self.first + 1 - self.ended - len(self.live)

    def is_unborn(self, element: str) -> bool:
        """True for the id of an element that has not come into being."""
        index = element.partition("_")[2]
        return index.isdecimal() and self.last - self.unborn < int(index) <= self.last

    @property
    def is_over(self) -> bool:
        """Nothing of it lives and nothing more will be born."""
        return not self.live and (self.unborn == 0 or self.state == "stopping")

    @property
    def full(self) -> bool:
        """True if as many elements live as may live at once."""
        return 0 < self.limit <= len(self.live)


class RequestClass:
    """An equivalence class: all jobs with an equal request. It is placed, refused and parked together."""

    __slots__ = ("gain", "jobs", "loss", "mask", "need", "open", "parked_at", "pool", "request", "waiting")

    def __init__(self, request: Request, pool: "PoolState") -> None:
        self.request = request
        self.pool = pool
        self.measure()
        #: The pool's capacity counter at the last refusal: parked while capacity has not changed since.
        self.parked_at = -1
        #: Open offers.
        self.open = 0
        #: Lanes with a waiting job.
        self.waiting = 0
        #: Live jobs; at 0 the class is forgotten.
        self.jobs = 0

    def measure(self) -> None:
        """Measure the charge of one job in the pool's present resources: the need, the bits of the needed resources, and the need
        as changes of charges.
        """
        self.need, self.mask, self.gain, self.loss = self.pool.need(self.request)

    @property
    def parked(self) -> bool:
        """True when it was refused and nothing has come free since."""
        return self.parked_at == self.pool.capacity_count


class Deferral:
    """Reason last emitted for a lane that waits."""

    __slots__ = ("at_ns", "queue", "reason", "resource", "times")

    def __init__(self, reason: str, queue: str, resource: str, at_ns: int, times: int = 0) -> None:
        self.reason, self.queue, self.resource, self.at_ns = reason, queue, resource, at_ns
        #: Number of earlier, different reasons since a job has been waiting in the lane.
        self.times = times


class Lane:
    """The jobs of one class in one leaf."""

    __slots__ = ("claim", "deferral", "front", "jobs", "leaf", "lines", "offers", "request_class", "running")

    def __init__(self, leaf: "Leaf", request_class: RequestClass) -> None:
        self.leaf = leaf
        self.request_class = request_class
        #: {priority: its line}; a line goes when it is empty.
        self.lines: dict[int, WaitingLine[LiveJob]] = {}
        #: Open offers {id: job}, and what is placed or runs.
        self.offers: dict[str, LiveJob] = {}
        self.running: dict[str, LiveJob] = {}
        self.jobs = 0
        #: Order of the job whose turn is next, as `Leaf.fronts` has it; 0 when none waits.
        self.front = 0
        #: Reason why its jobs are not offered, as in the log; None: no reason was reported.
        self.deferral: Deferral | None = None
        #: The job of this lane for which something is kept free under a limit; "": none.
        self.claim = ""

    def waiting(self) -> Iterator[LiveJob]:
        """Jobs in line, in order. The lane must not change meanwhile."""
        for priority in sorted(self.lines, reverse=True) if len(self.lines) > 1 else tuple(self.lines):
            yield from self.lines[priority]

    def first(self) -> LiveJob | None:
        """The job whose turn is next, if any waits."""
        return self.lines[max(self.lines)].first() if self.lines else None


class Leaf:
    """Leaf in which jobs wait: a queue, or one user in a queue that limits users. The leaf is attached to its node of the tree."""

    __slots__ = ("fronts", "lanes", "node", "queue", "user")

    def __init__(self, queue: "LiveQueue", user: str, node: QueueNode) -> None:
        self.queue = queue
        self.user = user
        self.node = node
        self.lanes: dict[Request, Lane] = {}
        #: (order, job) of the first job of every lane in which one waits, in order.
        self.fronts: list[tuple[int, LiveJob]] = []
        node.leaf = self


class LiveQueue:
    """Queue with its settings and its leaves."""

    __slots__ = ("changed_seq", "leaves", "node", "path", "pool", "settings")

    def __init__(self, path: str, settings: QueueSettings, pool: "PoolState", node: QueueNode) -> None:
        self.path = path
        self.settings = settings
        self.pool = pool
        self.node = node
        #: Log sequence of its settings.
        self.changed_seq = 0
        #: {user: leaf}; the user is "" where the queue does not tell users apart.
        self.leaves: dict[str, Leaf] = {}


_MODEL = MODEL_LABEL + "="
#: Requests of which it is remembered what they need.
NEEDS_MAX = 4096


def pool_of(request: Request) -> str:
    """The name of the pool that a request is for."""
    return request.pool or DEFAULT_POOL


def model_of(request: Request) -> str:
    """The GPU model that a request names by its selector; "" when it takes any."""
    for each in request.selector:
        if each.startswith(_MODEL):
            return each[len(_MODEL) :]
    return ""


class PoolState:
    """The queues of one pool. `State` owns it and keeps its counts true."""

    def __init__(self, name: str, settings: PoolSettings) -> None:
        self.name = name
        self.settings = settings
        #: Log sequence of its settings.
        self.changed_seq = 0
        #: Classes with live jobs.
        self.classes: dict[Request, RequestClass] = {}
        #: Rises with every event that gives capacity back.
        self.capacity_count = 0
        #: Time at which a run last ended without a request to yield.
        self.freed_ns = 0
        #: Open offers of classes that are parked.
        self.parked_open = 0
        self.parked_classes = 0
        #: Open offers {id: job}, the oldest first, and the number of lanes with a waiting job.
        self.offers: dict[str, LiveJob] = {}
        self.waiting = 0
        #: The job with an open offer for which places are kept because of its long wait ("": none).
        self.claimant = ""
        self.shape(RESOURCES)

    def shape(self, resources: Iterable[str]) -> None:
        """An empty tree over these resources; the owner puts queues and charges back."""
        self.resources = tuple(resources)
        #: {request: what it is charged}: worked out once, for classes come and go.
        self._needs: dict[Request, JobCharge] = {}
        self.tree = QueueTree(self.resources)
        try:
            self.sequencer = sequencer_named(self.settings.sequencer, self.tree, self.settings)
        except ValueError as error:  # the fold continues; the decider stops
            self.sequencer = MissingSequencer(f"pool {self.name}: {error}")
        self.past = self.sequencer.past
        self.ranking = Ranking(self.tree, self.sequencer)
        #: What a review found out about the order, while that holds (a memo).
        self.settled: SettledOrder | None = None

    def order(
        self, priority: int, place: int, offset: int = 0, *, deadline_ns: int, submitted_ns: int, total_ns: int
    ) -> int:
        """Return the position of a job in its line. Where the sequencer makes promises, a promised end acts like the job's own
        deadline.
        """
        stretch = self.sequencer.stretch
        if stretch and total_ns:
            promised_ns = submitted_ns + stretch * total_ns
            deadline_ns = min(deadline_ns, promised_ns) if deadline_ns else promised_ns
        return order_of(priority, place, offset, deadline_ns, newest_first=self.sequencer.newest_first)

    # ------------------------------------------------------------------ amounts

    def need(self, request: Request) -> JobCharge:
        """Return the charge of one job of this request, in the order of `resources`."""
        known = self._needs.get(request)
        if known is not None:
            return known
        found = [request.gpu_milli_total, request.cpu_milli_total, request.memory_mib_total]
        for name in self.resources[len(RESOURCES) :]:
            kinds = [kind for kind in request.kinds if gpu_class(model_of(kind)) == name]
            found.append(sum(kind.nodes * kind.gpu_milli for kind in kinds))
        if len(self._needs) >= NEEDS_MAX:
            self._needs.clear()
        known = self._needs[request] = JobCharge.of(tuple(found))
        return known

    def holds(self, job: LiveJob) -> Amounts:
        """Return the charge of a job: its requested amounts, reduced where its placement has fewer units."""
        need = job.lane.request_class.need
        if not job.missing:
            return need
        return tuple(all_ - less for all_, less in zip(need, self._missing(job).amounts, strict=True))

    def _missing(self, job: LiveJob) -> JobCharge:
        """Return the need of the units that an elastic job's placement lacks."""
        request = job.lane.request_class.request
        return self.need(msgspec.structs.replace(request, nodes=job.missing, nodes_min=0, also=()))

    def models(self) -> list[str]:
        """GPU models that some queue of the pool limits."""
        return [name[len(GPU_CLASS_PREFIX) :] for name in self.resources[len(RESOURCES) :]]

    # ------------------------------------------------------------------ charges

    def charge(self, lane: Lane, times: int) -> None:
        """`times` jobs of the lane more (or less) are offered, placed or running."""
        node, request_class = lane.leaf.node, lane.request_class
        if times == 1:
            self.tree.carry(node, request_class.gain)
        elif times == -1:
            self.tree.carry(node, request_class.loss)
        else:
            self.tree.carry(node, parts(request_class.need, times))
        if self.ranking.views:
            self.ranking.touch(node)
        if times < 0:
            self.forget_refusals(node)

    def charge_missing(self, job: LiveJob, times: int) -> None:
        """Units that a placement has not are charged no longer (-1), or again, before all of it goes (1)."""
        node = job.lane.leaf.node
        self.tree.carry(node, parts(self._missing(job).amounts, times))
        if self.ranking.views:
            self.ranking.touch(node)
        if times < 0:
            self.forget_refusals(node)

    @staticmethod
    def forget_refusals(node: QueueNode | None) -> None:
        """Something came free under every limit from this node up."""
        while node is not None:
            if node.waiters:
                node.waiters.clear()
            node = node.parent

    def forget_all(self) -> None:
        """Limits or capacity are others."""
        self.settled = None
        self.forget_refused()
        self.ranking.forget()

    def forget_refused(self) -> None:
        """Clear all recorded refusals, so that each is checked again."""
        for node in self.tree.nodes.values():
            if node.waiters:
                node.waiters.clear()

    def is_known(self) -> bool:
        """Return True if any node of the pool has ever joined."""
        return any(self.tree.capacity)
