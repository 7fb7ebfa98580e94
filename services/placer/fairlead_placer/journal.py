"""What is tried on tables, and then taken back or kept.

While a journal is open every change notes its inverse there. Nothing that decides may depend on the order of a dict: an undone
removal comes back last.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Journal:
    """Changes of fields and of tables, each with its inverse; and marks for those who act upon what was folded."""

    def __init__(self) -> None:
        #: Inverses of what was tried, newest last; None while folding.
        self.journal: list[tuple[Any, ...]] | None = None
        #: Nodes whose desired state a fold has changed, and whose number it moved, since somebody acted on it; and those
        #: whose desired state is another by what is tried.
        self.touched: set[str] = set()
        self.advanced: set[str] = set()
        self._to_touch: set[str] = set()

    def set(self, thing: object, name: str, value: object) -> None:
        """Set a field of a run or node that the index does not look at."""
        if self.journal is not None:
            self.journal.append((setattr, thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    def put[V](self, table: dict[str, V], key: str, value: V) -> None:
        """Set or replace an entry of a table."""
        if self.journal is not None:
            if key in table:
                self.journal.append((table.__setitem__, key, table[key]))
            else:
                self.journal.append((table.pop, key))
        table[key] = value

    def drop[V](self, table: dict[str, V], key: str) -> V | None:
        """Remove an entry of a table, if it is there."""
        value = table.pop(key, None)
        if value is not None and self.journal is not None:
            self.journal.append((table.__setitem__, key, value))
        return value

    def touch(self, name: str) -> None:
        """The node's desired state is another one: a mark for those who act, once it is not only tried."""
        (self.touched if self.journal is None else self._to_touch).add(name)

    # -- what is tried

    def begin(self) -> None:
        """From now on all is tried, until `undo` or `keep`."""
        self.journal = []

    def undo(self) -> None:
        """Take back everything in the journal and close it."""
        journal, self.journal = self.journal, None
        for entry in reversed(journal or ()):
            entry[0](*entry[1:])
        self._to_touch.clear()

    def keep(self) -> None:
        """What was tried is in the log: it stays, as if it had been folded."""
        self.journal = None
        self.touched |= self._to_touch
        self._to_touch.clear()

    @contextmanager
    def trying(self) -> Generator[None]:
        """Whatever is changed meanwhile is taken back at the end, also within a decision."""
        outer, marks = self.journal, self._to_touch
        self.journal, self._to_touch = [], set()
        try:
            yield
        finally:
            self.undo()
            self.journal, self._to_touch = outer, marks
