"""Cursor of the warehouse: one row, moved in the transaction that stores the rows read."""

from typing import NamedTuple

import duckdb
import msgspec

from fairlead_bus.log import LogHead


class Cursor(NamedTuple):
    """Position up to which the warehouse has read."""

    sequence: int
    at_ns: int
    #: The log's identity (`fairlead_bus.log.identity`); "" while it was empty. Older versions stored the time when the
    #: stream was created, which says nothing.
    log_id: str
    heads: dict[str, LogHead]
    events: int
    samples_lost: int

    def is_of(self, log_id: str) -> bool:
        """True unless the cursor names another log."""
        return len(self.log_id) != IDENTITY_CHARS or self.log_id == log_id


#: Characters of an identity: a SHA-256 in hex.
IDENTITY_CHARS = 64

NOWHERE = Cursor(0, 0, "", {}, 0, 0)


def read_cursor(db: duckdb.DuckDBPyConnection) -> Cursor:
    """Return the cursor in its stored form, or the start of the log where none is stored."""
    row = db.execute("SELECT * FROM cursor").fetchone()
    if row is None:
        return NOWHERE
    sequence, at_ns, log_id, heads, events, lost = row
    return Cursor(sequence, at_ns, log_id, msgspec.json.decode(heads, type=dict[str, LogHead]), events, lost)


def write_cursor(db: duckdb.DuckDBPyConnection, new: Cursor) -> None:
    """The caller owns the transaction."""
    heads = msgspec.json.encode(new.heads, order="deterministic").decode()
    db.execute("DELETE FROM cursor")
    db.execute("INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?)", [*new[:3], heads, *new[4:]])
