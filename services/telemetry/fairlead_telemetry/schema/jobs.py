"""Jobs: each in its latest state, and their moves between queues; and views of placements: the nodes of each run, its held
devices, and the runs that made way for others.
"""

from fairlead_telemetry.schema.relations import Column, Relation

MOVES = Relation(
    "moves",
    "Every move of a waiting job or array to another queue: by a person, or because its queue was removed.",
    (
        Column("job", "VARCHAR", "job or array; an element is where its array is"),
        Column("queue", "VARCHAR", "path of the queue that it was moved to"),
        Column("since", "BIGINT", "place(sequence, idx) of the event that moved it"),
    ),
    """
    SELECT job, queue, since FROM fold.moves""",
)
JOBS = Relation(
    "jobs",
    "Every job and every array element that was ever offered, in its latest state.",
    (
        Column("id", "VARCHAR", "job id; an array element is <array>_<index>"),
        Column("name", "VARCHAR", "as submitted; a later JobUpdated in events may have changed it"),
        Column("kind", "VARCHAR", "batch, session or service"),
        Column("state", "VARCHAR", "scheduled queued held offered placed running stopping succeeded failed cancelled"),
        Column("queue", "VARCHAR", "queue path; the newest one, where it was moved"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("project", "VARCHAR", "as submitted"),
        Column("priority", "INTEGER", "as submitted; likewise"),
        Column("is_array", "BOOLEAN", "true for the array itself, not for its elements"),
        Column("attempt", "UINTEGER", "newest attempt, from 1"),
        Column("gpus", "DOUBLE", "GPUs asked for, over all nodes; parts of GPUs as they are charged"),
        Column("nodes", "VARCHAR[]", "nodes of the newest placement, in rank order"),
        Column("exit_code", "INTEGER", "of the newest attempt, once its run has ended"),
        Column("signal", "INTEGER", "of the newest attempt, where a signal ended it"),
        Column(
            "reason",
            "VARCHAR",
            "why it failed: exit_code time_limit start_failed infrastructure element_failed gpu_memory oom",
        ),
        Column("submitted_at", "TIMESTAMP", "UTC; an element's is its array's"),
        Column("started_at", "TIMESTAMP", "when every rank of the newest attempt ran; empty for an array itself"),
        Column("ended_at", "TIMESTAMP", "when it reached its end state"),
        Column("sequence", "UBIGINT", "log sequence of its newest event"),
    ),
    # Planning is most of what a question about one job costs, and grows with each expression here: what can be folded is.
    # Another rank for an offer that was placed meanwhile comes too late and says nothing.
    """
    SELECT job AS id, name, kind,
      CASE WHEN ended_place IS NOT NULL THEN said WHEN stop_place > coalesce(requeue_place, 0) THEN 'stopping'
        WHEN offered_place > coalesce(said_place, 0) AND offered_attempt IS DISTINCT FROM placed_attempt THEN 'offered'
        ELSE coalesce(said, 'queued') END AS state,
      queue, "user", project, priority, is_array, greatest(attempt, 1)::UINTEGER AS attempt, gpu_milli / 1000 AS gpus,
      coalesce(string_split(nodes, ','), []) AS nodes,
      CASE WHEN run_attempt = greatest(attempt, 1) THEN exit_code END AS exit_code,
      CASE WHEN run_attempt = greatest(attempt, 1) THEN signal END AS signal,
      reason, make_timestamp_ns(submitted_ns)::TIMESTAMP AS submitted_at,
      CASE WHEN started_attempt = greatest(attempt, 1) THEN started_at END AS started_at, ended_at, sequence
    FROM fold.jobs WHERE name IS NOT NULL""",
)


ALLOCATIONS = Relation(
    "allocations",
    "What each run held on each of its nodes, from placement until the devices came back on evidence.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("rank", "INTEGER", "rank of this node within the run, from 0"),
        Column("node", "VARCHAR", "node"),
        Column("gpus", "VARCHAR[]", "GPU UUIDs"),
        Column("gpu_count", "INTEGER", "how many"),
        Column("cpu_milli", "BIGINT", "CPU held, in thousandths"),
        Column("memory_mib", "BIGINT", "memory held"),
        Column("placed_at", "TIMESTAMP", "UTC"),
        Column("released_at", "TIMESTAMP", "UTC; empty while it is held"),
        Column(
            "gpu_seconds", "DOUBLE", "GPU-seconds held, a share of a GPU as that; up to cursor.at_ns while it is held"
        ),
    ),
    """
    WITH part AS (FROM fold.done_parts UNION ALL FROM fold.open_parts)
    SELECT job, attempt, rank, node, gpus, gpu_count, cpu_milli, memory_mib, make_timestamp_ns(placed_ns)::TIMESTAMP AS placed_at,
      make_timestamp_ns(released_ns)::TIMESTAMP AS released_at,
      gpu_milli / 1000 * (coalesce(released_ns, (SELECT at_ns FROM cursor)) - placed_ns) / 1e9 AS gpu_seconds
    FROM part""",
)
HELD_NOW = Relation(
    "held_now",
    "Allocations that are held now, with an estimate of their GPU time up to now: the log may be older than that.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("rank", "INTEGER", "rank of this node within the run, from 0"),
        Column("node", "VARCHAR", "node"),
        Column("user", "VARCHAR", "who submitted"),
        Column("queue", "VARCHAR", "path of the queue that it runs in"),
        Column("gpu_count", "INTEGER", "how many GPUs"),
        Column("gpu_seconds", "DOUBLE", "GPU-seconds held up to cursor.at_ns, as in allocations"),
        Column("estimated_gpu_seconds", "DOUBLE", "estimate: up to now by this machine's clock, never less"),
    ),
    """
    SELECT p.job, p.attempt, p.rank, p.node, r."user", r.queue, p.gpu_count,
      p.gpu_milli / 1000 * ((SELECT at_ns FROM cursor) - p.placed_ns) / 1e9 AS gpu_seconds,
      p.gpu_milli / 1000 * (greatest((SELECT at_ns FROM cursor), epoch_ns(now())) - p.placed_ns) / 1e9 AS estimated_gpu_seconds
    FROM fold.open_parts p JOIN fold.open_runs r ON r.job = p.job AND r.attempt = p.attempt
    WHERE p.released_ns IS NULL""",
)
RUNS = Relation(
    "runs",
    "One row per placement of an attempt: when it ran, where, how it ended, what it held.",
    (
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "attempt"),
        Column("nodes", "VARCHAR[]", "nodes in rank order"),
        Column("gpu_count", "INTEGER", "GPUs over all nodes"),
        Column("placed_at", "TIMESTAMP", "UTC"),
        Column("started_at", "TIMESTAMP", "when every rank ran"),
        Column("ended_at", "TIMESTAMP", "when every rank had ended"),
        Column(
            "outcome",
            "VARCHAR",
            "exited stopped start_failed preflight node_lost node_rebooted exit_unknown gpu_memory oom",
        ),
        Column("exit_code", "INTEGER", "of the rank that decided the outcome"),
        Column("signal", "INTEGER", "of the rank that decided the outcome"),
        Column("gpu_seconds", "DOUBLE", "GPU-seconds held on all nodes"),
        Column("noticed_at", "TIMESTAMP", "when it was notified of its end; empty where it was not"),
        Column("saved_at", "TIMESTAMP", "when it last reported its work as saved; empty where it never did"),
        Column(
            "lost_seconds", "DOUBLE", "of an end that was no success: run time since it had saved, or since it started"
        ),
    ),
    """
    WITH run AS (
      FROM fold.done_runs
      UNION ALL
      SELECT r.*, h.nodes, h.gpu_count, h.gpu_milli_ns FROM fold.open_runs r JOIN (
        SELECT job, attempt, list(node ORDER BY rank) AS nodes, sum(gpu_count)::INTEGER AS gpu_count,
          sum(gpu_milli::HUGEINT * (coalesce(released_ns, (SELECT at_ns FROM cursor)) - placed_ns)) AS gpu_milli_ns
        FROM fold.open_parts GROUP BY job, attempt) AS h ON h.job = r.job AND h.attempt = r.attempt
    )
    SELECT job, attempt, nodes, gpu_count, make_timestamp_ns(placed_ns)::TIMESTAMP AS placed_at,
      make_timestamp_ns(started_ns)::TIMESTAMP AS started_at, make_timestamp_ns(ended_ns)::TIMESTAMP AS ended_at,
      outcome, exit_code, signal, gpu_milli_ns::DOUBLE / 1e12 AS gpu_seconds,
      make_timestamp_ns(noticed_ns)::TIMESTAMP AS noticed_at, make_timestamp_ns(saved_ns)::TIMESTAMP AS saved_at,
      CASE WHEN ended_ns IS NOT NULL AND started_ns IS NOT NULL AND NOT (outcome = 'exited' AND coalesce(exit_code, -1) = 0)
        THEN (ended_ns - greatest(started_ns, coalesce(saved_ns, 0))) / 1e9 END AS lost_seconds
    FROM run""",
)
PREEMPTIONS = Relation(
    "preemptions",
    "Every run that was asked to make way for another job, and what that cost.",
    (
        Column("asked_at", "TIMESTAMP", "UTC"),
        Column("job", "VARCHAR", "job or array element that made way"),
        Column("attempt", "UINTEGER", "its attempt"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "path of the queue that it ran in"),
        Column("beneficiary", "VARCHAR", "job that it made way for"),
        Column("rule", "VARCHAR", "which rule allowed it"),
        Column("saved_at", "TIMESTAMP", "when the run last reported its work as saved; empty where it never did"),
        Column("ended_at", "TIMESTAMP", "when every rank had ended; empty where that is yet to come"),
        Column("lost_seconds", "DOUBLE", "run time since it had saved, or since it started; empty where it ended well"),
        Column("lost_gpu_seconds", "DOUBLE", "the same, times its GPUs as they are charged"),
        Column("sequence", "UBIGINT", "log sequence of the event that asked"),
    ),
    """
    WITH run AS (
      SELECT job, attempt, queue, "user", placed_ns FROM fold.done_runs
      UNION ALL
      SELECT job, attempt, queue, "user", placed_ns FROM fold.open_runs
    ), part AS (FROM fold.done_parts UNION ALL FROM fold.open_parts), charged AS (
      SELECT part.job, part.attempt, sum(gpu_milli) / 1000 AS gpus FROM part
      SEMI JOIN fold.preemptions p ON p.job = part.job AND p.attempt = part.attempt GROUP BY ALL
    )
    SELECT make_timestamp_ns(p.at_ns)::TIMESTAMP AS asked_at, p.job, p.attempt, run."user", run.queue, p.beneficiary, p.rule,
      runs.saved_at, runs.ended_at, runs.lost_seconds, runs.lost_seconds * charged.gpus AS lost_gpu_seconds, p.sequence
    FROM fold.preemptions p LEFT JOIN run ON run.job = p.job AND run.attempt = p.attempt
      LEFT JOIN runs ON runs.job = p.job AND runs.attempt = p.attempt
      LEFT JOIN charged ON charged.job = p.job AND charged.attempt = p.attempt""",
)
REQUEUES = Relation(
    "requeues",
    "Every attempt that was followed by another one: why, where it ran, and what that cost.",
    (
        Column("at", "TIMESTAMP", "when the job went back to its queue, UTC"),
        Column("job", "VARCHAR", "job or array element"),
        Column("attempt", "UINTEGER", "the attempt that had ended"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "path of the queue that it ran in"),
        Column(
            "reason",
            "VARCHAR",
            "retry oom gpu_memory node_lost node_rebooted gpu_fault drained preempted start_failed preflight exit_unknown idle requeued",
        ),
        Column("nodes", "VARCHAR[]", "nodes in rank order"),
        Column("started_at", "TIMESTAMP", "when every rank ran; empty where it never did"),
        Column("ended_at", "TIMESTAMP", "when every rank had ended"),
        Column("exit_code", "INTEGER", "of the rank that decided the outcome"),
        Column("signal", "INTEGER", "of the rank that decided the outcome"),
        Column("lost_seconds", "DOUBLE", "run time since it had saved, or since it started; empty where it never ran"),
        Column("lost_gpu_seconds", "DOUBLE", "the same, times its GPUs as they are charged"),
        Column("sequence", "UBIGINT", "log sequence of that event"),
    ),
    """
    WITH run AS (
      SELECT job, attempt, queue, "user", placed_ns FROM fold.done_runs
      UNION ALL
      SELECT job, attempt, queue, "user", placed_ns FROM fold.open_runs
    ), part AS (FROM fold.done_parts UNION ALL FROM fold.open_parts), charged AS (
      SELECT part.job, part.attempt, sum(gpu_milli) / 1000 AS gpus FROM part
      SEMI JOIN fold.requeues r ON r.job = part.job AND r.attempt = part.attempt GROUP BY ALL
    )
    SELECT make_timestamp_ns(r.at_ns)::TIMESTAMP AS at, r.job, r.attempt, run."user", run.queue, r.reason, runs.nodes,
      runs.started_at, runs.ended_at, runs.exit_code, runs.signal, runs.lost_seconds,
      runs.lost_seconds * charged.gpus AS lost_gpu_seconds, r.sequence
    FROM fold.requeues r LEFT JOIN run ON run.job = r.job AND run.attempt = r.attempt
      LEFT JOIN runs ON runs.job = r.job AND runs.attempt = r.attempt
      LEFT JOIN charged ON charged.job = r.job AND charged.attempt = r.attempt""",
)
