"""The limits of queues as the tree gets them: from the settings, what those below are guaranteed, and spent budgets.
Called by `evolve` only."""

from collections.abc import Iterator, Mapping

from fairlead_queue.fairness import users
from fairlead_queue.fairness.guarantees import limits_of
from fairlead_queue.fairness.tree import Limits
from fairlead_queue.state import State
from fairlead_queue.waiting.lanes import Queue
from fairlead_queue.waiting.pools import Pool
from fairlead_schemas.queuefile.settings import RESOURCES, QueueSettings

#: A demoted queue comes behind its siblings, whatever they are guaranteed and whether or not they can use anything now.
DEMOTION = 1 << 22


class _Settings(Mapping[str, QueueSettings]):
    """{path: settings} of the queues as they are."""

    def __init__(self, state: State) -> None:
        self.queues = state.queues

    def __getitem__(self, path: str) -> QueueSettings:
        return self.queues[path].settings

    def __iter__(self) -> Iterator[str]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)


class _Below(Mapping[str, list[str]]):
    """{path: paths directly below it}; as little of it as is asked for."""

    def __init__(self, state: State) -> None:
        self.queues = state.queues

    def __getitem__(self, path: str) -> list[str]:
        children = self.queues[path].node.children.values()
        return sorted(child.path for child in children if not users.is_users(child))

    def __iter__(self) -> Iterator[str]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)


def limits_now(state: State, path: str) -> Limits:
    """Return the limits of a queue for the tree."""
    limits = limits_of(_Settings(state), _Below(state), path)
    account = state.accounts.get(path)
    if account is None or not account.is_spent("demote"):
        return limits
    return limits._replace(priority=limits.priority - DEMOTION)


def limit_upwards(state: State, path: str) -> None:
    """Limits of a queue and of those above it, whose guarantee may be the sum of theirs."""
    while path:
        queue = state.queues[path]
        queue.pool.tree.limit(queue.node, limits_now(state, path))
        path = path.rpartition("/")[0]


def limit_users(queue: Queue) -> None:
    """Limits of the users that the queue tells apart."""
    for leaf in queue.leaves.values():
        if leaf.user:
            queue.pool.tree.limit(leaf.node, users.limits_of(queue.settings, leaf.user))


def resources_of(state: State, pool: Pool) -> tuple[str, ...]:
    """The resources that some queue of the pool limits or is guaranteed, the ordinary three first."""
    named: set[str] = set()
    for queue in state.queues.values():
        if queue.pool is pool:
            named |= resources_in(queue.settings)
    return (*RESOURCES, *sorted(named.difference(RESOURCES)))


def resources_in(settings: QueueSettings) -> set[str]:
    """Return the resources that one queue's settings name."""
    named: set[str] = set()
    named.update(settings.guaranteed, settings.maximum, settings.borrowing, settings.lending)
    for amounts in settings.users.values():
        named.update(amounts)
    return named


def measure(state: State, pool: Pool) -> None:
    """The pool's capacity, from the nodes that are in it."""
    totals = dict.fromkeys(pool.resources, 0)
    for shape, count in state.nodes.count(pool.name).items():
        totals["gpu"] += count * shape.gpu_milli
        totals["cpu"] += count * shape.cpu_milli
        totals["memory"] += count * shape.memory_mib
        model = f"gpu:{shape.model}"
        if model in totals:
            totals[model] += count * shape.gpu_milli
    pool.tree.capacity = [totals[name] for name in pool.resources]
    pool.forget_all()
