"""What configured queues and pools mean for the state: trees, limits, leaves, accounts. Called by `evolve` only.

A change of amounts touches the queue and those above it. What changes the shape of the vectors (a GPU model that is
limited for the first time), the sequencer, or whether users are told apart, builds the pool anew from its jobs.
"""

from collections.abc import Iterable

from fairlead_queue import claims
from fairlead_queue.budgets import Account
from fairlead_queue.configuration import children_of, limits_of, pool_name
from fairlead_queue.jobs import Array, Job
from fairlead_queue.lanes import Lane, Queue
from fairlead_queue.order import offset_of, place_of
from fairlead_queue.pools import Pool
from fairlead_queue.state import State, user_limits
from fairlead_queue.tree import Limits
from fairlead_schemas.lifecycle import CHARGED_STATES
from fairlead_schemas.queues import QUEUE_PRIORITY_MAX, RESOURCES, PoolSettings, QueueSettings

#: More than any two queues' priorities differ by.
DEMOTION = 10 * QUEUE_PRIORITY_MAX


def set_pool(state: State, name: str, settings: PoolSettings) -> None:
    """A pool has these settings now."""
    pool = state.pools.get(name)
    if pool is None:
        state.pools[name] = Pool(name, settings)
        measure(state, state.pools[name])
        return
    pool.settings = settings
    rebuild(state, pool)


def drop_pool(state: State, name: str) -> None:
    """A pool that no queue is in is gone."""
    del state.pools[name]


def set_queue(state: State, path: str, settings: QueueSettings) -> None:
    """A queue has these settings now, or is there for the first time."""
    queue = state.queues.get(path)
    configured = {known: each.settings for known, each in state.queues.items()} | {path: settings}
    pool = state.pools[pool_name(configured, path)]
    moved = queue is not None and queue.pool is not pool
    anew = moved or (queue is not None and bool(queue.settings.users) != bool(settings.users))
    if queue is None:
        parent = state.queues.get(path.rpartition("/")[0])
        if parent is not None:
            parent.leaves.clear()  # it had no jobs: they wait below it from now on
            parent.node.leaf = None
        state.queues[path] = Queue(path, settings, pool, pool.tree.add(path))
        pool.forget_all()
    else:
        old, queue.settings = queue.pool, settings
        if moved:
            for below in _subtree(state, path):
                below.pool = pool
            rebuild(state, old)
    if anew or _resources(state, pool) != pool.resources:
        rebuild(state, pool)
    else:
        _limit_upwards(state, path)
        _limit_users(state.queues[path])
    _set_account(state, path, settings)
    state_of_waiting_changed(state, pool)


def remove_queue(state: State, path: str, move_to: str) -> None:
    """A queue is gone; what waited in it waits in another."""
    queue = state.queues[path]
    if move_to:
        for job in [job for job in state.jobs.values() if job.lane.leaf.queue is queue]:
            move(state, job, move_to)
    del state.queues[path]
    state.accounts.pop(path, None)
    for node in [*queue.node.children.values(), queue.node]:
        queue.pool.tree.remove(node)
        queue.pool.ranking.remove(node)
        if queue.pool.past is not None:
            queue.pool.past.forget(node)
    _limit_upwards(state, path.rpartition("/")[0])
    queue.pool.forget_all()
    if _resources(state, queue.pool) != queue.pool.resources:
        rebuild(state, queue.pool)


def move(state: State, job: Job, path: str) -> None:
    """A waiting job waits in another queue of the same pool."""
    old = job.lane
    wait, timer_ns = job.wait, job.timer_ns
    if wait == "line":
        state.unwait(job)
    job.lane = state.lane(path, job.user, old.klass.request)
    job.lane.jobs += 1
    job.lane.klass.jobs += 1
    job_lane, job.lane = job.lane, old
    state.leave(job)
    job.lane = job_lane
    if wait == "line":
        state.wait_in_line(job)
    assert job.timer_ns == timer_ns


def renew_order(job: Job, priority: int, *, place: int = -1, newest_first: bool | None = None) -> None:
    """Its order with another priority, deadline or place (-1: the one it has, counted as `newest_first` says)."""
    pool = job.lane.klass.pool
    if place < 0:
        was = pool.sequencer.newest_first if newest_first is None else newest_first
        place = place_of(job.order, newest_first=was)
    offset = offset_of(job.order) if isinstance(job, Array) or job.parent is not None else 0
    job.order = pool.order(
        priority, place, offset, deadline_ns=job.deadline_ns, submitted_ns=job.submitted_ns, total_ns=job.total_ns
    )


def state_of_waiting_changed(state: State, pool: Pool) -> None:
    """Other limits: what was recalled for quota may be offered again, and refusals are looked at anew."""
    for job in [job for job in state.returned.values() if job.lane.klass.pool is pool]:
        state.unwait(job)
        state.wait_in_line(job)
    pool.forget_all()


