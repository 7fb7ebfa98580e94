"""Views of free capacity and of the sizes of its pieces."""

from fairlead_telemetry.schema.relation import Column, Relation

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
