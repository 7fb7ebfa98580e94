"""What nodes measured, and what of it was lost on the way."""

from fairlead_telemetry.schema.relation import Column, Relation

SAMPLES = Relation(
    "samples",
    "What nodes measured, one row per GPU and moment; old rows are dropped (default: 7 days).",
    (
        Column("time", "TIMESTAMP", "the node's clock, UTC"),
        Column("at_ns", "BIGINT", "the same in Unix nanoseconds"),
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent; numbers restart with it"),
        Column("n", "UBIGINT", "number of the batch within the incarnation"),
        Column("uuid", "VARCHAR", "GPU"),
        Column("run", "VARCHAR", "<job>.<attempt> that holds the GPU, empty if none"),
        Column("utilization_pct", "INTEGER", "share of time with a kernel running"),
        Column("memory_used_mib", "BIGINT", "device memory in use"),
        Column("power_mw", "BIGINT", "power draw in milliwatts"),
        Column("temperature_c", "INTEGER", "core temperature"),
        Column("sm_clock_mhz", "INTEGER", "clock of the multiprocessors"),
        Column("simulated", "BOOLEAN", "true where the GPU is played, not real"),
    ),
)
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

_MEANS = """node, uuid, run, samples, 100 * busy_samples / samples AS busy_pct, utilization_pct_sum / samples AS utilization_pct,
      utilization_pct_max, memory_used_mib_sum / samples AS memory_used_mib, memory_used_mib_max,
      power_mw_sum / samples AS power_mw, power_mw_max, temperature_c_max, sm_clock_mhz_sum / samples AS sm_clock_mhz, simulated"""
_OF_SUMS = (
    Column("node", "VARCHAR", "node"),
    Column("uuid", "VARCHAR", "GPU"),
    Column("run", "VARCHAR", "<job>.<attempt> that held the GPU, empty if none"),
    Column("samples", "BIGINT", "how many samples these are made of"),
    Column("busy_pct", "DOUBLE", "share of the samples in which a kernel was running"),
    Column("utilization_pct", "DOUBLE", "mean over the samples"),
    Column("utilization_pct_max", "INTEGER", "greatest of the samples"),
    Column("memory_used_mib", "DOUBLE", "mean device memory in use"),
    Column("memory_used_mib_max", "BIGINT", "greatest device memory in use"),
    Column("power_mw", "DOUBLE", "mean power draw in milliwatts"),
    Column("power_mw_max", "BIGINT", "greatest power draw in milliwatts"),
    Column("temperature_c_max", "INTEGER", "greatest core temperature"),
    Column("sm_clock_mhz", "DOUBLE", "mean clock of the multiprocessors"),
    Column("simulated", "BOOLEAN", "true where the GPU is played, not real"),
)
SAMPLES_1M = Relation(
    "samples_1m",
    "Samples added up per GPU, run and minute, once the minute is over (default: 90 days).",
    (Column("time", "TIMESTAMP", "start of the minute, UTC, by the node's clock"), *_OF_SUMS),
    "SELECT make_timestamp(slot * 60000000) AS time, " + _MEANS + " FROM rolled.minutes",  # noqa: S608 words of ours
)
SAMPLES_1H = Relation(
    "samples_1h",
    "Samples added up per GPU, run and hour, once the hour is over (default: 3 years).",
    (Column("time", "TIMESTAMP", "start of the hour, UTC, by the node's clock"), *_OF_SUMS),
    "SELECT make_timestamp(slot * 3600000000) AS time, " + _MEANS + " FROM rolled.hours",  # noqa: S608 as above
)
