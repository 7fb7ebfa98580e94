"""All folded state of the queue service, and the bookkeeping that keeps its indexes true.

Mutable for speed; only `evolve` calls what changes it, and `decide` where it takes it back. It knows no event and no
rule: here it is written what follows from "this job now waits there", in `evolve` what an event means, and in
`decide` what should happen next.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from fairlead_queue.budgets import Account
from fairlead_queue.fairness.tree import USER_MARK, Limits
from fairlead_queue.limits import KEYS_MAX
from fairlead_queue.waiting.jobs import Array, End, Job
from fairlead_queue.waiting.lanes import Klass, Lane, Leaf, Queue
from fairlead_queue.waiting.line import Line
from fairlead_queue.waiting.order import RANK_STEP, priority_of
from fairlead_queue.waiting.pools import Pool, pool_of
from fairlead_schemas.jobspec import PRIORITY_MAX
from fairlead_schemas.queues import ANY_USER, DEFAULT_POOL, PoolSettings, QueueSettings
from fairlead_schemas.resources import Request


class Shape(NamedTuple):
    """What one node has in all, and where it belongs."""

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    pool: str = DEFAULT_POOL
    model: str = ""


class State:
    """Everything that a decision may read."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {DEFAULT_POOL: Pool(DEFAULT_POOL, PoolSettings())}
        self.queues: dict[str, Queue] = {}
        #: {queue: what it has used of its budget}
        self.accounts: dict[str, Account] = {}
        self.classes: dict[Request, Klass] = {}
        #: Live jobs by id: single jobs, arrays, born elements.
        self.jobs: dict[str, Job] = {}
        #: {id: end state}, oldest first, until they are retired.
        self.finished: dict[str, str] = {}
        #: {idempotency key: (job, digest)}, oldest first.
        self.keys: dict[str, tuple[str, str]] = {}
        #: {node: what it has}; lost nodes still count, they may come back.
        self.nodes: dict[str, Shape] = {}
        #: {pool: distinct shapes, largest first} (derived).
        self.shapes: dict[str, list[Shape]] = {}
        #: {pool: {shape: how many nodes have it}} (derived).
        self.shape_counts: dict[str, dict[Shape, int]] = {}
        #: The number of the next job, its place in line (order.py), and the rank of the next offer.
        self.next_number = self.next_place = 1
        self.next_rank = RANK_STEP
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
        self.owed: dict[str, Job] = {}
        #: Arrays whose elements are still to be stopped.
        self.stopping: dict[str, Array] = {}
        #: {path in the tree: (the event that asked, who)} of queues that give back what they hold beyond their limits.
        self.reclaims: dict[str, tuple[str, str]] = {}
        #: Jobs recalled for quota that wait for their pool's capacity to change (derived).
        self.returned: dict[str, Job] = {}
        #: {job: the jobs that wait for its end} (derived).
        self.dependents: dict[str, dict[str, Job]] = {}
        #: (Unix ns, id) of every time that the queue waits for, rising (derived).
        self.timers: list[tuple[int, str]] = []
        #: The same for deadlines: when a job can no longer meet its own.
        self.deadlines: list[tuple[int, str]] = []
        #: (Unix ns, queue) of every time at which the mark of a budget may be another one (derived).
        self.marks: list[tuple[int, str]] = []
        #: The same for jobs in line whose priority rises with time.
        self.ages: list[tuple[int, str]] = []
        #: Lanes in which somebody waits and nothing was said why (derived; ordered by when that began).
        self.unexplained: dict[Lane, None] = {}
        #: The same of arrays that wait for elements of their own (derived).
        self.silent_arrays: dict[str, Array] = {}
        #: How many jobs stand in lines; an array counts once (derived).
        self.in_line = 0

    # -- leaves and lanes

    def leaf(self, queue: Queue, user: str) -> Leaf:
        """Where a user's jobs wait in a queue, made where it is missing."""
        limits = queue.settings.users
        key = user if limits else ""
        leaf = queue.leaves.get(key)
        if leaf is None:
            node = queue.node
            if limits:
                node = queue.pool.tree.add(self.user_path(queue, user), user_limits(queue.settings, user))
                queue.pool.ranking.touch(node)
            leaf = queue.leaves[key] = Leaf(queue, key, node)
        return leaf

    @staticmethod
    def user_path(queue: Queue, user: str) -> str:
        """Where a user's part of a queue stands in the tree; a name may have any letters, its node's has no slash."""
        return f"{queue.path}/{USER_MARK}{user.replace('%', '%25').replace('/', '%2F')}"

    @staticmethod
    def user_of(name: str) -> str:
        """The user of such a node's name, without its mark."""
        return name.replace("%2F", "/").replace("%25", "%")

    def lane(self, path: str, user: str, request: Request) -> Lane:
        """The lane of a queue, a user and a class, made where it is missing."""
        leaf = self.leaf(self.queues[path], user)
        lane = leaf.lanes.get(request)
        if lane is None:
            klass = self.classes.get(request)
            if klass is None:
                pool = self.pools[pool_of(request)]
                klass = self.classes[request] = pool.classes[request] = Klass(request, pool)
            lane = leaf.lanes[klass.request] = Lane(leaf, klass)
        return lane

    # -- jobs come and go

    def add(self, job: Job) -> None:
        """A job enters."""
        self.jobs[job.id] = job
        job.lane.jobs += 1
        job.lane.klass.jobs += 1
        if job.after:
            for other in job.after:
                self.dependents.setdefault(other, {})[job.id] = job

    def remove(self, job: Job) -> None:
        """A job leaves; its lane and class go with their last."""
        del self.jobs[job.id]
        if job.after:
            self.depend_no_more(job)
        self.leave(job)

    def leave(self, job: Job) -> None:
        """A job leaves its lane; what was there for it alone goes too."""
        lane = job.lane
        klass, leaf = lane.klass, lane.leaf
        lane.jobs -= 1
        klass.jobs -= 1
        if lane.jobs:
            return
        del leaf.lanes[klass.request]
        self.unexplained.pop(lane, None)
        if klass.jobs == 0:
            klass.pool.parked_classes -= klass.parked
            del self.classes[klass.request], klass.pool.classes[klass.request]

    def depend_no_more(self, job: Job) -> None:
        """It waits for nobody's end any more."""
        for other in list(job.after or ()):
            self.depend_no_more_on(job, other)
        job.after = None

    def depend_no_more_on(self, job: Job, other: str) -> None:
        """It waits for this job's end no more."""
        assert job.after is not None
        del job.after[other]
        waiting = self.dependents[other]
        del waiting[job.id]
        if not waiting:
            del self.dependents[other]

    def remember_key(self, key: str, job: str, digest: str) -> None:
        """Keep a keyed submit; the oldest is forgotten at the bound."""
        keys = self.keys
        keys[key] = (job, digest)
        if len(keys) > KEYS_MAX:
            del keys[next(iter(keys))]

    # -- where a job waits

    def wait_in_line(self, job: Job) -> None:
        """It may be offered."""
        if isinstance(job, Array) and job.full:
            self.wait_for_elements(job)
            return
        job.wait = "line"
        self.in_line += 1
        if job.lane.klass.pool.settings.ageing is not None:
            self._begin_to_age(job)
        lines = job.lane.lines
        priority = priority_of(job.order)
        line = lines.get(priority)
        if line is None:
            line = lines[priority] = Line()
        line.add(job)
        front = job.lane.front
        if not front or job.order < front:
            self.refront(job.lane)

    def wait_for_elements(self, array: Array) -> None:
        """As many of them live as may: the next one waits until one has ended."""
        array.wait = "array"
        if not array.told:
            self.silent_arrays[array.id] = array

    def wait_until(self, job: Job, at_ns: int) -> None:
        """It (or its run) waits for a time; what was recalled for quota for that at most."""
        if job.timer_ns:
            self.drop_timer(job)
        if job.state != "running" and job.wait != "returned":
            job.wait = "timer"
        job.timer_ns = at_ns
        insort(self.timers, (at_ns, job.id))

    def wait_for_capacity(self, job: Job) -> None:
        """It was recalled for quota."""
        job.wait = "returned"
        self.returned[job.id] = job

    def owe(self, job: Job) -> None:
        """The queue owes it an event; `job.end` says which."""
        job.wait = "owed"
        self.owed[job.id] = job

    def unwait(self, job: Job) -> None:
        """Take it from wherever it waits."""
        wait = job.wait
        if wait == "line":
            self.in_line -= 1
            if job.ages_ns:
                self.age_no_more(job)
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
            self.silent_arrays.pop(job.id, None)
        if job.timer_ns:
            self.drop_timer(job)
        job.wait = ""

    def refront(self, lane: Lane) -> None:
        """The first of a lane may have changed: bring its leaf's fronts, wants and turn up to date."""
        leaf, klass = lane.leaf, lane.klass
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
            if klass.pool.ranking.views:
                klass.pool.ranking.touch(node)

    def _waits_now(self, lane: Lane) -> None:
        klass, wants = lane.klass, lane.leaf.node.wants
        wants[klass.mask] = wants.get(klass.mask, 0) + 1
        klass.waiting += 1
        klass.pool.waiting += 1
        if lane.deferral is None:
            self.unexplained[lane] = None

    def _waits_no_more(self, lane: Lane) -> None:
        klass, node = lane.klass, lane.leaf.node
        left = node.wants[klass.mask] - 1
        if left:
            node.wants[klass.mask] = left
        else:
            del node.wants[klass.mask]
        klass.waiting -= 1
        klass.pool.waiting -= 1
        lane.deferral = None
        self.unexplained.pop(lane, None)

    def _begin_to_age(self, job: Job) -> None:
        ageing = job.lane.klass.pool.settings.ageing
        assert ageing is not None
        if job.aged < ageing.most and priority_of(job.order) < PRIORITY_MAX:
            job.ages_ns = job.since_ns + (job.aged + 1) * ageing.every_ns
            insort(self.ages, (job.ages_ns, job.id))

    def age_no_more(self, job: Job) -> None:
        """Its priority stays as it is, for now."""
        if job.ages_ns:
            del self.ages[bisect_left(self.ages, (job.ages_ns, job.id))]
            job.ages_ns = 0

    def drop_timer(self, job: Job) -> None:
        """Forget the time it waits for, if any."""
        if job.timer_ns:
            del self.timers[bisect_left(self.timers, (job.timer_ns, job.id))]
            job.timer_ns = 0

    def set_deadline(self, job: Job, deadline_ns: int) -> None:
        """When it shall have ended (0: never mind)."""
        self._drop_alarm(job)
        job.deadline_ns = deadline_ns
        self.set_alarm(job)

    def set_alarm(self, job: Job) -> None:
        """From when on its deadline is missed: while it waits, when too little time is left to run; else at the deadline
        itself. To be called when that has changed."""
        self._drop_alarm(job)
        if job.deadline_ns:
            has_place = job.id in job.lane.running
            job.alarm_ns = job.deadline_ns if has_place else job.deadline_ns - max(0, job.total_ns - job.used_ns)
            insort(self.deadlines, (job.alarm_ns, job.id))

    def _drop_alarm(self, job: Job) -> None:
        if job.alarm_ns:
            del self.deadlines[bisect_left(self.deadlines, (job.alarm_ns, job.id))]
            job.alarm_ns = 0

    def await_mark(self, account: Account) -> None:
        """What the account counts has changed, and so has when there is something to be said of it."""
        self.drop_mark(account)
        account.due_ns = account.next_ns(self.at_ns) or 0
        if account.mark(self.at_ns) != account.reached:
            account.due_ns = self.at_ns
        if account.due_ns:
            insort(self.marks, (account.due_ns, account.path))

    def drop_mark(self, account: Account) -> None:
        """Nothing is to be said of it."""
        if account.due_ns:
            del self.marks[bisect_left(self.marks, (account.due_ns, account.path))]
            account.due_ns = 0

    # -- offers and capacity

    def open_offer(self, job: Job, rank: int) -> None:
        """The placer has an offer of it; its queue is charged."""
        lane = job.lane
        klass = lane.klass
        job.open, job.rank, job.offered_ns = True, rank, self.at_ns
        lane.offers[job.id] = job
        klass.pool.charge(lane, 1)
        self.open += 1
        klass.pool.offers[job.id] = job
        klass.open += 1
        if klass.parked_at == klass.pool.capacity_count:
            self._count_parked(klass.pool, 1)

    def close_offer(self, job: Job) -> None:
        """The placer has placed or returned the offer."""
        klass = job.lane.klass
        job.open, job.rank, job.offered_ns, job.recall = False, 0, 0, ""
        del job.lane.offers[job.id]
        self.open -= 1
        del klass.pool.offers[job.id]
        klass.open -= 1
        if klass.parked_at == klass.pool.capacity_count:
            self._count_parked(klass.pool, -1)

    def _count_parked(self, pool: Pool, more: int) -> None:
        pool.parked_open += more
        self.parked_open += more

    def settle_past(self, lane: Lane) -> None:
        """What the lane's leaf has used so far counts, before its charge changes."""
        past = lane.klass.pool.past
        if past is not None:
            past.settle(lane.leaf.node, self.at_ns)

    def set_node(self, node: str, shape: Shape) -> None:
        """A node is there with this much; `shapes` follows."""
        old = self.nodes.get(node)
        self.nodes[node] = shape
        if old is not None:
            counts = self.shape_counts[old.pool]
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
                self.shapes[old.pool].remove(old)
        counts = self.shape_counts.setdefault(shape.pool, {})
        if shape not in counts:
            counts[shape] = 0
            self.shapes[shape.pool] = sorted(counts, reverse=True)
        counts[shape] += 1

    def pool_of_node(self, node: str) -> Pool | None:
        """Where a node belongs; one that is not known is of the default pool."""
        shape = self.nodes.get(node)
        return self.pools.get(shape.pool if shape is not None else DEFAULT_POOL)

    def uncharge(self, job: Job) -> None:
        """What it held counts against its queue no longer."""
        lane = job.lane
        lane.klass.pool.charge(lane, -1)
        if lane.running.pop(job.id, None) is not None and job.deadline_ns:
            self.set_alarm(job)

    def park(self, klass: Klass) -> None:
        """The class was refused."""
        if not klass.parked:
            klass.parked_at = klass.pool.capacity_count
            klass.pool.parked_classes += 1
            self._count_parked(klass.pool, klass.open)

    def unpark(self, klass: Klass) -> None:
        """One of the class was placed."""
        if klass.parked_at < 0:
            return
        if klass.parked:
            self._count_parked(klass.pool, -klass.open)
            klass.pool.parked_classes -= 1
        klass.parked_at = -1

    def capacity_changed(self, pool: Pool) -> None:
        """Nothing is parked there any more, and what was recalled may be offered again."""
        pool.capacity_count += 1
        if pool.parked_classes:
            self.parked_open -= pool.parked_open
            pool.parked_open = pool.parked_classes = 0
        if self.returned:
            for job in [job for job in self.returned.values() if job.lane.klass.pool is pool]:
                self.unwait(job)
                self.wait_in_line(job)

    def settled(self, job: Job, end: End) -> None:
        """The current attempt has ended: its quota is free, and an event is owed."""
        self.uncharge(job)
        if job.timer_ns:
            self.drop_timer(job)
        job.end = end
        self.owe(job)


def user_limits(settings: QueueSettings, user: str) -> Limits:
    """What one user may hold in a queue that limits users."""
    return Limits(maximum=settings.users.get(user, settings.users.get(ANY_USER, {})))
