"""Nodes and queues, each in its latest state."""

from fairlead_telemetry.schema.relation import Column, Relation

NODES = Relation(
    "nodes",
    "Every node that ever joined, in its latest state.",
    (
        Column("id", "VARCHAR", "node id"),
        Column("state", "VARCHAR", "ready cordoned draining drained quarantined lost removed"),
        Column("gpu_model", "VARCHAR", "model of its first GPU"),
        Column("gpu_count", "INTEGER", "GPUs in its inventory"),
        Column("cpu_milli", "BIGINT", "CPU in its inventory, in thousandths"),
        Column("memory_mib", "BIGINT", "memory in its inventory"),
        Column("runtime", "VARCHAR", "process, docker or hollow"),
        Column("simulated", "BOOLEAN", "true where its GPUs are played, not real"),
        Column("joined_at", "TIMESTAMP", "first joined, UTC"),
        Column("times_lost", "INTEGER", "how often its lease ran out"),
        Column("sequence", "UBIGINT", "log sequence of its newest event"),
    ),
    """
    SELECT node AS id,
      CASE WHEN presence = 'NodeLost' THEN 'lost' WHEN presence = 'NodeRemoved' THEN 'removed' ELSE CASE wish WHEN 'NodeCordoned' THEN 'cordoned'
        WHEN 'NodeDraining' THEN 'draining' WHEN 'NodeDrained' THEN 'drained'
        ELSE CASE quarantine WHEN 'NodeQuarantined' THEN 'quarantined' ELSE 'ready' END END END AS state,
      gpu_model, gpu_count, cpu_milli, memory_mib, runtime, simulated, joined_at, times_lost, sequence
    FROM fold.nodes WHERE joined_at IS NOT NULL""",
)
QUEUES = Relation(
    "queues",
    "Every queue that is there, with its latest setting and its jobs by state.",
    (
        Column("path", "VARCHAR", "queue path"),
        Column("gpu_quota", "DOUBLE", "its maximum in GPUs; empty: none"),
        Column(
            "waiting",
            "BIGINT",
            "jobs scheduled, queued, held or offered; neither arrays themselves nor elements never offered",
        ),
        Column("running", "BIGINT", "jobs placed, running or stopping"),
        Column("ended", "BIGINT", "jobs that reached an end state"),
        Column("configured_at", "TIMESTAMP", "latest setting, UTC"),
    ),
    """
    WITH counted AS (
      SELECT queue, count(*) FILTER (state IN ('scheduled', 'queued', 'held', 'offered')) AS waiting,
        count(*) FILTER (state IN ('placed', 'running', 'stopping')) AS running,
        count(*) FILTER (state IN ('succeeded', 'failed', 'cancelled')) AS ended
      FROM jobs WHERE NOT is_array GROUP BY queue
    )
    SELECT path, gpu_milli / 1000 AS gpu_quota, coalesce(waiting, 0) AS waiting, coalesce(running, 0) AS running,
      coalesce(ended, 0) AS ended, configured_at
    FROM fold.queues LEFT JOIN counted ON counted.queue = path WHERE there""",
)
