"""Queues that people have held (nothing new of them starts) or drained (they accept no further jobs)."""

from collections.abc import Iterable


class QueueClosures:
    """Paths of held and of drained queues. Each closes the queues below it, too; both together close all of it."""

    __slots__ = ("drained", "held")

    def __init__(self, held: Iterable[str] = (), drained: Iterable[str] = ()) -> None:
        self.held = set(held)
        self.drained = set(drained)

    def copy(self) -> "QueueClosures":
        """Return an equal one that can be changed apart from this."""
        return QueueClosures(self.held, self.drained)

    def holding(self, path: str) -> str:
        """Return the queue, or the nearest above it, that is held; "" for none."""
        return _nearest(self.held, path) if self.held else ""

    def draining(self, path: str) -> str:
        """Return the queue, or the nearest above it, that is drained; "" for none."""
        return _nearest(self.drained, path) if self.drained else ""

    def release(self, path: str) -> None:
        """Open one queue; one above it may still be closed."""
        self.held.discard(path)
        self.drained.discard(path)


def _nearest(closed: set[str], path: str) -> str:
    while path and path not in closed:
        path = path.rpartition("/")[0]
    return path
