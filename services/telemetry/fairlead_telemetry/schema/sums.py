"""Views of sums over runs: GPU-hours and waits."""

from fairlead_telemetry.schema.relation import Column, Relation

GPU_HOURS = Relation(
    "gpu_hours_by_user",
    "GPU-hours held per user and queue, running jobs included up to cursor.at_ns.",
    (
        Column("user", "VARCHAR", "who submitted"),
        Column("queue", "VARCHAR", "path of the queue that it ran in"),
        Column("runs", "BIGINT", "placements counted"),
        Column("gpu_hours", "DOUBLE", "GPU-hours held, from placement until the devices came back"),
    ),
    """
    WITH held AS (
      SELECT "user", queue, gpu_milli_ns, job, attempt FROM fold.done_runs
      UNION ALL
      SELECT r."user", r.queue, p.gpu_milli_ns, r.job, r.attempt FROM fold.open_runs r JOIN (
        SELECT job, attempt, sum(gpu_milli::HUGEINT * (coalesce(released_ns, (SELECT at_ns FROM cursor)) - placed_ns)) AS gpu_milli_ns
        FROM fold.open_parts GROUP BY job, attempt) AS p ON p.job = r.job AND p.attempt = r.attempt
    )
    SELECT "user", queue, count(*) AS runs, sum(gpu_milli_ns)::DOUBLE / 3.6e15 AS gpu_hours
    FROM held WHERE "user" IS NOT NULL GROUP BY ALL""",
)
QUEUE_WAIT = Relation(
    "queue_wait",
    "How long placed jobs waited, from submit to first placement (an element from its array's submit).",
    (
        Column("queue", "VARCHAR", "path of the queue in which they got their place"),
        Column("jobs", "BIGINT", "jobs placed at least once"),
        Column("p50_s", "DOUBLE", "median wait in seconds"),
        Column("p90_s", "DOUBLE", "nine of ten waited no longer"),
        Column("max_s", "DOUBLE", "longest wait in seconds"),
    ),
    """
    WITH waited AS (
      SELECT first_placed_queue AS queue, (first_placed_ns - submitted_ns) / 1e9 AS seconds
      FROM fold.jobs WHERE first_placed_ns IS NOT NULL AND name IS NOT NULL
    )
    SELECT queue, count(*) AS jobs, quantile_cont(seconds, 0.5) AS p50_s, quantile_cont(seconds, 0.9) AS p90_s, max(seconds) AS max_s
    FROM waited GROUP BY queue""",
)
