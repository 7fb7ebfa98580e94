"""Jobs as they were submitted: what each asked for, and how it was described. Views over the events; nothing of them is folded."""

from fairlead_telemetry.schema.relations import Column, Relation

JOB_REQUESTS = Relation(
    "job_requests",
    "What every job or array asked for when it was submitted; an element asks for what its array does.",
    (
        Column("job", "VARCHAR", "job or array id"),
        Column("user", "VARCHAR", "who submitted it"),
        Column("queue", "VARCHAR", "path of the queue that it was submitted to"),
        Column("submitted_at", "TIMESTAMP", "UTC"),
        Column("command", "VARCHAR[]", "program and arguments"),
        Column("image", "VARCHAR", "container image; empty: none"),
        Column("labels", "MAP(VARCHAR, VARCHAR)", "labels of the job file: labels['team']"),
        Column("nodes", "INTEGER", "nodes, or tasks that may share nodes; a gang's full size"),
        Column("gpus_per_node", "DOUBLE", "GPUs of one node or task; parts of GPUs as they are charged"),
        Column("cpus_per_node", "DOUBLE", "CPUs of one node or task"),
        Column("memory_mib_per_node", "BIGINT", "memory of one node or task; 0: not asked for"),
        Column("gpu_memory_mib", "BIGINT", "least memory of each GPU; 0: any"),
        Column("time_limit_s", "DOUBLE", "longest run time of an attempt; empty: none"),
        Column("priority", "INTEGER", "as submitted"),
        Column("retries", "INTEGER", "further attempts after a failed exit"),
        Column("start_after", "TIMESTAMP", "not before, UTC; empty: at once"),
        Column("deadline", "TIMESTAMP", "shall have ended by then, UTC; empty: none"),
        Column("after", "VARCHAR[]", "jobs that it waits for"),
        Column("array_first", "INTEGER", "first index of an array; empty: a single job"),
        Column("array_last", "INTEGER", "last index of an array"),
        Column("array_limit", "INTEGER", "elements that may run at once; 0: all"),
        Column("spec", "JSON", "the job file as it was accepted"),
    ),
    """
    WITH submitted AS (
      SELECT job, "user", queue, time, body, body->'request' AS request, body->'spec' AS spec FROM events WHERE type = 'JobSubmitted'
    )
    SELECT job, "user", queue, time AS submitted_at,
      list_concat(from_json(spec->'command', '["VARCHAR"]'), coalesce(from_json(spec->'args', '["VARCHAR"]'), [])) AS command,
      nullif(spec->>'image', '') AS image,
      coalesce(from_json(spec->'labels', '"MAP(VARCHAR, VARCHAR)"'), MAP {}) AS labels,
      coalesce((request->>'nodes')::INTEGER, 1) AS nodes,
      coalesce((request->>'gpu_milli')::BIGINT, 0) / 1000 AS gpus_per_node,
      coalesce((request->>'cpu_milli')::BIGINT, 0) / 1000 AS cpus_per_node,
      coalesce((request->>'memory_mib')::BIGINT, 0) AS memory_mib_per_node,
      coalesce((request->>'gpu_memory_mib')::BIGINT, 0) AS gpu_memory_mib,
      nullif((body->>'total_ns')::BIGINT, 0) / 1e9 AS time_limit_s,
      coalesce((body->>'priority')::INTEGER, 50) AS priority,
      coalesce((body->>'retries')::INTEGER, 0) AS retries,
      make_timestamp_ns(nullif((body->>'start_at_ns')::BIGINT, 0))::TIMESTAMP AS start_after,
      make_timestamp_ns(nullif((body->>'deadline_ns')::BIGINT, 0))::TIMESTAMP AS deadline,
      coalesce(from_json(body->'$.after[*].job', '["VARCHAR"]'), []) AS after,
      (body->>'$.array[0]')::INTEGER AS array_first, (body->>'$.array[1]')::INTEGER AS array_last,
      coalesce((body->>'array_limit')::INTEGER, 0) AS array_limit, spec
    FROM submitted""",
)
