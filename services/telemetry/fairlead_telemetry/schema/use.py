"""Views of the measured use of held GPUs."""

from fairlead_telemetry.schema.relation import Column, Relation

JOB_EFFICIENCY = Relation(
    "job_efficiency",
    "What jobs made of the GPUs that they held; only jobs of which there are samples. Counts minutes that are over.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "queue path; the newest one, where it was moved"),
        Column("state", "VARCHAR", "as in jobs"),
        Column("gpu_hours", "DOUBLE", "GPU-hours held, all attempts"),
        Column(
            "used_gpu_hours", "DOUBLE", "the same times the mean utilisation: an estimate where samples are missing"
        ),
        Column("utilization_pct", "DOUBLE", "mean over the samples of its GPUs"),
        Column("busy_pct", "DOUBLE", "share of the samples in which a kernel was running"),
        Column("memory_used_mib_max", "BIGINT", "most memory that was in use on one GPU"),
        Column("power_mw", "DOUBLE", "mean power draw of one GPU in milliwatts"),
        Column("samples", "BIGINT", "samples that this is made of"),
    ),
    """
    WITH sums AS (
      SELECT * FROM rolled.hours WHERE slot NOT IN (SELECT slot FROM rolled.stale_hours)
      UNION ALL
      SELECT * FROM rolled.minutes WHERE slot // 60 IN (SELECT slot FROM rolled.stale_hours)
    ), measured AS (
      SELECT split_part(run, '.', 1) AS job, sum(samples)::BIGINT AS samples, sum(utilization_pct_sum) / sum(samples) AS utilization_pct,
        100 * sum(busy_samples) / sum(samples) AS busy_pct, max(memory_used_mib_max) AS memory_used_mib_max,
        sum(power_mw_sum) / sum(samples) AS power_mw
      FROM sums WHERE run <> '' GROUP BY 1
    ), held AS (
      SELECT job, sum(gpu_seconds) / 3600 AS gpu_hours FROM runs WHERE job IN (SELECT job FROM measured) GROUP BY job
    )
    SELECT measured.job, jobs."user", jobs.queue, jobs.state, gpu_hours, gpu_hours * utilization_pct / 100 AS used_gpu_hours,
      utilization_pct, busy_pct, memory_used_mib_max, power_mw, samples
    FROM measured JOIN held ON held.job = measured.job JOIN jobs ON jobs.id = measured.job""",
)
IDLE_ALLOCATIONS = Relation(
    "idle_allocations",
    "GPUs that are held now and ran no kernel of late. What was not measured counts as in use.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "path of the queue that it runs in"),
        Column("node", "VARCHAR", "node"),
        Column("uuid", "VARCHAR", "GPU"),
        Column("placed_at", "TIMESTAMP", "held since, UTC"),
        Column("idle_since", "TIMESTAMP", "start of the first idle minute since the last that was not"),
        Column("idle_minutes", "BIGINT", "measured minutes since then, each without a kernel in any sample"),
        Column("measured_until", "TIMESTAMP", "end of the newest minute of which there are samples"),
    ),
    """
    WITH part AS (
      SELECT p.job, p.attempt, r."user", r.queue, p.node, unnest(p.gpus) AS uuid, p.placed_ns
      FROM fold.open_parts p JOIN fold.open_runs r ON r.job = p.job AND r.attempt = p.attempt WHERE p.released_ns IS NULL
    ), measured AS (
      SELECT part.*, m.slot, max(m.slot) FILTER (m.busy_samples > 0) OVER gpu AS busy
      FROM part JOIN rolled.minutes m ON m.uuid = part.uuid AND m.run = part.job || '.' || part.attempt
      WINDOW gpu AS (PARTITION BY part.job, part.attempt, part.uuid)
    )
    SELECT job, attempt, "user", queue, node, uuid, make_timestamp_ns(any_value(placed_ns))::TIMESTAMP AS placed_at,
      make_timestamp(min(slot) * 60000000) AS idle_since, count(*) AS idle_minutes,
      make_timestamp((max(slot) + 1) * 60000000) AS measured_until
    FROM measured WHERE slot > coalesce(busy, 0) GROUP BY ALL
    HAVING max(slot) + 5 >= (SELECT max(slot) FROM rolled.minutes)""",
)
