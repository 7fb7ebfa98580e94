"""How far the warehouse has read: one row, moved in the transaction that stores what was read."""

from typing import NamedTuple

import duckdb
import msgspec

from fairlead_bus.log import Head


class Cursor(NamedTuple):
    """How far the warehouse has read."""

    sequence: int
    at_ns: int
    created: str
    heads: dict[str, Head]
    events: int
    samples_lost: int


NOWHERE = Cursor(0, 0, "", {}, 0, 0)


def read_cursor(db: duckdb.DuckDBPyConnection) -> Cursor:
    """As it is stored."""
    row = db.execute("SELECT * FROM cursor").fetchone()
    if row is None:
        return NOWHERE
    sequence, at_ns, created, heads, events, lost = row
    return Cursor(sequence, at_ns, created, msgspec.json.decode(heads, type=dict[str, Head]), events, lost)


def write_cursor(db: duckdb.DuckDBPyConnection, new: Cursor) -> None:
    """The caller owns the transaction."""
    heads = msgspec.json.encode(new.heads, order="deterministic").decode()
    db.execute("DELETE FROM cursor")
    db.execute("INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?)", [*new[:3], heads, *new[4:]])
