"""Description of a table or view: name, sentence, columns, and the query of a view.

Further parts:
- the log as a table, and how far it has been read;
- tables about samples apart from their rows: losses, read positions, refusals, and the files that hold the samples.
"""

from typing import NamedTuple


class Column(NamedTuple):
    """Column with its DuckDB type and one sentence."""

    name: str
    type: str
    about: str
    #: How DuckDB is to compress it; "": as it finds best, for which it tries every way.
    compression: str = ""

    @property
    def ddl(self) -> str:
        """The column as CREATE TABLE takes it."""
        return f'"{self.name}" {self.type}' + (f" USING COMPRESSION {self.compression}" if self.compression else "")


class Relation(NamedTuple):
    """A table (`select` is empty) or a view."""

    name: str
    about: str
    columns: tuple[Column, ...]
    select: str = ""


EVENTS = Relation(
    "events",
    "Every event of the log, one row each; all else is folded from it.",
    (
        Column("sequence", "UBIGINT", "log sequence of the commit; an event's id is <sequence>.<idx>"),
        Column("idx", "USMALLINT", "place within the commit, from 0"),
        Column("writer", "VARCHAR", "service that wrote it"),
        Column("time", "TIMESTAMP", "the writer's clock, UTC"),
        Column("at_ns", "BIGINT", "the same in Unix nanoseconds, exact"),
        Column("type", "VARCHAR", "event type, such as JobPlaced"),
        Column("job", "VARCHAR", "job or array element, where the event names one"),
        Column("attempt", "UINTEGER", "attempt, where the event names one"),
        Column("node", "VARCHAR", "node, where the event names one"),
        Column("queue", "VARCHAR", "queue path that the event names; else the one that its job was in"),
        Column("user", "VARCHAR", "who did it; for an event without a requester, the owner of its job"),
        Column("cause", "VARCHAR", "what led to it: cmd:<id>, <sequence>.<idx>, report:<node>:<n> or clock"),
        # Half the room that DuckDB's own choice takes, and a sixth of the time to store an event.
        Column("body", "JSON", "the whole event as in the log", "zstd"),
    ),
)
CURSOR = Relation(
    "cursor",
    "One row: how far this warehouse has read, moved in the same transaction as the rows.",
    (
        Column("sequence", "UBIGINT", "last log sequence whose events are here"),
        Column("at_ns", "BIGINT", "that commit's time: views count open intervals up to here"),
        Column("created", "VARCHAR", "which log this is: the hash of its first commit; another one is refused"),
        Column("heads", "JSON", "newest commit of each writer: {writer: [n, hash, sequence]}"),
        Column("events", "UBIGINT", "rows in events"),
        Column("samples_lost", "UBIGINT", "sample batches lost in all"),
    ),
)

#: Orders events across and within commits by one integer, which arg_max compares far faster than a pair.
PLACE = "CREATE OR REPLACE MACRO place(sequence, idx) AS sequence::BIGINT * 65536 + idx"


SAMPLE_GAPS = Relation(
    "sample_gaps",
    "Sample batches that never arrived, by the node's own numbers. Loss is allowed and counted.",
    (
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent"),
        Column("first_lost", "UBIGINT", "first missing number"),
        Column("last_lost", "UBIGINT", "last missing number"),
        Column("lost", "UBIGINT", "how many batches that is"),
        Column("noticed_at_ns", "BIGINT", "node's time of the next batch that did arrive, Unix nanoseconds"),
    ),
)
SAMPLE_HEADS = Relation(
    "sample_heads",
    "Newest sample batch of each node and incarnation: the cursor on samples.",
    (
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent"),
        Column("n", "UBIGINT", "number of the newest batch"),
        Column("at_ns", "BIGINT", "node's time of that batch, Unix nanoseconds"),
        Column("lost", "UBIGINT", "batches lost so far"),
    ),
)
SAMPLE_REFUSALS = Relation(
    "sample_refusals",
    "Sample batches that were refused since the service started; the count restarts with the service.",
    (
        Column("node", "VARCHAR", "node on whose subject they came"),
        Column("reason", "VARCHAR", "garbage, other_node, future or past"),
        Column("batches", "UBIGINT", "how many"),
        Column("newest", "VARCHAR", "what was wrong with the newest of them"),
    ),
)
SAMPLE_FILES = Relation(
    "sample_files",
    "Parquet files that older samples, uses, resources and their sums are in.",
    (
        Column("name", "VARCHAR", "file name in the folder of days"),
        Column("kind", "VARCHAR", "samples, uses, resources, minutes or hours"),
        Column("from_ns", "BIGINT", "start of the span that it covers, Unix nanoseconds"),
        Column("to_ns", "BIGINT", "end of that span"),
        Column("rows", "BIGINT", "rows"),
        Column("first_ns", "BIGINT", "time of its oldest row, Unix nanoseconds"),
        Column("last_ns", "BIGINT", "time of its newest row"),
        Column("bytes", "BIGINT", "size"),
        Column("sha256", "VARCHAR", "of its content"),
    ),
)
