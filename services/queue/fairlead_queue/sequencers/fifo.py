"""One line for the whole pool, whatever the queues have: first come, first served, or the newest first.

Which job came first the owner says with the number in `Node.front`; where `newest_first` is set it gives smaller
numbers to newer jobs, so the order itself is the same.
"""

from fairlead_queue.ordering import Face
from fairlead_queue.past_use import PastUse
from fairlead_queue.tree import Node


class Fifo:
    """Implements `ordering.Sequencer`."""

    newest_first = False
    by_saturation = False
    past: PastUse | None = None

    def leaf(self, node: Node, saturated: int) -> int:
        """The place of its first job; 0 when it has nothing to offer."""
        return 0 if node.closed else node.front

    def inner(self, node: Node, face: Face, saturated: int) -> int:
        """The first of all that wait below."""
        return face.order[0].key if face.order else 0

    def key(self, node: Node, face: Face) -> int | None:
        """By place."""
        return face.measure or None

    def sums(self) -> None:
        """Nothing adds up."""

    def change(self, sums: None, old: int | None, new: int | None) -> None:
        """As above."""


class Lifo(Fifo):
    """The newest first."""

    newest_first = True
