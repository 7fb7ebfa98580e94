"""Tables about samples apart from their rows: losses, read positions, refusals, and the files that hold the samples."""

from fairlead_telemetry.schema.relation import Column, Relation

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
    "Sample batches that were refused since the service started: its start reads the stream, and counts, anew.",
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
