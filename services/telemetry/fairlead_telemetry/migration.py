"""Rewrite of event rows that an older version stored without the owner and the queue of their jobs; done when a warehouse
is opened.

The older table is set apart under another name, and its rows go through the same statement as new ones
(`eventrows.py`), each step in one transaction with its fold. A process that is killed meanwhile resumes at that point at
its next start. The warehouse is not read before the last step: SQL runs over copies, which are made of an open
warehouse. The rewrite needs free space for the table once more.
"""

import duckdb

from fairlead_telemetry.fold import tables

_APART = "events_of_older_version"


def set_apart(db: duckdb.DuckDBPyConnection) -> None:
    """Rename `events` if an older version filled it. To be called before anything is created, in that transaction."""
    if not _has(db, "main", "events") or set_apart_as(db):
        return
    row = db.execute("SELECT version FROM fold.state").fetchone() if _has(db, "fold", "state") else None
    if row is None or row[0] < tables.OWNERS_SINCE:
        db.execute(f"ALTER TABLE events RENAME TO {_APART}")


def set_apart_as(db: duckdb.DuckDBPyConnection) -> str:
    """Return the name under which older rows wait to be made again; "" where none do."""
    return _APART if _has(db, "main", _APART) else ""


def forget(db: duckdb.DuckDBPyConnection) -> None:
    """Drop the older rows: all of them have been made again."""
    db.execute(f"DROP TABLE IF EXISTS {_APART}")


def _has(db: duckdb.DuckDBPyConnection, space: str, table: str) -> bool:
    query = "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?"
    return db.execute(query, [space, table]).fetchone() is not None
