"""Undo log of a core: speculative changes to folded state, each with the entry that restores it. Pure.

A decision tries its own events on the state, so that each rule sees the ones before it, and the state must be as it was
folded afterwards. Naively, the decision would take its changes back at its end. An exception in mid-decision then leaves
them in place: the state holds jobs and charges that no event in the log describes, and later commits are built on them.

So every change is noted here *before* it is made, and `speculating` rolls back however its block is left. An entry
restores an earlier value, and does so whether or not its change was made in full: an exception may strike between the
two. Data that a core derives from its state (indexes, memos) has no entries where restoring it costs more than working
it out again; `forget_derived` drops it after an exception. Start at `UndoLog.speculating`.
"""

from collections.abc import Callable
from typing import Any


class UndoFailed(BaseException):
    """A rollback raised, so the state is unknown. No handler for ordinary exceptions may continue with such a core: the
    process ends, and the next one folds the log.
    """


class UndoLog:
    """Entries that restore the state, newest last; a core's state derives from it."""

    def __init__(self) -> None:
        #: (function, arguments) each; None while changes are final (folding).
        self.journal: list[tuple[Any, ...]] | None = None

    def note(self, restore: Callable[..., object], *args: Any) -> None:
        """Call `restore` with these arguments on rollback. To be called before the change."""
        if self.journal is not None:
            self.journal.append((restore, *args))

    def set(self, thing: object, name: str, value: object) -> None:
        """Set a field."""
        if self.journal is not None:
            self.journal.append((setattr, thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    def put[K, V](self, table: dict[K, V], key: K, value: V) -> None:
        """Set or replace an entry of a table."""
        if self.journal is not None:
            if key in table:
                self.journal.append((table.__setitem__, key, table[key]))
            else:
                self.journal.append((table.pop, key, None))
        table[key] = value

    def drop[K, V](self, table: dict[K, V], key: K) -> V | None:
        """Remove an entry of a table, if it is there. A restored entry is the last of its table: no decision may
        depend on the order of one whose entries are dropped speculatively."""
        value = table.get(key)
        if value is not None:
            if self.journal is not None:
                self.journal.append((table.__setitem__, key, value))
            del table[key]
        return value

    def rollback(self) -> None:
        """Restore the state as it was when the journal was opened, and close the journal. Raises UndoFailed."""
        self.rollback_to(0)
        self.journal = None

    def rollback_to(self, mark: int) -> None:
        """Restore the state as it was when the journal had so many entries, and keep these. Raises UndoFailed."""
        journal, self.journal = self.journal, None
        try:
            for entry in reversed(journal[mark:] if journal is not None else ()):
                entry[0](*entry[1:])
        except BaseException as error:
            raise UndoFailed(f"the state is unknown, a rollback failed: {type(error).__name__}: {error}") from error
        if journal is not None:
            del journal[mark:]
        self.journal = journal

    def forget_derived(self) -> None:
        """Drop what is derived from the state and may be half updated: an exception has interrupted a decision."""

    def abort(self) -> None:
        """Roll back after an exception, which may have struck in the middle of a change."""
        self.forget_derived()
        self.rollback()

    def speculating(self) -> "Speculation":
        """Roll back every change made in the block when it is left, by an exception too. Blocks nest."""
        return Speculation(self)


class Speculation:
    """Block of `UndoLog.speculating`. A class, since a generator's context costs a tenth of a small decision.

    Nested blocks share one journal, so that a block whose end an exception has skipped (it struck between the block and its end) is
    rolled back by the one around it. After the outermost one, `UndoLog.abort` is the core's to call.
    """

    __slots__ = ("_log", "_mark")

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        #: Entries of the blocks around it; -1: there are none.
        self._mark = -1

    def __enter__(self) -> None:
        if self._log.journal is None:
            self._log.journal = []
        else:
            self._mark = len(self._log.journal)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            self._log.forget_derived()
        if self._mark < 0:
            self._log.rollback()
        else:
            self._log.rollback_to(self._mark)
