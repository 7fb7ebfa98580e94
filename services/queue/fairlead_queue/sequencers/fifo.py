"""Sequencers with one line for the whole pool, whatever the queues have: first come, first served, newest first, or by
promised end.

The owner states the order of jobs with the number in `Node.front`. Where `newest_first` is set, the owner gives smaller
numbers to newer jobs, so the order itself is the same.
"""

from fairlead_queue.fairness.ordering import Key, NodeView
from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Parts, QueueNode


class Fifo:
    """Implements `ordering.Sequencer`."""

    newest_first = False
    by_order = True
    stretch = 0
    by_saturation = False
    has_keys = True
    past: PastUse | None = None

    def state(self) -> None:
        """Nothing to remember."""

    def place(self, face: NodeView, saturated: int) -> Key | None:
        """By the first of all that wait below."""
        leaf = face.turn
        return (leaf.front,) if leaf is not None and leaf.front and not leaf.closed else None

    def leave(self, face: NodeView) -> None:
        """Nothing to forget."""

    def keys(self, leaf: QueueNode, orders: list[int], gains: list[Parts], saturated: int) -> list[Key]:
        """By each job's own place."""
        return [(order,) for order in orders]


class Lifo(Fifo):
    """The newest first."""

    newest_first = True


class Promised(Fifo):
    """Order by the end that each job is promised when it is submitted: four times its time limit later.

    A short job has an early promised end, so it goes early. A promise never moves, so no job that comes after a job's
    promised end goes before it. Jobs without a time limit have no promise and come last.
    """

    stretch = 4


class MissingSequencer(Fifo):
    """Placeholder for a sequencer that is not installed here: a log can be folded without it, but no decision can be made."""

    has_keys = False

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def place(self, face: NodeView, saturated: int) -> Key | None:
        """Raises ValueError naming what is missing."""
        raise ValueError(self.reason)