def measure(state: State, pool: Pool) -> None:
    """The pool's capacity, from the nodes that are in it."""
    totals = dict.fromkeys(pool.resources, 0)
    for shape in state.nodes.values():
        if shape.pool == pool.name:
            totals["gpu"] += shape.gpu_milli
            totals["cpu"] += shape.cpu_milli
            totals["memory"] += shape.memory_mib
            model = f"gpu:{shape.model}"
            if model in totals:
                totals[model] += shape.gpu_milli
    pool.tree.capacity = [totals[name] for name in pool.resources]
    pool.forget_all()


# ---------------------------------------------------------------------------------------- limits


def _settings(state: State) -> dict[str, QueueSettings]:
    return {path: queue.settings for path, queue in state.queues.items()}


def _limit_upwards(state: State, path: str) -> None:
    """Limits of a queue and of those above it, whose guarantee may be the sum of theirs."""
    settings = _settings(state)
    below = children_of(settings)
    while path:
        queue = state.queues[path]
        queue.pool.tree.limit(queue.node, _demoted(state, path, limits_of(settings, below, path)))
        path = path.rpartition("/")[0]


def _demoted(state: State, path: str, limits: Limits) -> Limits:
    account = state.accounts.get(path)
    if account is None or account.reached < 100 or account.budget.when_spent != "demote":
        return limits
    return limits._replace(priority=limits.priority - DEMOTION)


def _limit_users(queue: Queue) -> None:
    for leaf in queue.leaves.values():
        if leaf.user:
            queue.pool.tree.limit(leaf.node, user_limits(queue.settings, leaf.user))


def _resources(state: State, pool: Pool) -> tuple[str, ...]:
    """The resources that some queue of the pool limits or is guaranteed, the ordinary three first."""
    named: set[str] = set()
    for queue in state.queues.values():
        if queue.pool is pool:
            settings = queue.settings
            named.update(settings.guaranteed, settings.maximum, settings.borrowing, settings.lending)
            for amounts in settings.users.values():
                named.update(amounts)
    return (*RESOURCES, *sorted(named.difference(RESOURCES)))


def _subtree(state: State, path: str) -> Iterable[Queue]:
    return [queue for other, queue in state.queues.items() if other == path or other.startswith(f"{path}/")]


# ---------------------------------------------------------------------------------------- anew


def rebuild(state: State, pool: Pool) -> None:
    """A new tree from the settings and the jobs. What was said of a lane, what is claimed and what was used in the
    past stay."""
    past = pool.past.dump() if pool.past is not None else None
    claimed = {node.path: node.claim.holder for node in pool.tree.nodes.values() if node.claim is not None}
    pool.shape(_resources(state, pool))
    measure(state, pool)
    settings = _settings(state)
    below = children_of(settings)
    for path, queue in sorted(state.queues.items()):
        if queue.pool is pool:
            queue.node = pool.tree.add(path, _demoted(state, path, limits_of(settings, below, path)))
            queue.leaves = {}
    pool.waiting = 0
    for klass in pool.classes.values():
        klass.need = pool.amounts(klass.request)
        klass.mask = pool.mask(klass.need)
        klass.waiting = 0
    _relane(state, pool)
    if pool.past is not None and past is not None:
        pool.past.load(past)
    for path, holder in sorted(claimed.items()):
        node, job = pool.tree.nodes.get(path), state.jobs[holder]
        if node is not None:
            claims.put(state, node, job)


def _relane(state: State, pool: Pool) -> None:
    lanes: dict[Lane, Lane] = {}
    for lane in list(state.unexplained):
        if lane.klass.pool is pool:
            del state.unexplained[lane]
    for job in state.jobs.values():
        old = job.lane
        if old.klass.pool is not pool:
            continue
        lane = job.lane = state.lane(old.leaf.queue.path, job.user, old.klass.request)
        lane.jobs += 1
        if old not in lanes:
            lanes[old] = lane
            lane.deferral = old.deferral
        if job.open:
            lane.offers[job.id] = job
        if job.id in old.running:
            lane.running[job.id] = job
        if job.state in CHARGED_STATES and job.end is None and not isinstance(job, Array):
            pool.charge(lane, 1)
        if job.wait == "line":
            state.in_line -= 1
            state.wait_in_line(job)


# ---------------------------------------------------------------------------------------- accounts


def limit_again(state: State, path: str) -> None:
    """Whether the queue's budget is spent has changed: a queue that is demoted for it comes behind all others."""
    queue = state.queues[path]
    _limit_upwards(state, path)
    queue.pool.forget_all()


def _set_account(state: State, path: str, settings: QueueSettings) -> None:
    old = state.accounts.pop(path, None)
    if settings.budget is None:
        return
    account = state.accounts[path] = Account(settings.budget, state.at_ns)
    if old is not None and old.budget.period == settings.budget.period:
        old.settle(state.at_ns)
        account.used, account.rate, account.reached = old.used, old.rate, old.reached
    else:
        account.rate = sum(job.price for job in state.jobs.values() if _is_under(job.lane.leaf.queue.path, path))


def _is_under(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def accounts_of(state: State, path: str) -> list[Account]:
    """The accounts that a queue's use counts on: its own and those above it."""
    if not state.accounts:
        return []
    found: list[Account] = []
    while path:
        account = state.accounts.get(path)
        if account is not None:
            found.append(account)
        path = path.rpartition("/")[0]
    return found
