"""Jobs: each in its latest state, and their moves between queues."""

from fairlead_telemetry.schema.relation import Column, Relation

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
        Column("name", "VARCHAR", "as submitted"),
        Column("kind", "VARCHAR", "batch, session or service"),
        Column("state", "VARCHAR", "scheduled queued held offered placed running stopping succeeded failed cancelled"),
        Column("queue", "VARCHAR", "queue path; the newest one, where it was moved"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("project", "VARCHAR", "as submitted"),
        Column("priority", "INTEGER", "as submitted"),
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
