"""The log as a table, and how far it has been read."""

from fairlead_telemetry.schema.relation import Column, Relation

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
        Column("user", "VARCHAR", "who did it; of an event that nobody asked for, the owner of its job"),
        Column("cause", "VARCHAR", "what led to it: cmd:<id>, <sequence>.<idx>, report:<node>:<n> or clock"),
        # Half the room that DuckDB's own choice takes, and a sixth of the time to store an event.
        Column("body", "JSON", "the whole event as it stands in the log", "zstd"),
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
