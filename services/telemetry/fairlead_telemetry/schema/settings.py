"""Settings of queues and pools, each the newest: what a queue file says, as rows. Views over the events; nothing of them is folded."""

from fairlead_telemetry.schema.relations import Column, Relation

#: Newest settings of each queue that is there.
_SETTINGS = """newest AS (
      SELECT body->>'path' AS path, arg_max(body->'settings', place(sequence, idx)) AS settings FROM events
      WHERE type = 'QueueConfigured' GROUP BY ALL
    )"""

QUEUE_SETTINGS = Relation(
    "queue_settings",
    "Every queue that is there with its newest settings. Amounts of other resources and models: see `settings`.",
    (
        Column("path", "VARCHAR", "queue path"),
        Column("pool", "VARCHAR", "its pool, that of the queue at the top; default: the default pool"),
        Column("guaranteed_gpus", "DOUBLE", "GPUs that it is guaranteed; empty: none"),
        Column("maximum_gpus", "DOUBLE", "GPUs that it may hold; empty: no bound"),
        Column("borrowing_gpus", "DOUBLE", "GPUs beyond the guarantee; empty: no bound"),
        Column("lending_gpus", "DOUBLE", "GPUs of an idle guarantee that others may use; empty: all"),
        Column("weight", "INTEGER", "its share relative to its siblings"),
        Column("priority", "INTEGER", "queues of higher priority go first among their siblings"),
        Column("budget_gpu_hours", "DOUBLE", "GPU-hours of a period, weighted by model; empty: no budget"),
        Column("budget_period", "VARCHAR", "day, week, month or year"),
        Column("when_spent", "VARCHAR", "refuse or demote"),
        Column("settings", "JSON", "all of it as in the log, in thousandths and MiB"),
    ),
    f"""
    WITH {_SETTINGS}
    SELECT q.path, coalesce(nullif(top.settings->>'pool', ''), 'default') AS pool,
      (own.settings->'guaranteed'->>'gpu')::BIGINT / 1000 AS guaranteed_gpus,
      coalesce((own.settings->'maximum'->>'gpu')::BIGINT, q.gpu_milli) / 1000 AS maximum_gpus,
      (own.settings->'borrowing'->>'gpu')::BIGINT / 1000 AS borrowing_gpus,
      (own.settings->'lending'->>'gpu')::BIGINT / 1000 AS lending_gpus,
      coalesce((own.settings->>'weight')::INTEGER, 1) AS weight, coalesce((own.settings->>'priority')::INTEGER, 0) AS priority,
      (own.settings->'budget'->>'gpu_milli_s')::BIGINT / 3600000 AS budget_gpu_hours,
      CASE WHEN (own.settings->'budget') IS NOT NULL THEN coalesce(own.settings->'budget'->>'period', 'month') END AS budget_period,
      CASE WHEN (own.settings->'budget') IS NOT NULL THEN coalesce(own.settings->'budget'->>'when_spent', 'refuse') END AS when_spent,
      own.settings AS settings
    FROM fold.queues q LEFT JOIN newest own ON own.path = q.path LEFT JOIN newest top ON top.path = split_part(q.path, '/', 1)
    WHERE q.there""",  # noqa: S608 -- a part of our own
)
USER_LIMITS = Relation(
    "user_limits",
    "Limits per user of the queues that are there: one row for each user, resource and queue that names them.",
    (
        Column("path", "VARCHAR", "queue path"),
        Column("user", "VARCHAR", "user; *: everybody who is not named"),
        Column("resource", "VARCHAR", "gpu, cpu, memory or gpu:<model>; empty: no limit for this user"),
        Column("maximum", "DOUBLE", "GPUs or CPUs, or MiB of memory, that the user may hold in the queue"),
    ),
    f"""
    WITH {_SETTINGS}, entry AS (
      SELECT path, unnest(map_entries(from_json(settings->'users', '"MAP(VARCHAR, MAP(VARCHAR, BIGINT))"'))) AS entry FROM newest
    ), listed AS (
      SELECT path, entry.key AS "user",
        unnest(CASE WHEN cardinality(entry.value) = 0 THEN [NULL] ELSE map_entries(entry.value) END) AS amount
      FROM entry
    )
    SELECT path, "user", amount.key AS resource, amount.value / CASE amount.key WHEN 'memory' THEN 1 ELSE 1000 END AS maximum
    FROM listed SEMI JOIN fold.queues q ON q.path = listed.path AND q.there""",  # noqa: S608 -- as above
)
POOLS = Relation(
    "pools",
    "Every pool with settings of its own, the newest ones. A pool that no file names has the defaults, and no row.",
    (
        Column("name", "VARCHAR", "pool; default: the default pool"),
        Column("sequencer", "VARCHAR", "order of its queues: drf, fairshare, fifo, lifo, promised or your own"),
        Column("packing", "VARCHAR", "how it chooses among nodes that could take a job"),
        Column("past_percent", "INTEGER", "how much of a share is past use, in percent"),
        Column("defragment", "BOOLEAN", "true where runs are moved to make room for big jobs"),
        Column("users", "VARCHAR[]", "users who may submit to its queues; none here and in projects: everybody"),
        Column("projects", "VARCHAR[]", "projects that may"),
        Column("prices", "MAP(VARCHAR, DOUBLE)", "weight of a GPU of each model in budgets; others count 1"),
        Column("configured_at", "TIMESTAMP", "newest setting, UTC"),
        Column("settings", "JSON", "all of it as in the log"),
    ),
    """
    WITH newest AS (
      SELECT body->>'pool' AS name, arg_max(type, place(sequence, idx)) AS type, arg_max(body->'settings', place(sequence, idx)) AS settings,
        max(time) AS configured_at
      FROM events WHERE type IN ('PoolConfigured', 'PoolRemoved') GROUP BY 1
    )
    SELECT coalesce(nullif(name, ''), 'default') AS name, coalesce(settings->>'sequencer', 'drf') AS sequencer,
      coalesce(settings->>'packing', 'fragmentation') AS packing, coalesce((settings->>'past_percent')::INTEGER, 0) AS past_percent,
      coalesce((settings->>'defragment')::BOOLEAN, false) AS defragment,
      coalesce(from_json(settings->'users', '["VARCHAR"]'), []) AS users, coalesce(from_json(settings->'projects', '["VARCHAR"]'), []) AS projects,
      coalesce(map_from_entries(list_transform(map_entries(from_json(settings->'prices', '"MAP(VARCHAR, BIGINT)"')),
        lambda each: {'key': each.key, 'value': each.value / 1000})), MAP {}) AS prices,
      configured_at, settings
    FROM newest WHERE type = 'PoolConfigured'""",
)
