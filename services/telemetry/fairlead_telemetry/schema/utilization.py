"""Views of the measured use of held GPUs.

Further parts:
- views of sums over runs: GPU-hours and waits;
- views of idleness: idle runs, the actions taken, and the savings that a dry run would have brought.
"""

from fairlead_telemetry.schema.relations import Column, Relation

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


#: Owner, end and resources of every run in an idle event.
_RUN = """
    run AS (
      SELECT job, attempt, queue, "user", ended_ns FROM fold.done_runs
      UNION ALL
      SELECT job, attempt, queue, "user", ended_ns FROM fold.open_runs
    ), part AS (FROM fold.done_parts UNION ALL FROM fold.open_parts), held AS (
      SELECT part.job, part.attempt, sum(gpu_milli) / 1000 AS gpus FROM part
      SEMI JOIN fold.idle i ON i.job = part.job AND i.attempt = part.attempt GROUP BY ALL
    )"""

IDLE = Relation(
    "idle",
    "Every time that a run counted as idle under a policy: the evidence, the notification, and the outcome.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "path of the queue that it ran in"),
        Column("scope", "VARCHAR", "whose policy: global, project:<name> or user:<name>"),
        Column("rule", "VARCHAR", "utilization, interaction or lifetime"),
        Column("action", "VARCHAR", "note, warn, stop, requeue or shrink"),
        Column("mode", "VARCHAR", "dry_run, on_demand or always"),
        Column("idle_since", "TIMESTAMP", "UTC; of lifetime: when it started"),
        Column("said_at", "TIMESTAMP", "when it was reported and its owner notified"),
        Column("reclaim_at", "TIMESTAMP", "when the notice was to be over; empty where nothing followed"),
        Column("evidence", "JSON", "the signals that decided: [{signal, highest, mean, threshold, samples}]"),
        Column("foreseen_at", "TIMESTAMP", "of a dry run: when it would have been asked back"),
        Column("shrunk_at", "TIMESTAMP", "when its lease was cut"),
        Column("lease_until", "TIMESTAMP", "until when"),
        Column("requested_at", "TIMESTAMP", "when it was asked back"),
        Column("on_demand", "BOOLEAN", "only for a waiting job; empty where it was not asked back"),
        Column("reclaim_evidence", "JSON", "the signals that decided that"),
        Column("active_at", "TIMESTAMP", "when that was withdrawn; empty where it was not"),
        Column("active_reason", "VARCHAR", "active, unseen, extended or policy"),
        Column("active_evidence", "JSON", "of active: the signals that rose"),
        Column("run_ended_at", "TIMESTAMP", "when the run had ended; empty while it runs"),
        Column("gpus", "DOUBLE", "what it holds, a share of a GPU as that"),
        Column("sequence", "UBIGINT", "log sequence of the event"),
    ),
    f"""
    WITH {_RUN}
    SELECT i.job, i.attempt, run."user", run.queue, i.scope, i.rule, i.action, i.mode, make_timestamp_ns(i.since_ns)::TIMESTAMP AS idle_since,
      make_timestamp_ns(i.said_ns)::TIMESTAMP AS said_at,
      CASE WHEN i.reclaim_at_ns > 0 THEN make_timestamp_ns(i.reclaim_at_ns)::TIMESTAMP END AS reclaim_at, i.evidence,
      make_timestamp_ns(i.foreseen_ns)::TIMESTAMP AS foreseen_at, make_timestamp_ns(i.shrunk_ns)::TIMESTAMP AS shrunk_at,
      make_timestamp_ns(i.lease_ns)::TIMESTAMP AS lease_until, make_timestamp_ns(i.requested_ns)::TIMESTAMP AS requested_at,
      i.on_demand, i.reclaim_evidence, make_timestamp_ns(i.active_ns)::TIMESTAMP AS active_at, i.reason AS active_reason,
      i.active_evidence, make_timestamp_ns(run.ended_ns)::TIMESTAMP AS run_ended_at, coalesce(held.gpus, 0)::DOUBLE AS gpus, i.sequence
    FROM fold.idle i LEFT JOIN run ON run.job = i.job AND run.attempt = i.attempt
      LEFT JOIN held ON held.job = i.job AND held.attempt = i.attempt""",  # noqa: S608 -- text of this file
)
IDLE_EXTENSIONS = Relation(
    "idle_extensions",
    "Every extension that kept the idle policies off a run.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("extended_at", "TIMESTAMP", "UTC"),
        Column("until", "TIMESTAMP", "no policy acts before"),
        Column("count", "INTEGER", "which extension of the run it is, from 1"),
        Column("by", "VARCHAR", "who asked"),
        Column("sequence", "UBIGINT", "log sequence of the event"),
    ),
    """
    SELECT job, attempt, make_timestamp_ns(at_ns)::TIMESTAMP AS extended_at, make_timestamp_ns(until_ns)::TIMESTAMP AS until,
      count, "by", sequence
    FROM fold.extensions""",
)
IDLE_SAVINGS = Relation(
    "idle_savings",
    "What policies in dry run would have saved: GPU time from when they would have asked a run back until it ended, or was active again.",
    (
        Column("scope", "VARCHAR", "whose policy"),
        Column("rule", "VARCHAR", "utilization, interaction or lifetime"),
        Column("user", "VARCHAR", "whose runs"),
        Column("queue", "VARCHAR", "path of the queue that they ran in"),
        Column("reclaims", "BIGINT", "how often it would have asked a run back"),
        Column("gpu_hours", "DOUBLE", "GPU-hours that others could have had; up to cursor.at_ns while it lasts"),
        Column("came_alive", "BIGINT", "how many of them were active again later: work that would have been lost"),
        Column("unseen", "BIGINT", "how many of them could not be judged any more"),
    ),
    f"""
    WITH {_RUN}
    SELECT i.scope, i.rule, run."user", run.queue, count(*) AS reclaims,
      sum(coalesce(held.gpus, 0) * greatest(0, coalesce(i.active_ns, run.ended_ns, (SELECT at_ns FROM cursor)) - i.foreseen_ns)
        / 3600e9) AS gpu_hours,
      count(*) FILTER (i.reason = 'active') AS came_alive, count(*) FILTER (i.reason = 'unseen') AS unseen
    FROM fold.idle i LEFT JOIN run ON run.job = i.job AND run.attempt = i.attempt
      LEFT JOIN held ON held.job = i.job AND held.attempt = i.attempt
    WHERE i.foreseen_ns IS NOT NULL GROUP BY ALL""",  # noqa: S608 -- as above
)
