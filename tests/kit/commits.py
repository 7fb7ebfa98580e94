"""Commits for tests that need a log and no writer of it."""

from collections.abc import Mapping

from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.events import Event


def commit_of(
    events: list[Event],
    *,
    writer: str = "queue",
    n: int = 1,
    basis: int | None = None,
    at_ns: int = 1,
    cursors: Mapping[str, int] | None = None,
    prev: str = GENESIS,
) -> Commit:
    """Return the n-th commit of a writer; `basis` is n - 1 unless given, and `prev` is right for a first commit only. The list of events
    is the commit's own: a core recognises its decision by it.
    """
    return Commit(
        v=VERSION,
        writer=writer,
        n=n,
        basis=n - 1 if basis is None else basis,
        at_ns=at_ns,
        cursors=dict(cursors or {}),
        prev=prev,
        events=events,
    )
