"""Events as rows; and rewrite of event rows that an older version stored without the owner and the queue of their jobs;
done when a warehouse is opened. Events are not decoded in Python: their bytes go over as one Arrow column, which DuckDB
reads in place and types in bulk (README.md says what that saves). Submissions alone are decoded, for the owner and the
queue that later events do not name.

`user` and `queue` of a row depend on the log up to its event alone, however the log is cut into transactions: `insert` fills them from
the jobs that are open, and `correct_owners`, after the fold, in the rare cases where these do not suffice.

The older table is set apart under another name, and its rows go through the same statement as new ones
(`_insert`), each step in one transaction with its fold. A process that is killed meanwhile resumes at that point at
its next start. The warehouse is not read before the last step: SQL runs over copies, which are made of an open
warehouse. The rewrite needs free space for the table once more.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import duckdb
import msgspec
import nanoarrow as na
import numpy as np
from numpy.typing import NDArray

from fairlead_schemas.wire.commit import Envelope
from fairlead_telemetry.fold import tables
from fairlead_telemetry.fold.tables import PlaceSpan

#: The job that was submitted: an element's array. (`split_part` alone costs several times as much.)
_BORN_AS = "if(contains({job}, '_'), split_part({job}, '_', 1), {job})"

#: `from_json` refuses what is no JSON, so a body that is broken ends the transaction.
_INSERT = f"""
INSERT INTO events
WITH owner AS (SELECT job, "user", queue FROM fold.open_jobs UNION ALL SELECT job, "user", queue FROM {{owners}})
SELECT sequence, idx, writer, make_timestamp_ns(at_ns), at_ns, e.type, e.job, e.attempt, e.node,
  coalesce(e.queue, e.path, owner.queue), coalesce(e."user", e."by", owner."user"), e.cause, body
FROM (SELECT *, from_json(body, '{{{{"type": "VARCHAR", "job": "VARCHAR", "attempt": "UINTEGER", "node": "VARCHAR",
    "queue": "VARCHAR", "path": "VARCHAR", "user": "VARCHAR", "by": "VARCHAR", "cause": "VARCHAR"}}}}') AS e FROM {{events}})
  LEFT JOIN owner ON owner.job = {_BORN_AS.format(job="e.job")}"""  # noqa: S608 -- text of this file, as those below

#: Jobs that changed their queue within a transaction: rows after the move still have the queue of before.
_ANY_MOVE = "SELECT 1 FROM fold.moves WHERE since BETWEEN $low AND $high LIMIT 1"
_MOVED = f"""
UPDATE events SET queue = moved.queue FROM (
  SELECT job AS born_as, queue, since, lead(since, 1, $high + 1) OVER (PARTITION BY job ORDER BY since) AS until
  FROM fold.moves WHERE since BETWEEN $low AND $high) AS moved
