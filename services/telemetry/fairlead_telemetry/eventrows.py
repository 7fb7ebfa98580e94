"""Events as rows. They are not decoded in Python: their bytes go over as one Arrow column, which DuckDB reads in place and types
in bulk (README.md says what that saves).
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import duckdb
import nanoarrow as na
import numpy as np
from numpy.typing import NDArray

from fairlead_schemas.commit import Envelope

#: `from_json` refuses what is no JSON, so a body that is broken ends the transaction.
_INSERT = """
INSERT INTO events
SELECT sequence, idx, writer, make_timestamp_ns(at_ns), at_ns, e.type, e.job, e.attempt, e.node, e.queue, e."user", e.cause, body
FROM (SELECT *, from_json(body, '{"type": "VARCHAR", "job": "VARCHAR", "attempt": "UINTEGER",
    "node": "VARCHAR", "queue": "VARCHAR", "user": "VARCHAR", "cause": "VARCHAR"}') AS e FROM arriving_events)"""

#: DuckDB takes a column of this type for its own JSON, and does not check it once more.
_JSON = na.extension_type(na.string(), "arrow.json")


class CommitBytes(NamedTuple):
    """One checked commit of the log as it goes into the warehouse."""

    sequence: int
    writer: str
    at_ns: int
    #: Each event as it stands in the log.
    bodies: Sequence[bytes]

    @classmethod
    def of(cls, sequence: int, commit: Envelope) -> Self:
        """The commit at this place of the log."""
        return cls(sequence, commit.writer, commit.at_ns, commit.events)


def insert(db: duckdb.DuckDBPyConnection, commits: Sequence[CommitBytes]) -> int:
    """Put all events of these commits into the table `events`; how many rows that made. The caller owns the transaction."""
    if not commits:
        return 0
    db.register("arriving_events", _arriving(commits))
    row = db.execute(_INSERT).fetchone()
    db.unregister("arriving_events")
    return row[0] if row else 0


def _arriving(commits: Sequence[CommitBytes]) -> na.ArrayStream:
    """Columns sequence, idx, at_ns, writer, body; one row per event. Their texts are 2 GiB at most."""
    counts = np.array([len(commit.bodies) for commit in commits])
    starts = np.cumsum(counts) - counts
    bodies = [body for commit in commits for body in commit.bodies]
    writers = [commit.writer.encode() for commit in commits]
    columns = {
        "sequence": _numbers(na.uint64(), np.repeat([commit.sequence for commit in commits], counts), np.uint64),
        "idx": _numbers(na.uint16(), np.arange(len(bodies)) - np.repeat(starts, counts), np.uint16),
        "at_ns": _numbers(na.int64(), np.repeat([commit.at_ns for commit in commits], counts), np.int64),
        "writer": _texts(
            na.string(),
            np.repeat([len(writer) for writer in writers], counts),
            b"".join(writer * count for writer, count in zip(writers, counts.tolist(), strict=True)),
        ),
        "body": _texts(_JSON, np.fromiter(map(len, bodies), np.int32, len(bodies)), b"".join(bodies)),
    }
    shape = na.struct({name: kind for name, (kind, _) in columns.items()})
    return na.ArrayStream(
        na.c_array_from_buffers(shape, len(bodies), [None], children=[column for _, column in columns.values()])
    )


def _numbers(kind: na.Schema, values: NDArray[np.int64], exact: type[np.generic]) -> tuple[na.Schema, object]:
    return kind, na.c_array_from_buffers(kind, len(values), [None, values.astype(exact)])


def _texts(kind: na.Schema, lengths: NDArray[np.integer], joined: bytes) -> tuple[na.Schema, object]:
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return kind, na.c_array_from_buffers(kind, len(lengths), [None, ends, joined])
