"""Users whom a queue tells apart: each has a node of his own below the queue's, under a name that no queue can have."""

from fairlead_queue.fairness.tree import USER_MARK, Limits, Node
from fairlead_schemas.queuefile.settings import ANY_USER, QueueSettings


def path_of(queue: str, user: str) -> str:
    """Return the path of a user's part of a queue in the tree. A user may have any name; the name of the user's node has no
    slash.
    """
    return f"{queue}/{USER_MARK}{user.replace('%', '%25').replace('/', '%2F')}"


def split(path: str) -> tuple[str, str]:
    """(queue, user) of a node's path; the user is "" where it is a queue's, or that of the user without a name."""
    queue, _, name = path.rpartition(f"/{USER_MARK}")
    return (queue, _user(name)) if queue else (path, "")


def is_users(node: Node) -> bool:
    """True for a user's part, false for a queue."""
    return node.name.startswith(USER_MARK)


def user_of(node: Node) -> str:
    """The user whose part it is; "" for a queue."""
    return _user(node.name.removeprefix(USER_MARK)) if is_users(node) else ""


def queue_of(node: Node) -> str:
    """Return the queue that a node represents; a user's part represents the queue that limits users."""
    return split(node.path)[0] if is_users(node) else node.path


def limits_of(settings: QueueSettings, user: str) -> Limits:
    """Return the limits of one user in a queue that limits users."""
    return Limits(maximum=settings.users.get(user, settings.users.get(ANY_USER, {})))


def _user(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
