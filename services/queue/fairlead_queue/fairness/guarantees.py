"""Guarantees and limits of queues, from their settings. A queue that names no guarantee of a resource has the sum of the
guarantees of the queues below it. Every queue is in the pool of the queue at the top of its path.
"""

from collections.abc import Mapping

from fairlead_queue.fairness.tree import Limits
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, QueueSettings


def children_of(queues: Mapping[str, QueueSettings]) -> dict[str, list[str]]:
    """{path ("" for the top): paths directly below it, sorted}."""
    below: dict[str, list[str]] = {}
    for path in queues:
        below.setdefault(path.rpartition("/")[0], []).append(path)
    for paths in below.values():
        paths.sort()
    return below


def guarantee(queues: Mapping[str, QueueSettings], below: Mapping[str, list[str]], path: str, resource: str) -> int:
    """Return a queue's guarantee of a resource: its own setting, else the sum of those below it."""
    own = queues[path].guaranteed.get(resource)
    if own is not None:
        return own
    return sum(guarantee(queues, below, child, resource) for child in below.get(path, ()))


def limits_of(queues: Mapping[str, QueueSettings], below: Mapping[str, list[str]], path: str) -> Limits:
    """The limits that the tree gets for one queue."""
    settings = queues[path]
    resources = _guaranteed_below(queues, below, path)
    guaranteed = {resource: guarantee(queues, below, path, resource) for resource in sorted(resources)}
    return Limits(
        guaranteed, settings.maximum, settings.borrowing, settings.lending, settings.weight, settings.priority
    )


def _guaranteed_below(queues: Mapping[str, QueueSettings], below: Mapping[str, list[str]], path: str) -> set[str]:
    found = set(queues[path].guaranteed)
    for child in below.get(path, ()):
        found |= _guaranteed_below(queues, below, child)
    return found


def pool_name(queues: Mapping[str, QueueSettings], path: str) -> str:
    """The pool of a queue: that of the queue at the top of its path."""
    top = queues.get(path.partition("/")[0])
    return (top.pool if top is not None else "") or DEFAULT_POOL
