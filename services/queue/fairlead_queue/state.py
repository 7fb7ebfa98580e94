"""All folded state of the queue service, and the bookkeeping that keeps its indexes true.

Mutable for speed; only `evolve` calls what changes it. It knows no event and no rule: here it is
written what follows from "this job now waits there", in `evolve` what an event means, and in
`decide` what should happen next.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from fairlead_queue.jobs import Array, End, Job
from fairlead_queue.lanes import Klass, Lane, Queue
from fairlead_queue.limits import KEYS_MAX
from fairlead_queue.line import Line
from fairlead_queue.ranks import priority_of
from fairlead_schemas.resources import Request


class Shape(NamedTuple):
    """What one node has in all."""

    gpu_milli: int
    cpu_milli: int
    memory_mib: int


class State:
    """Everything that a decision may read."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.classes: dict[Request, Klass] = {}
        #: Live jobs by id: single jobs, arrays, born elements.
        self.jobs: dict[str, Job] = {}
        #: {id: end state}, oldest first, until they are retired.
        self.finished: dict[str, str] = {}
        #: {idempotency key: (job, digest)}, oldest first.
        self.keys: dict[str, tuple[str, str]] = {}
        #: {node: what it has}; lost nodes still count, they may come back.
        self.nodes: dict[str, Shape] = {}
        #: Distinct shapes, largest first (derived).
        self.shapes: list[Shape] = []
        #: The number of the next job.
        self.next_number = 1
        #: Rises with every event that gives capacity back.
        self.capacity = 0
        #: Open offers in all, and those of parked classes (derived).
        self.open = 0
        self.parked_open = 0
        #: Jobs that the queue owes an event, in order.
        self.owed: dict[str, Job] = {}
        #: Arrays whose elements are still to be stopped.
        self.stopping: dict[str, Array] = {}
        #: Jobs recalled for quota that wait for capacity to change (derived).
        self.returned: dict[str, Job] = {}
        #: (Unix ns, id) of every time that the queue waits for, rising (derived).
        self.timers: list[tuple[int, str]] = []
        #: {queue with a quota: ranks offered in the commit that is being folded}; empty between commits.
        self.just_offered: dict[str, list[int]] = {}
        #: (rank, job) of the first job of every lane in which one waits, in rank order (derived).
        self.fronts: list[tuple[int, Job]] = []
        #: How many classes are parked (derived).
        self.parked_classes = 0
        #: How many jobs stand in lines; an array counts once (derived).
        self.in_line = 0

    # -- jobs come and go

    def lane(self, path: str, request: Request) -> Lane:
        """The lane of a queue and a class, made where it is missing."""
        queue = self.queues[path]
        lane = queue.lanes.get(request)
        if lane is None:
            klass = self.classes.get(request)
            if klass is None:
                klass = self.classes[request] = Klass(request)
            lane = queue.lanes[klass.request] = Lane(queue, klass)
        return lane

    def add(self, job: Job) -> None:
        """A job enters."""
        self.jobs[job.id] = job
        job.lane.jobs += 1
        job.lane.klass.jobs += 1

    def remove(self, job: Job) -> None:
        """A job leaves; its lane and class go with their last."""
        del self.jobs[job.id]
        lane, klass = job.lane, job.lane.klass
        lane.jobs -= 1
        klass.jobs -= 1
        if lane.jobs == 0:
            del lane.queue.lanes[klass.request]
            if klass.jobs == 0:
                self.parked_classes -= self.parked(klass)
                del self.classes[klass.request]

    def remember_key(self, key: str, job: str, digest: str) -> None:
        """Keep a keyed submit; the oldest is forgotten at the bound."""
        keys = self.keys
        keys[key] = (job, digest)
        if len(keys) > KEYS_MAX:
            del keys[next(iter(keys))]

    # -- where a job waits

    def wait_in_line(self, job: Job) -> None:
        """It may be offered."""
        job.wait = "line"
        self.in_line += 1
        lines = job.lane.lines
        priority = priority_of(job.rank)
        line = lines.get(priority)
        if line is None:
            line = lines[priority] = Line()
        line.add(job)
        if not job.lane.front or job.rank < job.lane.front:
            self.refront(job.lane)

    def wait_until(self, job: Job, at_ns: int) -> None:
        """It may be offered after a time; or (running) it may run until then."""
        if job.state != "running":
            job.wait = "timer"
        job.timer_ns = at_ns
        insort(self.timers, (at_ns, job.id))

    def wait_for_capacity(self, job: Job) -> None:
        """It may be offered once capacity has changed."""
        job.wait = "returned"
        self.returned[job.id] = job

    def owe(self, job: Job) -> None:
        """The queue's next decision has an event for it."""
        job.wait = "owed"
        self.owed[job.id] = job

    def unwait(self, job: Job) -> None:
        """Take it from wherever it waits."""
        wait = job.wait
        if wait == "line":
            self.in_line -= 1
            lines, priority = job.lane.lines, priority_of(job.rank)
            line = lines[priority]
            line.remove(job)
            if not len(line):
                del lines[priority]
            if job.rank == job.lane.front:
                self.refront(job.lane)
        elif wait == "owed":
            del self.owed[job.id]
        elif wait == "returned":
            del self.returned[job.id]
        if job.timer_ns:
            self.drop_timer(job)
        job.wait = ""

    def refront(self, lane: Lane) -> None:
        """The first of a lane may have changed."""
        fronts = self.fronts
        if lane.front:
            del fronts[bisect_left(fronts, (lane.front,))]
        job = lane.first()
        lane.front = 0 if job is None else job.rank
        if job is not None:
            insort(fronts, (job.rank, job))

    def first_waiting(self, queue: Queue) -> int:
        """Rank of the queue's first waiting job that its quota could ever hold; 0 when there is none."""
        for rank, job in self.fronts:
            lane = job.lane
            if lane.queue is queue and (queue.quota is None or lane.klass.need <= queue.quota):
                return rank
        return 0

    def drop_timer(self, job: Job) -> None:
        """Forget the time it waits for, if any."""
        if job.timer_ns:
            del self.timers[bisect_left(self.timers, (job.timer_ns, job.id))]
            job.timer_ns = 0

    # -- offers and capacity

    def parked(self, klass: Klass) -> bool:
        """True when the class was refused and nothing has come free since."""
        return klass.parked_at == self.capacity

    def open_offer(self, job: Job) -> None:
        """The placer has an offer of it; its queue is charged."""
        lane = job.lane
        klass = lane.klass
        job.open = True
        lane.offers[job.id] = job
        lane.queue.charged += klass.need
        self.open += 1
        klass.open += 1
        priority = priority_of(job.rank)
        klass.priorities[priority] = klass.priorities.get(priority, 0) + 1
        if klass.parked_at == self.capacity:
            self.parked_open += 1

    def close_offer(self, job: Job) -> None:
        """The placer has placed or returned the offer."""
        klass = job.lane.klass
        job.open = False
        job.recall = ""
        del job.lane.offers[job.id]
        self.open -= 1
        klass.open -= 1
        priority = priority_of(job.rank)
        left = klass.priorities[priority] - 1
        if left:
            klass.priorities[priority] = left
        else:
            del klass.priorities[priority]
        if klass.parked_at == self.capacity:
            self.parked_open -= 1

    def uncharge(self, job: Job) -> None:
        """What it held counts against its queue no longer."""
        job.lane.queue.charged -= job.lane.klass.need

    def park(self, klass: Klass) -> None:
        """The class was refused."""
        if klass.parked_at != self.capacity:
            klass.parked_at = self.capacity
            self.parked_classes += 1
            self.parked_open += klass.open

    def unpark(self, klass: Klass) -> None:
        """One of the class was placed."""
        if klass.parked_at == self.capacity:
            self.parked_open -= klass.open
            self.parked_classes -= 1
        klass.parked_at = -1

    def capacity_changed(self) -> None:
        """Nothing is parked any more, and what was recalled may be offered again."""
        self.capacity += 1
        self.parked_open = self.parked_classes = 0
        if self.returned:
            returned, self.returned = self.returned, {}
            for job in returned.values():
                self.wait_in_line(job)

    def set_node(self, node: str, shape: Shape) -> None:
        """A node is there with this much; `shapes` follows."""
        if self.nodes.get(node) != shape:
            self.nodes[node] = shape
            self.shapes = sorted(set(self.nodes.values()), reverse=True)

    def settled(self, job: Job, end: End) -> None:
        """The current attempt has ended: its quota is free, and an event is owed."""
        self.uncharge(job)
        self.drop_timer(job)
        job.end = end
        self.owe(job)
