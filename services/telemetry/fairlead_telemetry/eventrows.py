"""Events as rows. They are never decoded one by one in Python: each commit's bytes become one line of a scratch file, which
DuckDB reads, splits and types in bulk (README.md says what that saves).
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

_INSERT = """
INSERT INTO events
WITH line AS (FROM read_json(?, format = 'newline_delimited', maximum_object_size = 4194304,
    columns = {s: 'UBIGINT', c: 'STRUCT(writer VARCHAR, at_ns BIGINT, events JSON[])'})),
  event AS (SELECT s, c.writer AS writer, c.at_ns AS at_ns, unnest(c.events) AS body,
    generate_subscripts(c.events, 1) - 1 AS idx FROM line),
  typed AS (SELECT *, from_json(body, '{"type": "VARCHAR", "job": "VARCHAR", "attempt": "UINTEGER",
    "node": "VARCHAR", "queue": "VARCHAR", "user": "VARCHAR", "cause": "VARCHAR"}') AS e FROM event)
SELECT s, idx, writer, make_timestamp_ns(at_ns), at_ns, e.type, e.job, e.attempt, e.node, e.queue, e."user", e.cause, body
FROM typed"""


class CommitBytes(NamedTuple):
    """One checked commit of the log as it goes into the warehouse."""

    sequence: int
    at_ns: int
    events: int
    payload: bytes


class EventRows:
    """The table `events` of one warehouse. Its owner gives the transactions."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def insert(self, db: duckdb.DuckDBPyConnection, commits: Sequence[CommitBytes]) -> int:
        """All events of these commits; how many rows that made."""
        if not commits:
            return 0
        with self._scratch.open("wb") as scratch:
            scratch.writelines(b'{"s":%d,"c":%b}\n' % (commit.sequence, _line(commit.payload)) for commit in commits)
        row = db.execute(_INSERT, [str(self._scratch)]).fetchone()
        return row[0] if row else 0

    def close(self) -> None:
        """Tidy up."""
        with contextlib.suppress(OSError):  # a leftover is overwritten at the next start
            self._scratch.unlink()


def _line(payload: bytes) -> bytes:
    """A payload on one line: raw line breaks can only be white space between JSON tokens."""
    if b"\n" in payload or b"\r" in payload:
        return payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return payload
