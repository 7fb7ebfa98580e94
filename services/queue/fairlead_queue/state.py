"""All folded state of the queue service, and the bookkeeping that keeps its indexes true.

Mutable for speed; only `evolve` calls what changes it, and `decide` within `State.speculating`, which rolls it back. It
knows no event and no rule: here it is written what follows from "this job now waits there", in `evolve` what an event means, and in
`decide` what should happen next.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping

from fairlead_bus.undo_log import UndoLog
from fairlead_queue.fairness import quota
from fairlead_queue.fairness.budgets import Account
from fairlead_queue.fairness.waiting_line import RANK_STEP, WaitingLine, priority_of
from fairlead_queue.limits import KEYS_MAX
from fairlead_queue.waiting import before_images
from fairlead_queue.waiting.attempts import AttemptEnd, IdleReclaim
from fairlead_queue.waiting.closures import QueueClosures
from fairlead_queue.waiting.nodes import Nodes
from fairlead_queue.waiting.pending import Array, Lane, Leaf, LiveJob, LiveQueue, PoolState, RequestClass, pool_of
from fairlead_queue.waiting.services import LiveService, ServicePlan, plan_of
from fairlead_queue.waiting.wait_conditions import Dependents, Due
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PoolSettings
from fairlead_schemas.wire.resources import Request


class QueueState(UndoLog):
    """Everything that a decision may read, and the undo log of the decision in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: dict[str, PoolState] = {DEFAULT_POOL: PoolState(DEFAULT_POOL, PoolSettings())}
        self.queues: dict[str, LiveQueue] = {}
        #: Queues that people hold or drain.
        self.closures = QueueClosures()
        #: {queue: what it has used of its budget}
        self.accounts: dict[str, Account] = {}
        self.classes: dict[Request, RequestClass] = {}
        #: Live jobs by id: single jobs, arrays, born elements.
        self.jobs: dict[str, LiveJob] = {}
        #: {id: end state}, oldest first, until they are retired.
        self.finished: dict[str, str] = {}
        #: {idempotency key: (job, digest)}, oldest first.
        self.keys: dict[str, tuple[str, str]] = {}
        #: Lost ones still count: they may come back.
        self.nodes = Nodes()
        #: The number of the next job, its place in line (fairness/waiting_line.py), and the rank of the next offer.
        self.next_number = self.next_place = 1
        self.next_rank = RANK_STEP
        #: Log sequence at which a queue or a pool was last removed.
        self.removed_seq = 0
        #: The log's time: the latest of all commits that were folded.
        self.at_ns = 0
        #: Time of the last commit of the queue's own.
        self.decided_ns = 0
        #: And of the placer's.
        self.heard_ns = 0
        #: Open offers in all, and those of parked classes (derived).
        self.open = 0
        self.parked_open = 0
        #: Jobs that the queue owes an event, in order.
        self.owed: dict[str, LiveJob] = {}
        #: Arrays whose elements are still to be stopped.
        self.stopping: dict[str, Array] = {}
        #: {path in the tree: (the event that asked, who)} of queues that give back what they hold beyond their limits.
        self.reclaims: dict[str, tuple[str, str]] = {}
        #: {job: itself} of runs that are asked back because they lie idle (derived).
        self.idle: dict[str, LiveJob] = {}
        #: Jobs withdrawn for quota that wait for their pool's capacity to change (derived).
        self.returned: dict[str, LiveJob] = {}
        #: Who waits for whose end (derived).
        self.dependents = Dependents()
        #: What it waits for by the clock (derived).
        self.due = Due()
        #: Lanes with a waiting job and without a reported reason (derived; ordered by when that began).
        self.unreported: dict[Lane, None] = {}
        #: The same of arrays that wait for elements of their own (derived).
        self.unreported_arrays: dict[str, Array] = {}
        #: Number of jobs in lines; an array counts once (derived).
        self.in_line = 0
        self.services: dict[str, LiveService] = {}
        #: {job: its service} of replicas, and the services about which something is to be done, now or at a known time (derived).
        self.replicas: dict[str, LiveService] = {}
        self.restless: dict[str, None] = {}

    # -- services

    def plan_of(self, service: LiveService, now_ns: int, decided: Mapping[str, str] | None = None) -> ServicePlan:
        """Return what is to be done about a service. `decided`: {job: its state after what this decision has decided so far}."""
        later, draining = decided or {}, self.nodes.draining

        def state_of(job: str) -> str:
            live = self.jobs.get(job)
            return "" if live is None else later.get(job, live.state)

        def is_drained(job: str) -> bool:
            live = self.jobs.get(job)
            return live is not None and not draining.isdisjoint(live.nodes)

        return plan_of(service, state_of, is_drained, now_ns)

    # -- leaves and lanes

    def leaf(self, queue: LiveQueue, user: str) -> Leaf:
        """Return the leaf in which a user's jobs wait in a queue; create it where it is missing."""
        limits = queue.settings.users
        key = user if limits else ""
        leaf = queue.leaves.get(key)
        if leaf is None:
            node = queue.node
            self.note(self._remove_leaf, queue, key, quota.user_path(queue.path, user) if limits else "", node.leaf)
            if limits:
                node = queue.pool.tree.add(quota.user_path(queue.path, user), quota.user_limits(queue.settings, user))
                queue.pool.ranking.touch(node)
            leaf = queue.leaves[key] = Leaf(queue, key, node)
        return leaf

    def lane(self, path: str, user: str, request: Request) -> Lane:
        """The lane of a queue, a user and a class, made where it is missing."""
        leaf = self.leaf(self.queues[path], user)
        lane = leaf.lanes.get(request)
        if lane is None:
            self.note(
                self._remove_lane, leaf, request, None if request in self.classes else self.pools[pool_of(request)]
            )
            request_class = self.classes.get(request)
            if request_class is None:
                pool = self.pools[pool_of(request)]
                request_class = self.classes[request] = pool.classes[request] = RequestClass(request, pool)
            lane = leaf.lanes[request_class.request] = Lane(leaf, request_class)
        return lane

    def _remove_leaf(self, queue: LiveQueue, key: str, path: str, before: Leaf | None) -> None:
        """Undo `leaf`; `path`: of the user's node, "" where the leaf hangs on its queue's, as `before` did."""
        queue.leaves.pop(key, None)
        if not path:
            queue.node.leaf = before
            return
        tree = queue.pool.tree
        node = tree.nodes.get(path)
        if node is not None:
            queue.pool.ranking.remove(node)
            tree.discard(node)

    def _remove_lane(self, leaf: Leaf, request: Request, pool: PoolState | None) -> None:
        """Undo `lane`; `pool`: where the class was made with it."""
        leaf.lanes.pop(request, None)
        if pool is not None:
            self.classes.pop(request, None)
            pool.classes.pop(request, None)

    # -- speculation

    def try_in_line(self, job: LiveJob, imaged: set[Lane | Leaf]) -> None:
        """Let a job that no event has submitted yet wait in line, until the speculation ends. `imaged`: lanes and leaves
        of which this speculation has before-images; it is added to."""
        lane = job.lane
        if lane not in imaged:
            imaged.add(lane)
            before_images.image_line(self, lane)
            if lane.leaf not in imaged:
                imaged.add(lane.leaf)
                before_images.image_leaf(self, lane.request_class.pool, lane.leaf)
        self.note(self._take_out, job, self.in_line, lane in self.unreported)
        self.add(job)
        self.wait_in_line(job)

    def _take_out(self, job: LiveJob, in_line: int, unreported: bool) -> None:
        """Undo `try_in_line`, except the parts that have images."""
        lane, priority = job.lane, priority_of(job.order)
        self.jobs.pop(job.id, None)
        self.in_line = in_line
        self.due.discard_age(job)
        if not unreported:
            self.unreported.pop(lane, None)
        line = lane.lines.get(priority)
        if line is not None:
            line.discard(job)
            if not line:
                del lane.lines[priority]

    def forget_derived(self) -> None:
        """Drop the order of queues and the refusals that are remembered: they may be half updated."""
        for pool in self.pools.values():
            pool.forget_all()

    # -- jobs come and go

    def add(self, job: LiveJob) -> None:
        """A job enters."""
        self.jobs[job.id] = job
        job.lane.jobs += 1
        job.lane.request_class.jobs += 1
        if job.after:
            self.dependents.add(job)

    def remove(self, job: LiveJob) -> None:
        """A job leaves; its lane and class go with their last."""
        del self.jobs[job.id]
        if job.after:
            self.dependents.drop(job)
        if job.idle:
            self.set_idle_reclaims(job, ())
        self.leave(job)

    def leave(self, job: LiveJob) -> None:
        """A job leaves its lane; what was there for it alone goes too."""
        lane = job.lane
        request_class, leaf = lane.request_class, lane.leaf
        lane.jobs -= 1
        request_class.jobs -= 1
        if lane.jobs:
            return
        del leaf.lanes[request_class.request]
        self.unreported.pop(lane, None)
        if request_class.jobs == 0:
            request_class.pool.parked_classes -= request_class.parked
            del self.classes[request_class.request], request_class.pool.classes[request_class.request]

    def set_idle_reclaims(self, job: LiveJob, reclaims: tuple[IdleReclaim, ...]) -> None:
        """Record exactly these reclaims of the job's idle run."""
        job.idle = reclaims
        if reclaims:
            self.idle[job.id] = job
        else:
            self.idle.pop(job.id, None)

    def remember_key(self, key: str, job: str, digest: str) -> None:
        """Keep a keyed submit; the oldest is forgotten at the bound."""
        keys = self.keys
        keys[key] = (job, digest)
        if len(keys) > KEYS_MAX:
            del keys[next(iter(keys))]

    # -- where a job waits

    def wait_in_line(self, job: LiveJob) -> None:
        """Put the job in its line, so that it may be offered."""
        if isinstance(job, Array) and job.full:
            self.wait_for_elements(job)
            return
        job.wait = "line"
        self.in_line += 1
        if job.lane.request_class.pool.settings.ageing is not None:
            self.due.begin_to_age(job)
        lines = job.lane.lines
        priority = priority_of(job.order)
        line = lines.get(priority)
        if line is None:
            line = lines[priority] = WaitingLine()
        line.add(job)
        front = job.lane.front
        if not front or job.order < front:
            self.refront(job.lane)

    def wait_for_elements(self, array: Array) -> None:
        """Let the array wait for its elements: as many live as may, and the next waits until one has ended."""
        array.wait = "array"
        if not array.reported:
            self.unreported_arrays[array.id] = array

    def wait_until(self, job: LiveJob, at_ns: int) -> None:
        """Make the job (or its run) wait for a time; a job that was withdrawn for quota waits at most that long."""
        if job.state != "running" and job.wait != "returned":
            job.wait = "timer"
        self.due.set_timer(job, at_ns)

    def wait_for_capacity(self, job: LiveJob) -> None:
        """Let the job, withdrawn for quota, wait for capacity."""
        job.wait = "returned"
        self.returned[job.id] = job

    def owe(self, job: LiveJob) -> None:
        """The queue owes it an event; `job.end` says which."""
        job.wait = "owed"
        self.owed[job.id] = job

    def unwait(self, job: LiveJob) -> None:
        """Take it from wherever it waits."""
        wait = job.wait
        if wait == "line":
            self.in_line -= 1
            if job.ages_ns:
                self.due.age_no_more(job)
            lines, priority = job.lane.lines, priority_of(job.order)
            line = lines[priority]
            line.remove(job)
            if not line:
                del lines[priority]
            if job.order == job.lane.front:
                self.refront(job.lane)
        elif wait == "owed":
            del self.owed[job.id]
        elif wait == "returned":
            del self.returned[job.id]
        elif wait == "array":
            self.unreported_arrays.pop(job.id, None)
        if job.timer_ns:
            self.due.drop_timer(job)
        job.wait = ""

    def refront(self, lane: Lane) -> None:
        """The first of a lane may have changed: bring its leaf's fronts, wants and turn up to date."""
        leaf, request_class = lane.leaf, lane.request_class
        fronts, node = leaf.fronts, leaf.node
        before = lane.front
        if before:
            del fronts[bisect_left(fronts, (before,)) if len(fronts) > 1 else 0]
        job = lane.first()
        if job is None:
            lane.front = 0
            if before:
                self._waits_no_more(lane)
        else:
            lane.front = job.order
            insort(fronts, (job.order, job))
            if not before:
                self._waits_now(lane)
        front = fronts[0][0] if fronts else 0
        if front != node.front or not before or job is None:
            node.front = front
            if request_class.pool.ranking.views:
                request_class.pool.ranking.touch(node)

    def _waits_now(self, lane: Lane) -> None:
        request_class, wants = lane.request_class, lane.leaf.node.wants
        wants[request_class.mask] = wants.get(request_class.mask, 0) + 1
        request_class.waiting += 1
        request_class.pool.waiting += 1
        if lane.deferral is None:
            self.unreported[lane] = None

    def _waits_no_more(self, lane: Lane) -> None:
        request_class, node = lane.request_class, lane.leaf.node
        left = node.wants[request_class.mask] - 1
        if left:
            node.wants[request_class.mask] = left
        else:
            del node.wants[request_class.mask]
        request_class.waiting -= 1
        request_class.pool.waiting -= 1
        lane.deferral = None
        self.unreported.pop(lane, None)

    # -- offers and capacity

    def open_offer(self, job: LiveJob, rank: int) -> None:
        """The placer has an offer of it; its queue is charged."""
        lane = job.lane
        request_class = lane.request_class
        job.open, job.rank, job.offered_ns = True, rank, self.at_ns
        lane.offers[job.id] = job
        request_class.pool.charge(lane, 1)
        self.open += 1
        request_class.pool.offers[job.id] = job
        request_class.open += 1
        if request_class.parked_at == request_class.pool.capacity_count:
            self._count_parked(request_class.pool, 1)

    def close_offer(self, job: LiveJob) -> None:
        """The placer has placed or returned the offer."""
        request_class = job.lane.request_class
        job.open, job.rank, job.offered_ns, job.withdrawal = False, 0, 0, ""
        del job.lane.offers[job.id]
        self.open -= 1
        del request_class.pool.offers[job.id]
        request_class.open -= 1
        if request_class.parked_at == request_class.pool.capacity_count:
            self._count_parked(request_class.pool, -1)

    def _count_parked(self, pool: PoolState, more: int) -> None:
        pool.parked_open += more
        self.parked_open += more

    def settle_past(self, lane: Lane) -> None:
        """Bring past usage of the lane's leaf up to date before its charge changes."""
        past = lane.request_class.pool.past
        if past is not None:
            past.settle(lane.leaf.node, self.at_ns)

    def pool_of_node(self, node: str) -> PoolState | None:
        """Return the pool that a node belongs to, if the pool has queues; else None."""
        return self.pools.get(self.nodes.pool_of(node))

    def shrink(self, job: LiveJob, missing: int) -> None:
        """The placement of an elastic job has so many units less than it was charged for with its offer."""
        self.settle_past(job.lane)
        job.missing = missing
        job.lane.request_class.pool.charge_missing(job, -1)

    def uncharge(self, job: LiveJob) -> None:
        """Stop counting the job's resources against its queue."""
        lane = job.lane
        if job.missing:
            lane.request_class.pool.charge_missing(job, 1)
            job.missing = 0
        lane.request_class.pool.charge(lane, -1)
        if lane.running.pop(job.id, None) is not None and job.deadline_ns:
            self.due.set_alarm(job)

    def park(self, request_class: RequestClass) -> None:
        """The class was refused."""
        if not request_class.parked:
            request_class.parked_at = request_class.pool.capacity_count
            request_class.pool.parked_classes += 1
            self._count_parked(request_class.pool, request_class.open)

    def unpark(self, request_class: RequestClass) -> None:
        """Unpark the class because one of its jobs was placed."""
        if request_class.parked_at < 0:
            return
        if request_class.parked:
            self._count_parked(request_class.pool, -request_class.open)
            request_class.pool.parked_classes -= 1
        request_class.parked_at = -1

    def capacity_changed(self, pool: PoolState) -> None:
        """Nothing is parked there any more, and what was withdrawn may be offered again."""
        pool.capacity_count += 1
        if pool.parked_classes:
            self.parked_open -= pool.parked_open
            pool.parked_open = pool.parked_classes = 0
        if self.returned:
            for job in [job for job in self.returned.values() if job.lane.request_class.pool is pool]:
                self.unwait(job)
                self.wait_in_line(job)

    def settled(self, job: LiveJob, end: AttemptEnd) -> None:
        """The current attempt has ended: its quota is free, and an event is owed."""
        self.uncharge(job)
        if job.timer_ns:
            self.due.drop_timer(job)
        job.end = end
        self.owe(job)
