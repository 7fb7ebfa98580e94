"""Places where jobs of one kind wait: equivalence classes, queues, their leaves, and lanes (one leaf's jobs of one class).

All jobs of a lane have the same request and are charged alike. A gate that is closed for the first of them is closed
for all, so a decision looks at lanes, not at jobs. A queue has one leaf, or one for each user where it limits users.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.fairness.waiting_line import WaitingLine
from fairlead_queue.waiting.jobs import LiveJob
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire.resources import Request

if TYPE_CHECKING:
    from fairlead_queue.waiting.pools import PoolState


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

    __slots__ = ("claim", "deferral", "front", "jobs", "klass", "leaf", "lines", "offers", "running")

    def __init__(self, leaf: "Leaf", klass: RequestClass) -> None:
        self.leaf = leaf
        self.klass = klass
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

    __slots__ = ("leaves", "node", "path", "pool", "settings")

    def __init__(self, path: str, settings: QueueSettings, pool: "PoolState", node: QueueNode) -> None:
        self.path = path
        self.settings = settings
        self.pool = pool
        self.node = node
        #: {user: leaf}; the user is "" where the queue does not tell users apart.
        self.leaves: dict[str, Leaf] = {}
