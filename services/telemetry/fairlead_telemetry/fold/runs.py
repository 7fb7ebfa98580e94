"""Runs and what they hold on each node, from placement until every part has come back.

Idle periods of runs, by rule: one row per JobIdle, updated by later events of the same run and rule.
"""

from fairlead_telemetry.fold.tables import FRESH, FoldStatement

_PLACED = f"""
INSERT INTO fold.open_runs
WITH {FRESH}
SELECT f.job, f.attempt, o.queue, o."user", f.at_ns, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM fresh f LEFT JOIN fold.open_jobs o ON o.job = split_part(f.job, '_', 1) WHERE f.type = 'JobPlaced'"""

_PARTS = f"""
INSERT INTO fold.open_parts
WITH {FRESH}, placed AS (
  SELECT job, attempt, at_ns, from_json(body, '{{"parts": [{{"node": "VARCHAR", "gpus": ["VARCHAR"], "cpu_milli": "BIGINT",
    "memory_mib": "BIGINT", "gpu_milli": "BIGINT"}}]}}').parts AS parts
  FROM fresh WHERE type = 'JobPlaced'
), part AS (SELECT job, attempt, at_ns, unnest(parts) AS p, generate_subscripts(parts, 1) - 1 AS rank FROM placed)
SELECT job, attempt, rank, p.node, coalesce(p.gpus, []), coalesce(len(p.gpus), 0),
  coalesce(len(p.gpus), 0) * coalesce(p.gpu_milli, 1000), coalesce(p.cpu_milli, 0), coalesce(p.memory_mib, 0), at_ns, NULL
FROM part"""

#: A part comes back once; what names it again says nothing new.
_RELEASED = f"""
UPDATE fold.open_parts AS p SET released_ns = r.at_ns FROM (
  WITH {FRESH}, back AS (
    SELECT job, attempt, node, NULL::BIGINT AS rank, at_ns FROM fresh WHERE type = 'AllocationReleased'
    UNION ALL
    SELECT job, attempt, unnest(from_json(body, '{{"released": ["VARCHAR"]}}').released), NULL, at_ns FROM fresh WHERE type = 'RunEnded'
    UNION ALL
    SELECT job, attempt, NULL, (body->>'rank')::BIGINT, at_ns FROM fresh
    WHERE type = 'RankEnded' AND body->>'released' = 'true')
  SELECT o.job, o.attempt, o.rank, min(back.at_ns) AS at_ns FROM fold.open_parts o
  JOIN back ON back.job = o.job AND back.attempt = o.attempt AND (back.rank = o.rank OR back.node = o.node)
  WHERE o.released_ns IS NULL GROUP BY ALL) AS r
WHERE p.job = r.job AND p.attempt = r.attempt AND p.rank = r.rank"""

_STARTED = f"""
UPDATE fold.open_runs AS r SET started_ns = s.at_ns
FROM (WITH {FRESH} SELECT job, attempt, at_ns FROM fresh WHERE type = 'RunStarted') AS s
WHERE r.job = s.job AND r.attempt = s.attempt"""

_ENDED = f"""
UPDATE fold.open_runs AS r SET ended_ns = e.at_ns, outcome = e.b.outcome, exit_code = e.b.exit_code, signal = e.b.signal,
  noticed_ns = e.b.noticed_ns, saved_ns = e.b.saved_ns
FROM (WITH {FRESH} SELECT job, attempt, at_ns, from_json(body, '{{"outcome": "VARCHAR", "exit_code": "INTEGER",
    "signal": "INTEGER", "noticed_ns": "BIGINT", "saved_ns": "BIGINT"}}') AS b FROM fresh WHERE type = 'RunEnded') AS e
WHERE r.job = e.job AND r.attempt = e.attempt"""

_PREEMPTED = f"""
INSERT INTO fold.preemptions
WITH {FRESH}
SELECT job, attempt, body->>'beneficiary', body->>'rule', at_ns, sequence FROM fresh WHERE type = 'PreemptionStarted'"""

#: The event names the attempt that is to come.
_REQUEUED = f"""
INSERT INTO fold.requeues
WITH {FRESH}
SELECT job, attempt - 1, body->>'reason', at_ns, sequence FROM fresh WHERE type = 'JobRequeued'"""

