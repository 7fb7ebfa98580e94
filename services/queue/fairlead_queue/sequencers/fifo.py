"""One line for the whole pool, whatever the queues have: first come, first served, or the newest first.

Which job came first the owner says with the number in `Node.front`; where `newest_first` is set it gives smaller
numbers to newer jobs, so the order itself is the same.
"""

from fairlead_queue.ordering import Face, Key
from fairlead_queue.past_use import PastUse


class Fifo:
    """Implements `ordering.Sequencer`."""

    newest_first = False
    by_saturation = False
    past: PastUse | None = None

    def state(self) -> None:
        """Nothing to remember."""

    def place(self, face: Face, saturated: int) -> Key | None:
        """By the first of all that wait below."""
        leaf = face.turn
        return (leaf.front,) if leaf is not None and leaf.front and not leaf.closed else None

    def leave(self, face: Face) -> None:
        """Nothing to forget."""


class Lifo(Fifo):
    """The newest first."""

    newest_first = True
