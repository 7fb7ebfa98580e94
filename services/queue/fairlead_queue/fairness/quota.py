"""Guarantees and limits of queues, from their settings. A queue that names no guarantee of a resource has the sum of the
guarantees of the queues below it. Every queue is in the pool of the queue at the top of its path.

Users whom a queue tells apart: each has a node of his own below the queue's, under a name that no queue can have.
"""

from collections.abc import Mapping

from fairlead_queue.fairness.tree import USER_MARK, Limits, QueueNode
from fairlead_schemas.queuefile.settings import ANY_USER, DEFAULT_POOL, QueueSettings


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


def queue_limits(queues: Mapping[str, QueueSettings], below: Mapping[str, list[str]], path: str) -> Limits:
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


def user_path(queue: str, user: str) -> str:
    """Return the path of a user's part of a queue in the tree. A user may have any name; the name of the user's node has no
    slash.
    """
    return f"{queue}/{USER_MARK}{user.replace('%', '%25').replace('/', '%2F')}"


def split_user(path: str) -> tuple[str, str]:
    """(queue, user) of a node's path; the user is "" where it is a queue's, or that of the user without a name."""
    queue, _, name = path.rpartition(f"/{USER_MARK}")
    return (queue, _user(name)) if queue else (path, "")


def is_user_node(node: QueueNode) -> bool:
    """True for a user's part, false for a queue."""
    return node.name.startswith(USER_MARK)


def user_of(node: QueueNode) -> str:
    """The user whose part it is; "" for a queue."""
    return _user(node.name.removeprefix(USER_MARK)) if is_user_node(node) else ""


def queue_of(node: QueueNode) -> str:
    """Return the queue that a node represents; a user's part represents the queue that limits users."""
    return split_user(node.path)[0] if is_user_node(node) else node.path


def user_limits(settings: QueueSettings, user: str) -> Limits:
    """Return the limits of one user in a queue that limits users."""
    return Limits(maximum=settings.users.get(user, settings.users.get(ANY_USER, {})))


def _user(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
