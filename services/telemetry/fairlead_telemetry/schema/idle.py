"""Views of idleness: idle runs, the actions taken, and the savings that a dry run would have brought."""

from fairlead_telemetry.schema.relation import Column, Relation

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
    "Every time that a run counted as idle by a policy: what decided, who was told when, and what became of it.",
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
        Column("said_at", "TIMESTAMP", "when it was said, and its owner was told"),
        Column("reclaim_at", "TIMESTAMP", "when the notice was to be over; empty where nothing followed"),
        Column("evidence", "JSON", "the signals that decided: [{signal, highest, mean, threshold, samples}]"),
        Column("foreseen_at", "TIMESTAMP", "of a dry run: when it would have been asked back"),
        Column("shrunk_at", "TIMESTAMP", "when its lease was cut"),
        Column("lease_until", "TIMESTAMP", "until when"),
        Column("requested_at", "TIMESTAMP", "when it was asked back"),
        Column("on_demand", "BOOLEAN", "only for somebody who waits; empty where it was not asked back"),
        Column("reclaim_evidence", "JSON", "the signals that decided that"),
        Column("active_at", "TIMESTAMP", "when that was withdrawn; empty where it was not"),
        Column("active_reason", "VARCHAR", "active, unseen, extended or policy"),
        Column("active_evidence", "JSON", "of active: the signals that rose"),
        Column("run_ended_at", "TIMESTAMP", "when the run had ended; empty while it goes on"),
        Column("gpus", "DOUBLE", "what it holds, a share of a GPU as that"),
        Column("sequence", "UBIGINT", "log sequence of the event that said it"),
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
    "Every time that somebody kept the idle policies off a run.",
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
        Column("gpu_hours", "DOUBLE", "GPU-hours that others could have had; up to cursor.at_ns where it goes on"),
        Column("came_alive", "BIGINT", "how many of them were active again later: work that would have been lost"),
        Column("unseen", "BIGINT", "how many of them nobody could judge any more"),
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
