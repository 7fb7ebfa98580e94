"""The placer's undo log: speculative changes of the state, rolled back or kept, and marks for those who publish.

Nothing that decides may depend on the order of a dict: an undone removal comes back last.
"""

from collections.abc import Generator
from contextlib import contextmanager

from fairlead_bus.core import UndoLog


class Journal(UndoLog):
    """The undo log, and the names of nodes whose desired state has changed."""

    def __init__(self) -> None:
        super().__init__()
        #: Nodes whose desired state a fold has changed, and whose number it moved, since it was published; and those
        #: whose desired state is changed speculatively.
        self.touched: set[str] = set()
        self.advanced: set[str] = set()
        self._to_touch: set[str] = set()

    def touch(self, name: str) -> None:
        """Mark the node's desired state as changed; published once the change is not speculative any more."""
        (self.touched if self.journal is None else self._to_touch).add(name)

    def begin(self) -> None:
        """Make every change speculative, until `rollback`, `abort` or `keep`."""
        self.journal = []

    def rollback(self) -> None:
        """Restore the state as it was when the journal was opened, and close the journal. Raises UndoFailed."""
        super().rollback()
        self._to_touch.clear()

    def keep(self) -> None:
        """Make the speculative changes final: they are in the log."""
        self.journal = None
        self.touched |= self._to_touch
        self._to_touch.clear()

    @contextmanager
    def trying(self) -> Generator[None]:
        """Roll back every change of the block, within a decision that continues. After an exception the changes are left to the
        decision's own `abort`, which can restore from a partial journal.
        """
        outer, marks = self.journal, self._to_touch
        self.journal, self._to_touch = [], set()
        try:
            yield
        except BaseException:
            self.journal = [*(outer or ()), *self.journal]
            raise
        else:
            self.rollback()
            self.journal = outer
        finally:
            self._to_touch = marks
