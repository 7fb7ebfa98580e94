"""What people can ask about: every table and view with its columns, said once, as data.

The DDL, the views and the help text of `fairlead sql --tables` all come from here. Views fold
events only; they hold no rule that the queue or the placer does not state in an event. To add a
view: append a `Relation` with a sentence per column; the tests check that both agree.
"""

from typing import NamedTuple


class Column(NamedTuple):
    """One column: its DuckDB type and one sentence."""

    name: str
    type: str
    about: str


class Relation(NamedTuple):
    """A table (`select` is empty) or a view."""

    name: str
    about: str
    columns: tuple[Column, ...]
    select: str = ""


EVENTS = Relation(
    "events",
    "Every event of the log, one row each; all else is folded from it.",
    (
        Column("sequence", "UBIGINT", "log sequence of the commit; an event's id is <sequence>.<idx>"),
        Column("idx", "USMALLINT", "place within the commit, from 0"),
        Column("writer", "VARCHAR", "service that wrote it"),
        Column("time", "TIMESTAMP", "the writer's clock, UTC"),
        Column("at_ns", "BIGINT", "the same in Unix nanoseconds, exact"),
        Column("type", "VARCHAR", "event type, such as JobPlaced"),
        Column("job", "VARCHAR", "job or array element, where the event names one"),
        Column("attempt", "UINTEGER", "attempt, where the event names one"),
        Column("node", "VARCHAR", "node, where the event names one"),
        Column("queue", "VARCHAR", "queue path, where the event names one"),
        Column("user", "VARCHAR", "user, where the event names one"),
        Column("cause", "VARCHAR", "what led to it: cmd:<id>, <sequence>.<idx>, report:<node>:<n> or clock"),
        Column("body", "JSON", "the whole event as it stands in the log"),
    ),
)
SAMPLES = Relation(
    "samples",
    "What nodes measured, one row per GPU and moment; old rows are dropped (default: 7 days).",
    (
        Column("time", "TIMESTAMP", "the node's clock, UTC"),
        Column("at_ns", "BIGINT", "the same in Unix nanoseconds"),
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent; numbers restart with it"),
        Column("n", "UBIGINT", "number of the batch within the incarnation"),
        Column("uuid", "VARCHAR", "GPU"),
        Column("run", "VARCHAR", "<job>.<attempt> that holds the GPU, empty if none"),
        Column("utilization_pct", "INTEGER", "share of time with a kernel running"),
        Column("memory_used_mib", "BIGINT", "device memory in use"),
        Column("power_mw", "BIGINT", "power draw in milliwatts"),
        Column("temperature_c", "INTEGER", "core temperature"),
        Column("sm_clock_mhz", "INTEGER", "clock of the multiprocessors"),
        Column("simulated", "BOOLEAN", "true where the GPU is played, not real"),
    ),
)
SAMPLE_GAPS = Relation(
    "sample_gaps",
    "Sample batches that never arrived, by the node's own numbers. Loss is allowed and counted.",
    (
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent"),
        Column("first_lost", "UBIGINT", "first missing number"),
        Column("last_lost", "UBIGINT", "last missing number"),
        Column("lost", "UBIGINT", "how many batches that is"),
        Column("noticed_at_ns", "BIGINT", "node's time of the next batch that did arrive, Unix nanoseconds"),
    ),
)
SAMPLE_HEADS = Relation(
    "sample_heads",
    "Newest sample batch of each node and incarnation: the cursor on samples.",
    (
        Column("node", "VARCHAR", "node"),
        Column("incarnation", "VARCHAR", "journal of the node's agent"),
        Column("n", "UBIGINT", "number of the newest batch"),
        Column("at_ns", "BIGINT", "node's time of that batch, Unix nanoseconds"),
        Column("lost", "UBIGINT", "batches lost so far"),
    ),
)
CURSOR = Relation(
    "cursor",
    "One row: how far this warehouse has read, moved in the same transaction as the rows.",
    (
        Column("sequence", "UBIGINT", "last log sequence whose events are here"),
        Column("at_ns", "BIGINT", "that commit's time: views count open intervals up to here"),
        Column("created", "VARCHAR", "which log this is; a re-created one is refused"),
        Column("heads", "JSON", "newest commit of each writer: {writer: [n, hash, sequence]}"),
        Column("events", "UBIGINT", "rows in events"),
        Column("samples_lost", "UBIGINT", "sample batches lost in all"),
    ),
)