#: A run is done when it has ended and holds nothing more.
_DONE_NOW = """
CREATE OR REPLACE TEMP TABLE done_now AS
SELECT r.*, h.nodes, h.gpu_count, h.gpu_milli_ns FROM fold.open_runs r JOIN (
  SELECT job, attempt, list(node ORDER BY rank) AS nodes, sum(gpu_count)::INTEGER AS gpu_count,
    sum(gpu_milli::HUGEINT * (released_ns - placed_ns)) AS gpu_milli_ns
  FROM fold.open_parts GROUP BY job, attempt HAVING bool_and(released_ns IS NOT NULL)) AS h
  ON h.job = r.job AND h.attempt = r.attempt
WHERE r.ended_ns IS NOT NULL"""
_PARTS_DONE = """
INSERT INTO fold.done_parts
SELECT p.* FROM fold.open_parts p SEMI JOIN done_now d ON d.job = p.job AND d.attempt = p.attempt"""
_OPEN_LESS = "DELETE FROM fold.{} o USING done_now d WHERE d.job = o.job AND d.attempt = o.attempt"

_BACK = ("AllocationReleased", "RankEnded", "RunEnded")
RUN_STEPS = (
    FoldStatement(("JobPlaced",), _PLACED),
    FoldStatement(("JobPlaced",), _PARTS),
    FoldStatement(("PreemptionStarted",), _PREEMPTED),
    FoldStatement(("JobRequeued",), _REQUEUED),
    FoldStatement(_BACK, _RELEASED),
    FoldStatement(("RunStarted",), _STARTED),
    FoldStatement(("RunEnded",), _ENDED),
    FoldStatement(_BACK, _DONE_NOW, reads_events=False),
    FoldStatement(_BACK, "INSERT INTO fold.done_runs FROM done_now", reads_events=False),
    FoldStatement(_BACK, _PARTS_DONE, reads_events=False),
    FoldStatement(_BACK, _OPEN_LESS.format("open_parts"), reads_events=False),
    FoldStatement(_BACK, _OPEN_LESS.format("open_runs"), reads_events=False),
)


_REPORTED_IDLE = f"""
INSERT INTO fold.idle
WITH {FRESH}, reported AS (
  SELECT job, attempt, place, at_ns, sequence, body, from_json(body, '{{"scope": "VARCHAR", "rule": "VARCHAR", "action": "VARCHAR",
    "mode": "VARCHAR", "since_ns": "BIGINT", "reclaim_at_ns": "BIGINT"}}') AS b
  FROM fresh WHERE type = 'JobIdle')
SELECT place, job, attempt, b.rule, b.scope, b.action, b.mode, b.since_ns, at_ns, b.reclaim_at_ns, body->'evidence',
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, sequence
FROM reported"""


def _go_on(type_: str, columns: str) -> str:
    """The newest row of the run and rule before an event of the type takes these from it (`e`)."""
    return f"""
UPDATE fold.idle AS i SET {columns} FROM (
  WITH {FRESH}, later AS (SELECT job, attempt, body->>'rule' AS rule, place, at_ns, body FROM fresh WHERE type = '{type_}')
  SELECT spell.place AS spell, later.at_ns, later.body
  FROM later ASOF JOIN fold.idle spell ON spell.job = later.job AND spell.attempt = later.attempt AND spell.rule = later.rule
    AND later.place > spell.place) AS e
WHERE i.place = e.spell"""


_FORESEEN = _go_on("ReclaimSimulated", "foreseen_ns = e.at_ns, reclaim_evidence = e.body->'evidence'")
_SHRUNK = _go_on("LeaseShrunk", "shrunk_ns = e.at_ns, lease_ns = (e.body->>'until_ns')::BIGINT")
_REQUESTED = _go_on(
    "ReclaimRequested",
    "requested_ns = e.at_ns, on_demand = coalesce((e.body->>'on_demand')::BOOLEAN, false), "
    "reclaim_evidence = e.body->'evidence'",
)
_ACTIVE = _go_on("JobActive", "active_ns = e.at_ns, reason = e.body->>'reason', active_evidence = e.body->'evidence'")

_EXTENDED = f"""
INSERT INTO fold.extensions
WITH {FRESH}
SELECT job, attempt, at_ns, (body->>'until_ns')::BIGINT, (body->>'count')::INTEGER, coalesce(body->>'by', ''), sequence
FROM fresh WHERE type = 'JobExtended'"""

IDLE_STEPS = (
    FoldStatement(("JobIdle",), _REPORTED_IDLE),
    FoldStatement(("ReclaimSimulated",), _FORESEEN),
    FoldStatement(("LeaseShrunk",), _SHRUNK),
    FoldStatement(("ReclaimRequested",), _REQUESTED),
    FoldStatement(("JobActive",), _ACTIVE),
    FoldStatement(("JobExtended",), _EXTENDED),
)
