"""Nodes and queues: few rows, each in its latest state."""

from fairlead_telemetry.fold.tables import FRESH, FoldStatement

#: A description is read once, for all that is taken from it: each read of one keeps the parsed text of 2,048 rows in memory.
_NODES = f"""
INSERT INTO fold.nodes
WITH {FRESH}, life AS (
  SELECT node, max(sequence) AS sequence, min(time) FILTER (type = 'NodeJoined') AS joined_at,
    count(*) FILTER (type = 'NodeLost')::INTEGER AS times_lost,
    arg_max(type, place) FILTER (type IN ('NodeJoined', 'NodeLost', 'NodeReturned', 'NodeRemoved')) AS presence,
    arg_max(type, place) FILTER (type IN ('NodeCordoned', 'NodeUncordoned', 'NodeDraining', 'NodeDrained', 'NodeRemoved')) AS wish,
    arg_max(type, place) FILTER (type IN ('NodeQuarantined', 'NodeUnquarantined', 'NodeRemoved')) AS quarantine,
    max(place) FILTER (type IN ('NodeJoined', 'NodeChanged')) AS described
  FROM fresh WHERE node IS NOT NULL AND type LIKE 'Node%' GROUP BY node
), description AS MATERIALIZED (
  SELECT life.node, json_extract(body, ['$.inventory.gpus[0].model', '$.inventory.cpu_milli', '$.inventory.memory_mib',
    '$.inventory.runtime', '$.inventory.simulated', '$.inventory.gpus', '$.inventory.taints']) AS found
  FROM fresh JOIN life ON fresh.place = life.described AND fresh.node = life.node)
SELECT life.node, joined_at, times_lost, presence, wish, quarantine,
  CASE WHEN found IS NOT NULL THEN coalesce(found[1]->>'$', '') END,
  CASE WHEN found IS NOT NULL THEN coalesce(json_array_length(found[6]), 0)::INTEGER END,
  CASE WHEN found IS NOT NULL THEN coalesce(found[2]::BIGINT, 0) END,
  CASE WHEN found IS NOT NULL THEN coalesce(found[3]::BIGINT, 0) END,
  CASE WHEN found IS NOT NULL THEN coalesce(found[4]->>'$', 'process') END,
  CASE WHEN found IS NOT NULL THEN coalesce(found[5]::BOOLEAN, false) END, sequence,
  CASE WHEN found IS NOT NULL THEN coalesce(found[6], '[]'::JSON) END,
  CASE WHEN found IS NOT NULL THEN coalesce(found[7], '[]'::JSON) END
FROM life LEFT JOIN description ON description.node = life.node
ON CONFLICT (node) DO UPDATE SET
  joined_at = coalesce(joined_at, excluded.joined_at), times_lost = times_lost + excluded.times_lost,
  presence = coalesce(excluded.presence, presence), wish = coalesce(excluded.wish, wish),
  quarantine = coalesce(excluded.quarantine, quarantine), gpu_model = coalesce(excluded.gpu_model, gpu_model),
  gpu_count = coalesce(excluded.gpu_count, gpu_count), cpu_milli = coalesce(excluded.cpu_milli, cpu_milli),
  memory_mib = coalesce(excluded.memory_mib, memory_mib), runtime = coalesce(excluded.runtime, runtime),
  simulated = coalesce(excluded.simulated, simulated), sequence = excluded.sequence,
  gpus = coalesce(excluded.gpus, gpus), taints = coalesce(excluded.taints, taints)"""

#: A node that was removed has no marks any more; one that joins again later starts without.
_REMOVED = f"""
DELETE FROM fold.marks AS m USING (WITH {FRESH} SELECT DISTINCT node FROM fresh WHERE type = 'NodeRemoved') AS r
WHERE m.node = r.node"""
#: A taint is replaced by one of the same setter, key and effect with another value.
_MARKS = f"""
INSERT INTO fold.marks
WITH {FRESH}, removed AS (
  SELECT node, max(place) AS removed_place FROM fresh WHERE type = 'NodeRemoved' GROUP BY node
), seen AS (
  SELECT node, 'fault' AS kind, body->>'gpu' AS name, place, type = 'GpuFaulted' AS holds, body->>'code' AS code
  FROM fresh WHERE type IN ('GpuFaulted', 'GpuRestored')
  UNION ALL
  SELECT node, 'taint', concat_ws('|', coalesce(body->>'setter', ''), split_part(split_part(body->>'taint', ':', 1), '=', 1),
    split_part(body->>'taint', ':', 2)), place, type = 'NodeTainted', body->>'taint'
  FROM fresh WHERE type IN ('NodeTainted', 'NodeUntainted')
  UNION ALL
  SELECT node, 'suspect', '', place, type = 'NodeSuspected', coalesce(body->>'rests_until_ns', '0')
  FROM fresh WHERE type IN ('NodeSuspected', 'NodeCleared', 'NodeUnquarantined'))
SELECT seen.node, kind, name, max(place), arg_max(holds, place), arg_max(code, place)
FROM seen LEFT JOIN removed ON removed.node = seen.node WHERE coalesce(place > removed_place, true) GROUP BY ALL
ON CONFLICT (node, kind, name) DO UPDATE SET place = excluded.place, holds = excluded.holds, code = excluded.code"""

_KEPT = f"""
INSERT INTO fold.kept
WITH {FRESH}
SELECT job, from_json(arg_max(CASE type WHEN 'ReservationMade' THEN body->'nodes' ELSE '[]'::JSON END, place), '["VARCHAR"]')
FROM fresh WHERE type IN ('ReservationMade', 'ReservationEnded') GROUP BY job
ON CONFLICT (job) DO UPDATE SET nodes = excluded.nodes"""

_QUEUES = f"""
INSERT INTO fold.queues
WITH {FRESH}, setting AS (
  SELECT body->>'path' AS path, arg_max(body, place) AS body, max(time) AS configured_at,
    arg_max(type, place) = 'QueueConfigured' AS there
  FROM fresh WHERE type IN ('QueueConfigured', 'QueueRemoved') GROUP BY ALL)
SELECT path, coalesce(body->>'$.settings.maximum.gpu', body->>'gpu_quota_milli')::BIGINT, configured_at, there FROM setting
ON CONFLICT (path) DO UPDATE SET gpu_milli = excluded.gpu_milli, there = excluded.there,
  configured_at = greatest(configured_at, excluded.configured_at)"""

_MARKED = (
    "GpuFaulted",
    "GpuRestored",
    "NodeTainted",
    "NodeUntainted",
    "NodeSuspected",
    "NodeCleared",
    "NodeUnquarantined",
)
STEPS = (
    FoldStatement(("Node",), _NODES),
    FoldStatement(("NodeRemoved",), _REMOVED),
    FoldStatement(_MARKED, _MARKS),
    FoldStatement(("ReservationMade", "ReservationEnded"), _KEPT),
    FoldStatement(("QueueConfigured", "QueueRemoved"), _QUEUES),
)
