"""Volumes and versions of datasets as the log has them: whose they are, how much they may hold, and from when until when."""

from fairlead_telemetry.schema.relations import Column, Relation

VOLUMES = Relation(
    "volumes",
    "Every volume that was ever made; one that was made again under a name is another row. Who may read the whole log sees them.",
    (
        Column("name", "VARCHAR", "its name"),
        Column("owner", "VARCHAR", "user:<id>, project:<name> or queue:<path>; empty once the queue is gone"),
        Column("class", "VARCHAR", "class of storage"),
        Column("quota_bytes", "UBIGINT", "most that it may hold, as last set"),
        Column("created_by", "VARCHAR", "who made it"),
        Column("created_at", "TIMESTAMP", "since then, UTC"),
        Column("deleted_at", "TIMESTAMP", "until then, UTC; empty: it is there"),
        Column("sequence", "UBIGINT", "log sequence of its creation"),
    ),
    """
    WITH made AS (
      SELECT place(sequence, idx) AS at, sequence, time, "user", body->>'volume' AS name, body->>'owner' AS owner,
        body->>'storage_class' AS class, (body->>'quota_bytes')::UBIGINT AS quota_bytes,
        lead(place(sequence, idx), 1, 9223372036854775807) OVER (PARTITION BY body->>'volume' ORDER BY place(sequence, idx)) AS next
      FROM events WHERE type = 'VolumeCreated'
    ), change AS (
      SELECT place(sequence, idx) AS at, time, type, body->>'volume' AS name, (body->>'quota_bytes')::UBIGINT AS quota_bytes
      FROM events WHERE type IN ('VolumeResized', 'VolumeDeleted')
    ), left_queue AS (
      SELECT 'queue:' || (body->>'path') AS owner, max(place(sequence, idx)) AS at FROM events WHERE type = 'QueueRemoved' GROUP BY ALL
    ), changed AS (
      SELECT made.at, arg_max(change.quota_bytes, change.at) FILTER (WHERE type = 'VolumeResized') AS quota_bytes,
        min(change.time) FILTER (WHERE type = 'VolumeDeleted') AS deleted_at
      FROM made JOIN change ON change.name = made.name AND change.at > made.at AND change.at < made.next GROUP BY made.at
    )
    SELECT name, CASE WHEN left_queue.at > made.at THEN '' ELSE made.owner END AS owner, class,
      coalesce(changed.quota_bytes, made.quota_bytes) AS quota_bytes, "user" AS created_by, time AS created_at, deleted_at, sequence
    FROM made LEFT JOIN changed ON changed.at = made.at LEFT JOIN left_queue ON left_queue.owner = made.owner""",
)
DATASETS = Relation(
    "datasets",
    "Every version of a dataset. Who may read the whole log sees them.",
    (
        Column("dataset", "VARCHAR", "name and version, such as imagenet@2012.1"),
        Column("owner", "VARCHAR", "as it was when the version was added"),
        Column("size_bytes", "UBIGINT", "bytes of all its files"),
        Column("files", "UBIGINT", "number of its files"),
        Column("digest", "VARCHAR", "SHA-256 that names its directory"),
        Column("added_by", "VARCHAR", "who added it"),
        Column("added_at", "TIMESTAMP", "since then, UTC"),
        Column("retired_at", "TIMESTAMP", "no job may name it since then, UTC; empty: it is in use"),
    ),
    """
    SELECT added.body->>'dataset' AS dataset, added.body->>'owner' AS owner,
      (added.body->>'size_bytes')::UBIGINT AS size_bytes, (added.body->>'files')::UBIGINT AS files,
      added.body->>'digest' AS digest,
      added."user" AS added_by, added.time AS added_at,
      retired.time AS retired_at
    FROM events added
    LEFT JOIN events retired
      ON retired.type = 'DatasetRetired' AND retired.body->>'dataset' = added.body->>'dataset'
    WHERE added.type = 'DatasetAdded'""",
)
