"""Nodes and queues: few rows, each in its latest state."""

from fairlead_telemetry.fold.fresh import FRESH, Step

_NODES = f"""
INSERT INTO fold.nodes
WITH {FRESH}, life AS (
  SELECT node, max(sequence) AS sequence, min(time) FILTER (type = 'NodeJoined') AS joined_at,
    count(*) FILTER (type = 'NodeLost')::INTEGER AS times_lost,
    arg_max(type, place) FILTER (type IN ('NodeJoined', 'NodeLost', 'NodeReturned', 'NodeRemoved')) AS presence,
    arg_max(type, place) FILTER (type IN ('NodeCordoned', 'NodeUncordoned', 'NodeDraining', 'NodeDrained', 'NodeRemoved')) AS wish,
    arg_max(type, place) FILTER (type IN ('NodeQuarantined', 'NodeReleased', 'NodeRemoved')) AS quarantine,
    arg_max(body, place) FILTER (type IN ('NodeJoined', 'NodeChanged')) AS told
  FROM fresh WHERE node IS NOT NULL AND type LIKE 'Node%' GROUP BY node)
SELECT node, joined_at, times_lost, presence, wish, quarantine,
  CASE WHEN told IS NOT NULL THEN coalesce(told->>'$.inventory.gpus[0].model', '') END,
  CASE WHEN told IS NOT NULL THEN coalesce(json_array_length(told, '$.inventory.gpus'), 0)::INTEGER END,
  CASE WHEN told IS NOT NULL THEN coalesce((told->>'$.inventory.cpu_milli')::BIGINT, 0) END,
  CASE WHEN told IS NOT NULL THEN coalesce((told->>'$.inventory.memory_mib')::BIGINT, 0) END,
  CASE WHEN told IS NOT NULL THEN coalesce(told->>'$.inventory.runtime', 'process') END,
  CASE WHEN told IS NOT NULL THEN coalesce((told->>'$.inventory.simulated')::BOOLEAN, false) END, sequence
FROM life
ON CONFLICT (node) DO UPDATE SET
  joined_at = coalesce(joined_at, excluded.joined_at), times_lost = times_lost + excluded.times_lost,
  presence = coalesce(excluded.presence, presence), wish = coalesce(excluded.wish, wish),
  quarantine = coalesce(excluded.quarantine, quarantine), gpu_model = coalesce(excluded.gpu_model, gpu_model),
  gpu_count = coalesce(excluded.gpu_count, gpu_count), cpu_milli = coalesce(excluded.cpu_milli, cpu_milli),
  memory_mib = coalesce(excluded.memory_mib, memory_mib), runtime = coalesce(excluded.runtime, runtime),
  simulated = coalesce(excluded.simulated, simulated), sequence = excluded.sequence"""

_QUEUES = f"""
INSERT INTO fold.queues
WITH {FRESH}, setting AS (
  SELECT body->>'path' AS path, arg_max(body, place) AS body, max(time) AS configured_at,
    arg_max(type, place) = 'QueueConfigured' AS there
  FROM fresh WHERE type IN ('QueueConfigured', 'QueueRemoved') GROUP BY ALL)
SELECT path, coalesce(body->>'$.settings.maximum.gpu', body->>'gpu_quota_milli')::BIGINT, configured_at, there FROM setting
ON CONFLICT (path) DO UPDATE SET gpu_milli = excluded.gpu_milli, there = excluded.there,
  configured_at = greatest(configured_at, excluded.configured_at)"""

STEPS = (Step(("Node",), _NODES), Step(("QueueConfigured", "QueueRemoved"), _QUEUES))
