"""A sequencer of your own: say for one queue where it stands, and it works on trees of any depth.

    class Smallest(QueueOrder):
        def key(self, queue: QueueView) -> tuple[int, ...]:
            return (sum(queue.usage),)

Siblings are put in the order of their keys at every level, smallest first; ties go by path. docs/sequencers.md says how
it gets a name.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from fairlead_queue.ordering import Face
from fairlead_queue.past_use import PastUse
from fairlead_queue.tree import Node, Tree

type Key = tuple[int, ...]


class QueueView(NamedTuple):
    """One queue, or an inner node of the tree, as it is now. Amounts are in the order of `resources`."""

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
        """Where a queue in which jobs wait stands among its siblings: the smallest goes first. Integers only."""
        raise NotImplementedError


class Keyed:
    """Implements `ordering.Sequencer` by somebody's `QueueOrder`."""

    by_saturation = False

    def __init__(self, tree: Tree, order: QueueOrder, past: PastUse) -> None:
        self.tree, self.order = tree, order
        self.newest_first = order.newest_first
        self.past = past if order.uses_past else None

    def leaf(self, node: Node, saturated: int) -> int | None:
        """The place of its first job; None when it has nothing to offer."""
        return node.front if node.wants and not node.closed else None

    def inner(self, node: Node, face: Face, saturated: int) -> int | None:
        """The first of all that wait below."""
        fronts: list[int] = face.sums
        return fronts[0] if fronts else None

    def key(self, node: Node, face: Face) -> Key | None:
        """What the order says. Raises TypeError when that is no tuple of integers: others do not compare exactly."""
        if face.measure is None:
            return None
        past = self.past.value(node) if self.past is not None else [0] * self.tree.width
        tree = self.tree
        key = self.order.key(
            QueueView(
                node.path, tree.resources, tuple(tree.capacity), tuple(node.usage), tuple(node.guaranteed), tuple(past),
                node.weight, node.priority, face.measure,
            )
        )  # fmt: skip
        if type(key) is not tuple or not all(type(part) is int for part in key):
            raise TypeError(
                f"{type(self.order).__name__}.key gave {key!r} for queue {node.path!r}, not a tuple of integers"
            )
        return key

    def sums(self) -> list[int]:
        """The children's places, rising."""
        return []

    def change(self, sums: list[int], old: int | None, new: int | None) -> None:
        """A child's place is another."""
        if old is not None:
            del sums[bisect_left(sums, old)]
        if new is not None:
            insort(sums, new)