WHERE sequence BETWEEN $first AND $last AND {_BORN_AS.format(job="events.job")} = moved.born_as
  AND place(sequence, idx) > since AND place(sequence, idx) < until AND body->>'queue' IS NULL"""  # noqa: S608

#: Events about jobs that had ended before the transaction.
_LATE = f"""
SELECT DISTINCT {_BORN_AS.format(job="job")} FROM events
WHERE sequence BETWEEN $first AND $last AND job IS NOT NULL AND ("user" IS NULL OR queue IS NULL)"""  # noqa: S608
_ENDED = f"""
UPDATE events SET "user" = coalesce(events."user", ended."user"), queue = coalesce(events.queue, ended.queue)
FROM (SELECT job, "user", queue FROM fold.jobs WHERE job IN (SELECT unnest($jobs::VARCHAR[]))) AS ended
WHERE sequence BETWEEN $first AND $last AND {_BORN_AS.format(job="events.job")} = ended.job
  AND (events."user" IS NULL OR events.queue IS NULL)"""  # noqa: S608

#: Fewer events than these are sorted when they are inserted.
SORTED_MAX = 10_000

#: DuckDB takes a column of this type for its own JSON, and does not check it once more.
_JSON = na.extension_type(na.string(), "arrow.json")


class CommitBytes(NamedTuple):
    """Checked commit of the log in the form in which the warehouse stores it."""

    sequence: int
    writer: str
    at_ns: int
    #: Each event as in the log.
    bodies: Sequence[bytes]

    @classmethod
    def of(cls, sequence: int, commit: Envelope) -> Self:
        """The commit at this place of the log."""
        return cls(sequence, commit.writer, commit.at_ns, commit.events)


class _JobOwnerRow(msgspec.Struct, gc=False):
    job: str
    user: str
    queue: str


#: First bytes of a submission as the queue service encodes it. `correct_owners` finds jobs of submissions that begin otherwise.
_SUBMITTED = b'{"type":"JobSubmitted"'
_owner_decoder = msgspec.json.Decoder(_JobOwnerRow)


def insert(db: duckdb.DuckDBPyConnection, commits: Sequence[CommitBytes]) -> int:
    """Put all events of these commits into the table `events`; return the number of rows. The caller owns the transaction, in
    which the fold and `correct_owners` follow."""
    if not commits:
        return 0
    bodies = [body for commit in commits for body in commit.bodies]
    joined, lengths = b"".join(bodies), np.fromiter(map(len, bodies), np.int32, len(bodies))
    db.register("arriving_events", _arriving(commits, lengths, joined))
    db.register("arriving_owners", _owner_rows(bodies, lengths, joined))
    inserted = _insert(db, "arriving_events", "arriving_owners", is_small=len(bodies) < SORTED_MAX)
    db.unregister("arriving_events")
    db.unregister("arriving_owners")
    return inserted


def insert_again(db: duckdb.DuckDBPyConnection, table: str, first: int, last: int) -> None:
    """Make the rows of sequences `first` to `last` again from those of `table`, an `events` of an older version."""
    between = f"WHERE sequence BETWEEN {first} AND {last}"
    events = f"(SELECT sequence, idx, writer, at_ns, body FROM {table} {between})"  # noqa: S608 -- names and numbers of ours
    owners = f"(SELECT job, \"user\", queue FROM {table} {between} AND type = 'JobSubmitted')"  # noqa: S608 -- as above
    _insert(db, events, owners, is_small=False)


def _insert(db: duckdb.DuckDBPyConnection, events: str, owners: str, *, is_small: bool) -> int:
    """Insert rows in log order, so that DuckDB can skip rows that a query does not need.

    By default DuckDB hashes the smaller side of the join. For a few events and many open jobs that is right, and the rows
    are sorted afterwards. Many events, with their bodies, would take longer, so then the jobs are hashed and the events pass
    in order.
    """
    statement = _INSERT.format(events=events, owners=owners)
    if is_small:
        row = db.execute(statement + " ORDER BY sequence, idx").fetchone()
    else:
        db.execute("SET disabled_optimizers = 'build_side_probe_side'")
        try:
            row = db.execute(statement).fetchone()
        finally:
            db.execute("RESET disabled_optimizers")
    return row[0] if row else 0


def correct_owners(db: duckdb.DuckDBPyConnection, first: int, last: int) -> None:
    """Complete `user` and `queue` in the rows of sequences `first` to `last`, all inserted in this transaction and folded."""
    span = PlaceSpan.of_sequences(first, last)
    bounds = {"first": span["first"], "last": span["last"]}
    if db.execute(_ANY_MOVE, {"low": span["low"], "high": span["high"]}).fetchone():
        db.execute(_MOVED, dict(span))
    late = [job for (job,) in db.execute(_LATE, bounds).fetchall()]
    if late:
        db.execute(_ENDED, bounds | {"jobs": late})


def _arriving(commits: Sequence[CommitBytes], lengths: NDArray[np.int32], joined: bytes) -> na.ArrayStream:
    """Columns sequence, idx, at_ns, writer, body; one row per event. Their texts are 2 GiB at most."""
    counts = np.array([len(commit.bodies) for commit in commits])
    starts = np.cumsum(counts) - counts
    writers = [commit.writer.encode() for commit in commits]
    return _stream(
        {
            "sequence": _numbers(na.uint64(), np.repeat([commit.sequence for commit in commits], counts), np.uint64),
            "idx": _numbers(na.uint16(), np.arange(len(lengths)) - np.repeat(starts, counts), np.uint16),
            "at_ns": _numbers(na.int64(), np.repeat([commit.at_ns for commit in commits], counts), np.int64),
            "writer": _texts(
                na.string(),
                np.repeat([len(writer) for writer in writers], counts),
                b"".join(writer * count for writer, count in zip(writers, counts.tolist(), strict=True)),
            ),
            "body": _texts(_JSON, lengths, joined),
        },
        len(lengths),
    )


def _owner_rows(bodies: Sequence[bytes], lengths: NDArray[np.int32], joined: bytes) -> na.ArrayStream:
    """Columns job, user, queue; one row per submission among the bodies."""
    found = [_owner_decoder.decode(bodies[i]) for i in _submissions(lengths, joined)]
    columns = {
        "job": [one.job for one in found],
        "user": [one.user for one in found],
        "queue": [one.queue for one in found],
    }
    return _stream({name: _text_list(values) for name, values in columns.items()}, len(found))


def _text_list(values: Sequence[str]) -> tuple[na.Schema, object]:
    encoded = [value.encode() for value in values]
    return _texts(na.string(), np.fromiter(map(len, encoded), np.int32, len(encoded)), b"".join(encoded))


def _submissions(lengths: NDArray[np.int32], joined: bytes) -> list[int]:
    """Positions of the bodies that begin as submissions do. All are compared at once: a loop over them would cost as much as
    typing them does."""
    text = np.frombuffer(joined, np.uint8)
    alike = np.flatnonzero(lengths > len(_SUBMITTED))
    starts = (np.cumsum(lengths, dtype=np.int64) - lengths)[alike]
    for at in range(_SUBMITTED.index(b"Submitted"), len(_SUBMITTED)):
        same = text[starts + at] == _SUBMITTED[at]
        alike, starts = alike[same], starts[same]
    return alike.tolist()


def _stream(columns: dict[str, tuple[na.Schema, object]], rows: int) -> na.ArrayStream:
    shape = na.struct({name: kind for name, (kind, _) in columns.items()})
    children = [column for _, column in columns.values()]
    return na.ArrayStream(na.c_array_from_buffers(shape, rows, [None], children=children))


def _numbers(kind: na.Schema, values: NDArray[np.int64], exact: type[np.generic]) -> tuple[na.Schema, object]:
    return kind, na.c_array_from_buffers(kind, len(values), [None, values.astype(exact)])


def _texts(kind: na.Schema, lengths: NDArray[np.integer], joined: bytes) -> tuple[na.Schema, object]:
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return kind, na.c_array_from_buffers(kind, len(lengths), [None, ends, joined])


_APART = "events_of_older_version"


def set_older_apart(db: duckdb.DuckDBPyConnection) -> None:
    """Rename `events` if an older version filled it. To be called before anything is created, in that transaction."""
    if not _has(db, "main", "events") or older_table(db):
        return
    row = db.execute("SELECT version FROM fold.state").fetchone() if _has(db, "fold", "state") else None
    if row is None or row[0] < tables.OWNERS_SINCE:
        db.execute(f"ALTER TABLE events RENAME TO {_APART}")


def older_table(db: duckdb.DuckDBPyConnection) -> str:
    """Return the name under which older rows wait to be made again; "" where none do."""
    return _APART if _has(db, "main", _APART) else ""


def drop_older_events(db: duckdb.DuckDBPyConnection) -> None:
    """Drop the older rows: all of them have been made again."""
    db.execute(f"DROP TABLE IF EXISTS {_APART}")


def _has(db: duckdb.DuckDBPyConnection, space: str, table: str) -> bool:
    query = "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?"
    return db.execute(query, [space, table]).fetchone() is not None
