"""Effects of configured queues and pools on the state: trees, limits, leaves, accounts. Called by `evolve` only.

A change of amounts affects the queue and those above it. A pool is rebuilt from its jobs if the shape of the vectors
changes (a GPU model that is limited for the first time), or the sequencer, or the separation of users.
"""

from collections.abc import Iterable

from fairlead_queue.apply import claims
from fairlead_queue.apply.limits import limit_upwards, limit_users, measure, resources_in, resources_of
from fairlead_queue.apply.pool_rebuild import rebuild
from fairlead_queue.budgets import Account
from fairlead_queue.fairness.guarantees import pool_name
from fairlead_queue.fairness.users import is_users
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.lanes import Queue
from fairlead_queue.waiting.pools import Pool
from fairlead_schemas.queuefile.settings import RESOURCES, PoolSettings, QueueSettings


def set_pool(state: State, name: str, settings: PoolSettings) -> None:
    """A pool has these settings now."""
    pool = state.pools.get(name)
    if pool is None:
        pool = state.pools[name] = Pool(name, settings)
        measure(state, pool)
        if pool.past is not None:
            pool.past.begin(state.at_ns)
        return
    pool.settings = settings
    rebuild(state, pool)


def drop_pool(state: State, name: str) -> None:
    """A pool that no queue is in is gone."""
    del state.pools[name]


def set_queue(state: State, path: str, settings: QueueSettings) -> None:
    """A queue has these settings now, or is there for the first time."""
    queue = state.queues.get(path)
    if queue is None:
        anew = _add(state, path, settings)
    else:
        anew = _change(state, queue, settings)
    pool = state.queues[path].pool
    _set_account(state, path, settings)
    if anew or not resources_in(settings) <= set(pool.resources):
        rebuild(state, pool)
    else:
        limit_upwards(state, path)
        limit_users(state.queues[path])
    _limits_changed(state, pool)


def _add(state: State, path: str, settings: QueueSettings) -> bool:
    """Add a queue. Return True if its pool must be rebuilt."""
    parent = state.queues.get(path.rpartition("/")[0])
    pool = parent.pool if parent is not None else state.pools[pool_name({path: settings}, path)]
    state.queues[path] = Queue(path, settings, pool, pool.tree.add(path))
    if parent is None:
        return False
    parent.leaves.clear()  # it has no jobs: they wait below it from now on
    parent.node.leaf = None
    return pool.past is not None


def _change(state: State, queue: Queue, settings: QueueSettings) -> bool:
    """Change a queue's settings. Return True if its pool must be rebuilt."""
    told_apart = bool(queue.settings.users) != bool(settings.users)
    fewer = not (resources_in(queue.settings) - resources_in(settings)) <= set(RESOURCES)
    old, queue.settings = queue.pool, settings
    top = state.queues[queue.path.partition("/")[0]]
    pool = state.pools[pool_name({top.path: top.settings}, queue.path)]
    if old is not pool:
        for below in _subtree(state, queue.path):
            below.pool = pool
        rebuild(state, old)
    fewer = fewer and resources_of(state, pool) != pool.resources
    return told_apart or fewer or old is not pool


def remove_queue(state: State, path: str, move_to: str) -> None:
    """A queue is gone; what waited in it waits in another."""
    queue = state.queues[path]
    pool, above = queue.pool, path.rpartition("/")[0]
    if move_to:
        for job in [job for job in state.jobs.values() if job.lane.leaf.queue is queue]:
            claims.give_up(job)
            move(state, job, move_to)
    del state.queues[path]
    _close_account(state, path)
    for node in [*queue.node.children.values(), queue.node]:
        pool.tree.remove(node)
        pool.ranking.remove(node)
        if pool.past is not None:
            pool.past.forget(node)
    left = state.queues[above].node.children.values() if above else ()
    is_leaf_again = bool(left) and all(is_users(child) for child in left)
    if is_leaf_again or resources_of(state, pool) != pool.resources:
        rebuild(state, pool)
    else:
        limit_upwards(state, above)
    _limits_changed(state, pool)


def move(state: State, job: Job, path: str) -> None:
    """A waiting job waits in another queue of the same pool."""
    old = job.lane
    wait = job.wait
    if wait == "line":
        state.unwait(job)
    new = state.lane(path, job.user, old.klass.request)
    new.jobs += 1
    new.klass.jobs += 1
    state.leave(job)
    job.lane = new
    if wait == "line":
        state.wait_in_line(job)


def _limits_changed(state: State, pool: Pool) -> None:
    """Return jobs withdrawn for quota to the line, so that they may be offered again, and forget all refusals."""
    for job in [job for job in state.returned.values() if job.lane.klass.pool is pool]:
        state.unwait(job)
        state.wait_in_line(job)
    pool.forget_all()


def _subtree(state: State, path: str) -> Iterable[Queue]:
    return [queue for other, queue in state.queues.items() if _is_under(other, path)]


# ---------------------------------------------------------------------------------------- accounts


def limit_again(state: State, path: str) -> None:
    """Update the limits after a change of the spent state of the queue's budget: a queue that is demoted for it comes behind
    all others.
    """
    limit_upwards(state, path)
    state.queues[path].pool.forget_all()


def _set_account(state: State, path: str, settings: QueueSettings) -> None:
    """Set the queue's account. Usage of the running period continues if the period is unchanged; the mark is published again."""
    account = state.accounts.get(path)
    if account is not None and settings.budget is not None and account.budget.period == settings.budget.period:
        account.budget = settings.budget
    else:
        _close_account(state, path)
        if settings.budget is None:
            return
        account = state.accounts[path] = Account(path, settings.budget, state.at_ns)
        account.rate = sum(job.price for job in state.jobs.values() if _is_under(job.lane.leaf.queue.path, path))
    state.due.await_mark(account, state.at_ns)


def _close_account(state: State, path: str) -> None:
    account = state.accounts.pop(path, None)
    if account is not None:
        state.due.drop_mark(account)


def _is_under(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def count(state: State, job: Job, price: int, at_ns: int) -> None:
    """From this moment on the job counts so much more (or less) on its queue's account and on those above."""
    path = job.lane.leaf.queue.path if state.accounts else ""
    while path:
        account = state.accounts.get(path)
        if account is not None:
            account.settle(at_ns)
            account.rate += price
            state.due.await_mark(account, state.at_ns)
        path = path.rpartition("/")[0]
