"""Idle periods of runs, by rule: one row per JobIdle, updated by later events of the same run and rule."""

from fairlead_telemetry.fold.fresh import FRESH, Step

_SAID = f"""
INSERT INTO fold.idle
WITH {FRESH}, said AS (
  SELECT job, attempt, place, at_ns, sequence, body, from_json(body, '{{"scope": "VARCHAR", "rule": "VARCHAR", "action": "VARCHAR",
    "mode": "VARCHAR", "since_ns": "BIGINT", "reclaim_at_ns": "BIGINT"}}') AS b
  FROM fresh WHERE type = 'JobIdle')
SELECT place, job, attempt, b.rule, b.scope, b.action, b.mode, b.since_ns, at_ns, b.reclaim_at_ns, body->'evidence',
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, sequence
FROM said"""


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

STEPS = (
    Step(("JobIdle",), _SAID),
    Step(("ReclaimSimulated",), _FORESEEN),
    Step(("LeaseShrunk",), _SHRUNK),
    Step(("ReclaimRequested",), _REQUESTED),
    Step(("JobActive",), _ACTIVE),
    Step(("JobExtended",), _EXTENDED),
)
