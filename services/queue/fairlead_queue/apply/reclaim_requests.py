"""Queues that shall give back what they hold beyond their limits, as a person asked with a change (`reclaim`): the state
of that. Called by `evolve`; what is done about it is in `reclaims.py`."""

from typing import NamedTuple

from fairlead_queue.fairness import users
from fairlead_queue.fairness.tree import Node
from fairlead_queue.state import State
from fairlead_queue.waiting.pools import Pool


class Over(NamedTuple):
    """A queue (or a user's part of one) that gives back what it holds beyond its limits."""

    pool: Pool
    node: Node


def note_wish(state: State, cause: str, by: str) -> None:
    """From here on, all that hold more than they may give it back."""
    for pool in state.pools.values():
        for node in pool.tree.nodes.values():
            if any(over_by(node)):
                state.reclaims[node.path] = (cause, by)


def forget_done(state: State) -> None:
    """Forget the reclaim requests of queues that are within their limits again."""
    for path in list(state.reclaims):
        over = find(state, path)
        if over is None or not any(over_by(over.node)):
            del state.reclaims[path]


def find(state: State, path: str) -> Over | None:
    """Return the queue or user named by a path of the state's reclaim requests, None if it is gone."""
    queue = state.queues.get(users.split(path)[0])
    node = queue.pool.tree.nodes.get(path) if queue is not None else None
    return Over(queue.pool, node) if queue is not None and node is not None else None


def over_by(node: Node) -> list[int]:
    """By resource, what is charged beyond the limit."""
    return [max(0, used - ceiling) for used, ceiling in zip(node.usage, node.ceiling, strict=True)]
