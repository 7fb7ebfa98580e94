"""Nodes and queues, each in its latest state; and views of free capacity and of the sizes of its pieces."""

from fairlead_telemetry.schema.relations import Column, Relation

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
GPUS = Relation(
    "gpus",
    "Every GPU of the nodes that are there, in the state that the cluster map draws it in.",
    (
        Column("node", "VARCHAR", "node id"),
        Column("uuid", "VARCHAR", "GPU UUID"),
        Column("index", "INTEGER", "its index on the node"),
        Column("model", "VARCHAR", "model"),
        Column(
            "state",
            "VARCHAR",
            "free kept tainted cut closed held cleaning unhealthy, as docs/how-to/nodes.md explains them; a silent agent closes a node only once it is lost",
        ),
        Column("fault", "VARCHAR", "code of what is wrong with it; empty: nothing is"),
    ),
    """
    WITH used AS (
      SELECT node, each.uuid, ended_ns IS NULL AS lives
      FROM fold.open_parts p LEFT JOIN fold.open_runs r ON r.job = p.job AND r.attempt = p.attempt, unnest(p.gpus) AS each(uuid)
      WHERE released_ns IS NULL
    ), holder AS (SELECT node, uuid, bool_or(lives) AS lives FROM used GROUP BY ALL
    ), taint AS (
      SELECT node, code AS taint FROM fold.marks WHERE kind = 'taint' AND holds
      UNION ALL
      SELECT node, unnest(from_json(taints, '["VARCHAR"]')) FROM fold.nodes
    ), barred AS (
      SELECT node, bool_or(taint LIKE 'fairlead/%') AS own FROM taint WHERE taint NOT LIKE '%:PreferNoSchedule' GROUP BY node
    ), kept AS (
      SELECT DISTINCT unnest(k.nodes) AS node FROM fold.kept k JOIN jobs j ON j.id = k.job WHERE j.state = 'offered'
    ), suspect AS (
      SELECT node FROM fold.marks m WHERE kind = 'suspect' AND holds
        AND (code <> '0' OR EXISTS (FROM fold.open_parts p WHERE p.node = m.node AND released_ns IS NULL))
    ), access AS (
      SELECT n.node, CASE
        WHEN presence = 'NodeLost' OR wish IN ('NodeCordoned', 'NodeDraining', 'NodeDrained') OR quarantine = 'NodeQuarantined'
          OR suspect.node IS NOT NULL OR barred.own THEN 'closed'
        WHEN kept.node IS NOT NULL THEN 'kept' WHEN barred.node IS NOT NULL THEN 'tainted' ELSE 'free' END AS unheld, gpus
      FROM fold.nodes n LEFT JOIN suspect ON suspect.node = n.node LEFT JOIN barred ON barred.node = n.node
        LEFT JOIN kept ON kept.node = n.node
      WHERE joined_at IS NOT NULL AND presence <> 'NodeRemoved'
    ), gpu AS (
      SELECT node, unheld, gpu->>'uuid' AS uuid, coalesce((gpu->>'index')::INTEGER, 0) AS "index",
        coalesce(gpu->>'model', '') AS model, coalesce((gpu->>'mig')::BOOLEAN, false) AS mig
      FROM access, unnest(from_json(access.gpus, '["JSON"]')) AS each(gpu)
    )
    SELECT gpu.node, gpu.uuid, "index", model, CASE
        WHEN holder.lives THEN 'held' WHEN holder.uuid IS NOT NULL THEN 'cleaning' WHEN fault.code IS NOT NULL THEN 'unhealthy'
        WHEN mig AND unheld = 'free' THEN 'cut' ELSE unheld END AS state, fault.code AS fault
    FROM gpu LEFT JOIN holder ON holder.node = gpu.node AND holder.uuid = gpu.uuid
      LEFT JOIN fold.marks fault ON fault.node = gpu.node AND fault.kind = 'fault' AND fault.name = gpu.uuid AND fault.holds""",
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
            "jobs scheduled, queued, held or offered; without arrays themselves and elements never offered",
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


FRAGMENTATION = Relation(
    "fragmentation_by_hour",
    "Free GPUs at each full hour of the last week, and how many of them lie on nodes that are partly taken.",
    (
        Column("time", "TIMESTAMP", "full hour, UTC"),
        Column("nodes", "BIGINT", "nodes with GPUs that had joined; what has become of them since is not looked at"),
        Column("gpus", "DOUBLE", "their GPUs, by their inventory of now"),
        Column("free_gpus", "DOUBLE", "not held by any run; parts of GPUs as they are charged"),
        Column("free_on_empty_nodes", "DOUBLE", "of these, on nodes where nothing is held"),
        Column("most_on_one_node", "DOUBLE", "the most free GPUs on one node: a greater part of a job had no place"),
        Column(
            "fragmented_pct",
            "DOUBLE",
            "share of the free GPUs that lie on partly taken nodes; empty where none is free",
        ),
    ),
    """
    WITH hour AS (
      SELECT at_ns // 3600000000000 - i AS slot FROM cursor, range(168) AS t(i)
    ), node AS (
      SELECT node, gpu_count * 1000 AS milli, epoch_us(joined_at) AS joined_us FROM fold.nodes WHERE joined_at IS NOT NULL AND gpu_count > 0
    ), part AS (
      SELECT node, gpu_milli, placed_ns, released_ns FROM fold.done_parts
      WHERE gpu_milli > 0 AND released_ns > (SELECT min(slot) * 3600000000000 FROM hour)
      UNION ALL
      SELECT node, gpu_milli, placed_ns, coalesce(released_ns, (SELECT at_ns + 1 FROM cursor)) FROM fold.open_parts WHERE gpu_milli > 0
    ), spread AS (
      SELECT node, gpu_milli, unnest(range(greatest((placed_ns + 3599999999999) // 3600000000000, (SELECT min(slot) FROM hour)),
        (released_ns - 1) // 3600000000000 + 1)) AS slot
      FROM part
    ), held AS (SELECT slot, node, sum(gpu_milli) AS milli FROM spread GROUP BY ALL
    ), free AS (
      SELECT hour.slot, node.milli, greatest(0, node.milli - coalesce(held.milli, 0)) AS free
      FROM hour JOIN node ON node.joined_us <= hour.slot * 3600000000 LEFT JOIN held ON held.slot = hour.slot AND held.node = node.node
    )
    SELECT make_timestamp(slot * 3600000000) AS time, count(*) AS nodes, sum(milli) / 1000 AS gpus, sum(free) / 1000 AS free_gpus,
      coalesce(sum(free) FILTER (free = milli), 0) / 1000 AS free_on_empty_nodes, max(free) / 1000 AS most_on_one_node,
      CASE WHEN sum(free) > 0 THEN 100 * coalesce(sum(free) FILTER (free < milli), 0) / sum(free) END AS fragmented_pct
    FROM free GROUP BY slot""",
)