#: Orders events across and within commits by one integer, which arg_max compares far faster than a pair.
PLACE = "CREATE OR REPLACE MACRO place(sequence, idx) AS sequence::BIGINT * 65536 + idx"

MOVES = Relation(
    "moves",
    "Every move of a waiting job or array to another queue: by a person, or because its queue was removed.",
    (
        Column("job", "VARCHAR", "job or array; an element is where its array is"),
        Column("queue", "VARCHAR", "path of the queue that it was moved to"),
        Column("since", "BIGINT", "place(sequence, idx) of the event that moved it"),
    ),
    """
    WITH RECURSIVE removed AS (
      SELECT body->>'path' AS path, coalesce(body->>'move_to', '') AS queue, place(sequence, idx) AS since,
        lag(place(sequence, idx), 1, 0) OVER (PARTITION BY body->>'path' ORDER BY sequence, idx) AS earlier
      FROM events WHERE type = 'QueueRemoved'
    ), told AS (
      SELECT job, queue, place(sequence, idx) AS since, type = 'JobMoved' AS moved FROM events
      WHERE type IN ('JobSubmitted', 'JobMoved')
        AND (job IN (SELECT job FROM events WHERE type = 'JobMoved') OR queue IN (SELECT path FROM removed))
    ), ended AS (
      SELECT job, max(place(sequence, idx)) AS since FROM events
      WHERE type IN ('JobSucceeded', 'JobFailed', 'JobCancelled') AND job IN (SELECT job FROM told) GROUP BY job
    ), stays AS (
      SELECT told.job, queue, told.since, moved,
        least(lead(told.since) OVER (PARTITION BY told.job ORDER BY told.since), ended.since) AS until
      FROM told LEFT JOIN ended ON ended.job = told.job
      UNION ALL
      SELECT s.job, r.queue, r.since, true, s.until
      FROM stays s JOIN removed r ON r.path = s.queue AND r.queue <> '' AND r.earlier < s.since AND s.since < r.since
        AND (s.until IS NULL OR r.since < s.until)
    )
    SELECT job, queue, since FROM stays WHERE moved""",
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
        Column("reason", "VARCHAR", "why it failed: exit_code time_limit start_failed infrastructure element_failed"),
        Column("submitted_at", "TIMESTAMP", "UTC; an element's is its array's"),
        Column("started_at", "TIMESTAMP", "when every rank of the newest attempt ran; empty for an array itself"),
        Column("ended_at", "TIMESTAMP", "when it reached its end state"),
        Column("sequence", "UBIGINT", "log sequence of its newest event"),
    ),
    """
    WITH submitted AS (
      SELECT job, queue, "user", time, body->>'name' AS name,
        coalesce(body->>'project', '') AS project, coalesce(body->>'kind', 'batch') AS kind,
        coalesce((body->>'priority')::INTEGER, 50) AS priority, (body->'array') IS NOT NULL AS is_array,
        (coalesce((body->>'$.request.nodes')::INTEGER, 1) * coalesce((body->>'$.request.gpu_milli')::BIGINT, 0)
          + CASE WHEN contains(body::VARCHAR, '"also":[') THEN coalesce(list_sum(list_transform(
              from_json(body->'$.request.also', '[{"nodes": "BIGINT", "gpu_milli": "BIGINT"}]'),
              lambda kind: coalesce(kind.nodes, 1) * coalesce(kind.gpu_milli, 0))), 0) ELSE 0 END) / 1000 AS gpus,
        coalesce((body->>'start_at_ns')::BIGINT, 0) > at_ns AS later
      FROM events WHERE type = 'JobSubmitted'
    ), wanted AS (
      SELECT job, place(sequence, idx) AS born,
        unnest(from_json(body->'after', '[{"job": "VARCHAR", "state": "VARCHAR"}]')) AS other
      FROM events WHERE type = 'JobSubmitted' AND contains(body::VARCHAR, '"after":[')
    ), behind AS (
      SELECT DISTINCT wanted.job FROM wanted LEFT JOIN events e
        ON e.job = other.job AND place(e.sequence, e.idx) < born AND CASE coalesce(other.state, 'succeeded')
          WHEN 'ended' THEN e.type IN ('JobSucceeded', 'JobFailed', 'JobCancelled')
          WHEN 'failed' THEN e.type IN ('JobFailed', 'JobCancelled') ELSE e.type = 'JobSucceeded' END
      WHERE e.job IS NULL
    ), life AS (
      SELECT job, max(sequence) AS sequence, greatest(max(attempt), 1)::UINTEGER AS attempt,
        arg_max({'type': type, 'place': place(sequence, idx)}, place(sequence, idx)) FILTER (type IN ('JobSubmitted', 'JobQueued',
          'OfferReturned', 'JobHeld', 'JobReleased', 'JobRequeued', 'JobPlaced', 'RunStarted', 'JobSucceeded', 'JobFailed',
          'JobCancelled')) AS said,
        arg_max({'attempt': attempt, 'place': place(sequence, idx)}, place(sequence, idx)) FILTER (type = 'JobOffered') AS offered,
        max(place(sequence, idx)) FILTER (type = 'JobStopRequested')
          > coalesce(max(place(sequence, idx)) FILTER (type = 'JobRequeued'), 0) AS stop,
        max(time) FILTER (type IN ('JobSucceeded', 'JobFailed', 'JobCancelled')) AS ended_at,
        coalesce(max(place(sequence, idx)) FILTER (type IN ('JobSucceeded', 'JobFailed', 'JobCancelled')),
          9223372036854775807) AS until, split_part(job, '_', 1) AS born_as,
        arg_max({'attempt': attempt, 'time': time}, place(sequence, idx)) FILTER (type = 'RunStarted') AS started,
        arg_max(body, place(sequence, idx)) FILTER (type = 'JobPlaced') AS placed,
        arg_max(attempt, place(sequence, idx)) FILTER (type = 'JobPlaced') AS placed_attempt,
        arg_max({'attempt': attempt, 'body': body}, place(sequence, idx)) FILTER (type = 'RunEnded') AS run,
        arg_max(body, place(sequence, idx)) FILTER (type = 'JobFailed') AS failed
      FROM events WHERE job IS NOT NULL GROUP BY job
    ), latest AS (
      -- Another rank for an offer that was placed meanwhile comes too late and says nothing.
      SELECT *, CASE WHEN offered.place > coalesce(said.place, 0) AND offered.attempt IS DISTINCT FROM placed_attempt
        THEN 'JobOffered' ELSE said.type END AS newest FROM life
    )
    SELECT life.job AS id, s.name, s.kind,
      CASE newest WHEN 'JobSucceeded' THEN 'succeeded' WHEN 'JobFailed' THEN 'failed' WHEN 'JobCancelled' THEN 'cancelled'
        ELSE CASE WHEN stop THEN 'stopping' ELSE CASE newest
          WHEN 'JobSubmitted' THEN if(later OR behind.job IS NOT NULL, 'scheduled', 'queued') WHEN 'JobOffered' THEN 'offered' WHEN 'JobHeld' THEN 'held'
          WHEN 'JobPlaced' THEN 'placed' WHEN 'RunStarted' THEN 'running' ELSE 'queued' END END END AS state,
      coalesce(moves.queue, s.queue) AS queue, s."user", s.project, s.priority, s.is_array AND life.job NOT LIKE '%!_%' ESCAPE '!' AS is_array,
      life.attempt, s.gpus, coalesce(placed->>'$.parts[*].node', []) AS nodes,
      CASE WHEN run.attempt = life.attempt THEN (run.body->>'exit_code')::INTEGER END AS exit_code,
      CASE WHEN run.attempt = life.attempt THEN (run.body->>'signal')::INTEGER END AS signal,
      failed->>'reason' AS reason, s.time AS submitted_at,
      CASE WHEN started.attempt = life.attempt THEN started.time END AS started_at, ended_at, life.sequence
    FROM latest AS life JOIN submitted s ON s.job = life.born_as LEFT JOIN behind ON behind.job = life.job
      ASOF LEFT JOIN moves ON moves.job = life.born_as AND life.until >= moves.since""",
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
    WITH placed AS (
      SELECT job, attempt, time, at_ns,
        unnest(from_json(body->'parts',
          '[{"node": "VARCHAR", "gpus": ["VARCHAR"], "cpu_milli": "BIGINT", "memory_mib": "BIGINT",
            "gpu_milli": "BIGINT"}]')) AS part,
        generate_subscripts(from_json(body->'parts', '["JSON"]'), 1) - 1 AS rank
      FROM events WHERE type = 'JobPlaced'
    ), back AS (
      SELECT job, attempt, node, NULL AS rank, time, at_ns FROM events WHERE type = 'AllocationReleased'
      UNION ALL
      SELECT job, attempt, unnest(from_json(body->'released', '["VARCHAR"]')), NULL, time, at_ns
      FROM events WHERE type = 'RunEnded' AND (body->'released') IS NOT NULL
      UNION ALL
      SELECT job, attempt, NULL, (body->>'rank')::BIGINT, time, at_ns
      FROM events WHERE type = 'RankEnded' AND (body->>'released')::BOOLEAN
    ), released AS (
      SELECT p.job, p.attempt, p.rank, min(back.time) AS time, min(back.at_ns) AS at_ns
      FROM placed p JOIN back ON back.job = p.job AND back.attempt = p.attempt
        AND (back.rank = p.rank OR back.node = p.part.node)
      GROUP BY ALL
    )
    SELECT p.job, p.attempt, p.rank::INTEGER AS rank, p.part.node AS node, coalesce(p.part.gpus, []) AS gpus,
      coalesce(len(p.part.gpus), 0)::INTEGER AS gpu_count, coalesce(p.part.cpu_milli, 0) AS cpu_milli,
      coalesce(p.part.memory_mib, 0) AS memory_mib, p.time AS placed_at, r.time AS released_at,
      gpu_count * coalesce(p.part.gpu_milli, 1000) / 1000 * (coalesce(r.at_ns, (SELECT at_ns FROM cursor)) - p.at_ns) / 1e9 AS gpu_seconds
    FROM placed p LEFT JOIN released r ON r.job = p.job AND r.attempt = p.attempt AND r.rank = p.rank""",
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
        Column("outcome", "VARCHAR", "exited stopped start_failed node_lost node_rebooted exit_unknown"),
        Column("exit_code", "INTEGER", "of the rank that decided the outcome"),
        Column("signal", "INTEGER", "of the rank that decided the outcome"),
        Column("gpu_seconds", "DOUBLE", "GPU-seconds held on all nodes"),
    ),
    """
    WITH held AS (
      SELECT job, attempt, list(node ORDER BY rank) AS nodes, sum(gpu_count)::INTEGER AS gpu_count,
        min(placed_at) AS placed_at, sum(gpu_seconds) AS gpu_seconds
      FROM allocations GROUP BY job, attempt
    )
    SELECT held.job, held.attempt, nodes, gpu_count, placed_at, s.time AS started_at, e.time AS ended_at,
      e.body->>'outcome' AS outcome, (e.body->>'exit_code')::INTEGER AS exit_code, (e.body->>'signal')::INTEGER AS signal,
      gpu_seconds
    FROM held
    LEFT JOIN events s ON s.type = 'RunStarted' AND s.job = held.job AND s.attempt = held.attempt
    LEFT JOIN events e ON e.type = 'RunEnded' AND e.job = held.job AND e.attempt = held.attempt""",
)
NODES = Relation(
    "nodes",
    "Every node that ever joined, in its latest state.",
    (
        Column("id", "VARCHAR", "node id"),
        Column("state", "VARCHAR", "ready cordoned draining drained quarantined lost"),
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
    WITH life AS (
      SELECT node, max(sequence) AS sequence, min(time) FILTER (type = 'NodeJoined') AS joined_at,
        count(*) FILTER (type = 'NodeLost')::INTEGER AS times_lost,
        arg_max(type, place(sequence, idx)) FILTER (type IN ('NodeJoined', 'NodeLost', 'NodeReturned')) AS presence,
        arg_max(type, place(sequence, idx)) FILTER (type IN ('NodeCordoned', 'NodeUncordoned', 'NodeDraining', 'NodeDrained')) AS wish,
        arg_max(type, place(sequence, idx)) FILTER (type IN ('NodeQuarantined', 'NodeReleased')) AS quarantine,
        arg_max(body, place(sequence, idx)) FILTER (type IN ('NodeJoined', 'NodeChanged'))->'inventory' AS inventory
      FROM events WHERE node IS NOT NULL AND type LIKE 'Node%' GROUP BY node HAVING joined_at IS NOT NULL
    )
    SELECT node AS id,
      CASE WHEN presence = 'NodeLost' THEN 'lost' ELSE CASE wish WHEN 'NodeCordoned' THEN 'cordoned'
        WHEN 'NodeDraining' THEN 'draining' WHEN 'NodeDrained' THEN 'drained'
        ELSE CASE quarantine WHEN 'NodeQuarantined' THEN 'quarantined' ELSE 'ready' END END END AS state,
      coalesce(inventory->>'$.gpus[0].model', '') AS gpu_model,
      coalesce(json_array_length(inventory, '$.gpus'), 0)::INTEGER AS gpu_count,
      coalesce((inventory->>'cpu_milli')::BIGINT, 0) AS cpu_milli,
      coalesce((inventory->>'memory_mib')::BIGINT, 0) AS memory_mib,
      coalesce(inventory->>'runtime', 'process') AS runtime,
      coalesce((inventory->>'simulated')::BOOLEAN, false) AS simulated, joined_at, times_lost, sequence
    FROM life""",
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
    WITH setting AS (
      SELECT body->>'path' AS path, arg_max(body, place(sequence, idx)) AS body, max(time) AS configured_at
      FROM events WHERE type IN ('QueueConfigured', 'QueueRemoved') GROUP BY ALL
      HAVING arg_max(type, place(sequence, idx)) = 'QueueConfigured'
    ), counted AS (
      SELECT queue, count(*) FILTER (state IN ('scheduled', 'queued', 'held', 'offered')) AS waiting,
        count(*) FILTER (state IN ('placed', 'running', 'stopping')) AS running,
        count(*) FILTER (state IN ('succeeded', 'failed', 'cancelled')) AS ended
      FROM jobs WHERE NOT is_array GROUP BY queue
    )
    SELECT path, coalesce(body->>'$.settings.maximum.gpu', body->>'gpu_quota_milli')::BIGINT / 1000 AS gpu_quota, coalesce(waiting, 0) AS waiting,
      coalesce(running, 0) AS running, coalesce(ended, 0) AS ended, configured_at
    FROM setting LEFT JOIN counted ON counted.queue = path""",
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
    WITH ran AS (
      SELECT job, attempt, split_part(job, '_', 1) AS born_as, max(place(sequence, idx)) AS placed
      FROM events WHERE type = 'JobPlaced' GROUP BY job, attempt
    ), held AS (SELECT job, attempt, sum(gpu_seconds) AS gpu_seconds FROM allocations GROUP BY job, attempt)
    SELECT s."user", coalesce(moves.queue, s.queue) AS queue, count(*) AS runs, sum(held.gpu_seconds) / 3600 AS gpu_hours
    FROM held JOIN ran USING (job, attempt) JOIN events s ON s.type = 'JobSubmitted' AND s.job = ran.born_as
      ASOF LEFT JOIN moves ON moves.job = ran.born_as AND ran.placed >= moves.since
    GROUP BY ALL""",
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
    WITH first AS (
      SELECT job, split_part(job, '_', 1) AS born_as, min(at_ns) AS at_ns, min(place(sequence, idx)) AS placed
      FROM events WHERE type = 'JobPlaced' GROUP BY job
    )
    SELECT coalesce(moves.queue, s.queue) AS queue, count(*) AS jobs, quantile_cont((first.at_ns - s.at_ns) / 1e9, 0.5) AS p50_s,
      quantile_cont((first.at_ns - s.at_ns) / 1e9, 0.9) AS p90_s, max((first.at_ns - s.at_ns) / 1e9) AS max_s
    FROM first JOIN events s ON s.type = 'JobSubmitted' AND s.job = first.born_as
      ASOF LEFT JOIN moves ON moves.job = first.born_as AND first.placed >= moves.since
    GROUP BY ALL""",
)

TABLES = (EVENTS, SAMPLES, SAMPLE_GAPS, SAMPLE_HEADS, CURSOR)
#: In order of creation: a view comes after those that it reads.
VIEWS = (MOVES, JOBS, ALLOCATIONS, RUNS, NODES, QUEUES, GPU_HOURS, QUEUE_WAIT)


def ddl() -> list[str]:
    """Statements that create every table that is missing and every view anew."""
    tables = [
        f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(f'"{c.name}" {c.type}' for c in table.columns)})"
        for table in TABLES
    ]
    return [*tables, PLACE] + [f"CREATE OR REPLACE VIEW {view.name} AS {view.select}" for view in VIEWS]


def help_text() -> str:
    """What `fairlead sql --tables` prints."""
    lines: list[str] = []
    for relation in (*VIEWS, *TABLES):
        lines.append(f"{relation.name}: {relation.about}")
        width = max(len(column.name) for column in relation.columns)
        kind = max(len(column.type) for column in relation.columns)
        lines += [f"  {column.name:<{width}}  {column.type:<{kind}}  {column.about}" for column in relation.columns]
        lines.append("")
    return "\n".join(lines)
