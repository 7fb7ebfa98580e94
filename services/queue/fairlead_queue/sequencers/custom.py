"""Sequencers of your own: state one queue's key, and the order works on trees of any depth.

    class Smallest(QueueOrder):
        def key(self, queue: QueueView) -> tuple[int, ...]:
            return (sum(queue.usage),)

Siblings are put in the order of their keys at every level, smallest first; ties go by path. docs/concepts/sequencers.md
explains how a sequencer gets a name.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from fairlead_queue.fairness.ordering import Key, NodeView
from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Parts, QueueNode, QueueTree


class QueueView(NamedTuple):
    """Queue, or an inner node of the tree, in its present state. Amounts are in the order of `resources`."""

    path: str
    #: ("gpu", "cpu", "memory", …): milli-GPU, milli-CPU, MiB.
    resources: tuple[str, ...]
    #: What the pool has in all.
    capacity: tuple[int, ...]
    #: Charged to the queue and those below it: what is offered, placed and running.
    usage: tuple[int, ...]
    guaranteed: tuple[int, ...]
    #: Decayed past use; zeros unless the class sets `uses_past`.
    past_use: tuple[int, ...]
    weight: int
    priority: int
    #: The place of its first waiting job in the pool's line, smaller first.
    front: int


class QueueOrder:
    """Derive from it and write `key`. It must be pure: no clock, chance, network or files, and nothing kept between calls."""

    #: The newest job of the pool gets the smallest `QueueView.front`, instead of the oldest.
    newest_first = False
    #: Ask for `QueueView.past_use`, with the half-life of the pool's settings.
    uses_past = False

    def key(self, queue: QueueView) -> Key:
        """Return the key of a queue in which jobs wait, among its siblings: the smallest goes first. Integers only."""
        raise NotImplementedError


class CustomSequencer:
    """Sequencer that implements `ordering.Sequencer` with a given `QueueOrder`."""

    by_order = False
    stretch = 0
    by_saturation = False
    has_keys = False

    def __init__(self, tree: QueueTree, order: QueueOrder, past: PastUse) -> None:
        self.tree, self.order = tree, order
        self.newest_first = order.newest_first
        self.past = past if order.uses_past else None

    def state(self) -> "LinePlaces":
        """Return the state of a node in which no job waits."""
        return LinePlaces()

    def place(self, face: NodeView, saturated: int) -> Key | None:
        """Return the order's key. Raises TypeError when that is no tuple of integers: others do not compare exactly."""
        node, places = face.node, face.state
        if node.children:
            front = places.below[0] if places.below else None
        else:
            front = node.front if node.wants and not node.closed else None
        self._move(face, front)
        if front is None:
            return None
        key = self.order.key(self._view(node, front))
        if type(key) is not tuple or not all(isinstance(part, int) for part in key):
            name = type(self.order).__name__
            raise TypeError(f"{name}.key gave {key!r} for queue {node.path!r}, not a tuple of integers")
        return (key,)

    def leave(self, face: NodeView) -> None:
        """Remove the node's front, as if no job waited."""
        self._move(face, None)

    def keys(self, leaf: QueueNode, orders: list[int], gains: list[Parts], saturated: int) -> list[Key]:
        """Answer for no leaf: a custom order's key may be of a node's present state only."""
        raise NotImplementedError

    @staticmethod
    def _move(face: NodeView, front: int | None) -> None:
        """The first that waits there has another place."""
        places: LinePlaces = face.state
        if face.parent is not None:
            below = face.parent.state.below
            if places.front is not None:
                del below[bisect_left(below, places.front)]
            if front is not None:
                insort(below, front)
        places.front = front

    def _view(self, node: QueueNode, front: int) -> QueueView:
        tree = self.tree
        past = tuple(self.past.value(node)) if self.past is not None else (0,) * tree.width
        return QueueView(
            node.path,
            tree.resources,
            tuple(tree.capacity),
            tuple(node.usage),
            tuple(node.guaranteed),
            past,
            node.weight,
            node.priority,
            front,
        )


class LinePlaces:
    """Places in the pool's line of a node's first job, and of those of its children, rising."""

    __slots__ = ("below", "front")

    def __init__(self) -> None:
        self.front: int | None = None
        self.below: list[int] = []
