"""The verb `metrics`: a job's GPUs over time, from samples or from their sums. A shell; the steps are `metric_steps.py`'s.

    metrics  JobMetricsRequest  -> fairlead_schemas.queries.telemetry.JobMetrics

It reads the warehouse itself, on its thread, with questions of ours: sums per minute and hour keep a month of a job at some milliseconds.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead_schemas.queries.telemetry import JobMetrics, JobMetricsRequest, QueryCaller
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS, SECOND_NS
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.queries.metric_steps import BadSpan, MetricCell, Steps, measured_pct, series, steps_of
from fairlead_telemetry.sql.member_copy import scope_of
from fairlead_telemetry.warehouse.warehouse import Warehouse

_OWNER = 'SELECT "user", project, queue FROM fold.jobs WHERE job = ? AND name IS NOT NULL'
#: One row per part of the attempt, in the order of ranks.
_HELD = """
WITH part AS (FROM fold.done_parts UNION ALL FROM fold.open_parts)
SELECT attempt, node, gpus, placed_ns, released_ns FROM part
WHERE job = $1 AND attempt = CASE WHEN $2 = 0 THEN (SELECT max(attempt) FROM part WHERE job = $1) ELSE $2 END
ORDER BY rank"""

_OF_SAMPLES = """
SELECT at_ns, uuid, 1 AS samples, utilization_pct AS util, utilization_pct AS most, memory_used_mib AS memory, power_mw AS power, simulated
FROM samples WHERE run = $1 AND time >= make_timestamp($2::BIGINT // 1000) AND time < make_timestamp($3::BIGINT // 1000)"""
_OF_SUMS = """
SELECT slot * {unit_ns} AS at_ns, uuid, samples, utilization_pct_sum AS util, utilization_pct_max AS most, memory_used_mib_sum AS memory,
  power_mw_sum AS power, simulated
FROM rolled.{table} WHERE run = $1 AND slot >= $2 // {unit_ns} AND slot * {unit_ns} < $3"""
_MINUTES = _OF_SUMS.format(table="minutes", unit_ns=MINUTE_NS)
_HOURS = _OF_SUMS.format(table="hours", unit_ns=HOUR_NS)
# Parameters: $1 the run, $2 from (Unix ns), $3 to, $4 the step (ns).
#: What is not added up yet is taken from what is finer.
_FROM = {
    "samples": _OF_SAMPLES,
    "minutes": f"""{_MINUTES} AND slot NOT IN (FROM rolled.stale_minutes)
UNION ALL {_OF_SAMPLES} AND at_ns // {MINUTE_NS} IN (FROM rolled.stale_minutes)""",
    "hours": f"""{_HOURS} AND slot NOT IN (FROM rolled.stale_hours)
UNION ALL {_MINUTES} AND slot // 60 IN (FROM rolled.stale_hours) AND slot NOT IN (FROM rolled.stale_minutes)
UNION ALL {_OF_SAMPLES} AND at_ns // {MINUTE_NS} IN (FROM rolled.stale_minutes)""",
}
_CELLS = """
SELECT (at_ns - $2) // $4 AS step, uuid, sum(samples)::BIGINT, sum(util)::BIGINT, max(most), sum(memory)::BIGINT, sum(power)::BIGINT,
  bool_or(simulated)
FROM ({source}) GROUP BY ALL"""


class JobMetricsQueries:
    """Answers for one warehouse."""

    def __init__(self, warehouse: Warehouse, ingest: Ingest, clock: Callable[[], int] = time.time_ns) -> None:
        self._warehouse = warehouse
        self._ingest = ingest
        self._clock = clock

    async def ask(self, request: bytes) -> bytes:
        """Return one picture, or {"error": …}."""
        try:
            query = msgspec.json.decode(request, type=JobMetricsRequest)
        except msgspec.MsgspecError as error:
            return _error("bad_request", str(error), 'send {"caller": {…}, "job": "812"}')
        try:
            picture = await self._ingest.ask(job_metrics_of, self._warehouse, query, self._clock())
        except BadSpan as error:
            return _error("bad_request", str(error), "leave it out, and one that suits is taken")
        if picture is None:
            return _error("not_found", f"no job {query.job[:80]!r} that held GPUs", "fairlead jobs lists jobs")
        return msgspec.json.encode(picture)


def job_metrics_of(warehouse: Warehouse, query: JobMetricsRequest, now_ns: int) -> JobMetrics | None:
    """The job's picture; None where it never held a GPU, or the caller may not see it. Raises BadSpan."""
    if not _sees(warehouse, query.caller, query.job):
        return None
    held = warehouse.rows(_HELD, [query.job, query.attempt])
    gpus = [(node, uuid) for _, node, uuids, _, _ in held for uuid in uuids]
    if not gpus:
        return None
    attempt, back = held[0][0], [released_ns for *_, released_ns in held]
    back_ns = now_ns if None in back else max(back)
    steps = steps_of(query, min(placed_ns for *_, placed_ns, _ in held), back_ns, len(gpus))
    cells = _cells(warehouse, f"{query.job}.{attempt}", steps)
    found = series(gpus, steps, (MetricCell(*row[:-1]) for row in cells))
    return JobMetrics(
        job=query.job,
        attempt=attempt,
        sequence=warehouse.cursor.sequence,
        from_ns=steps.from_ns,
        step_s=steps.step_s,
        steps=steps.total,
        source=steps.source,
        measured_pct=measured_pct(found),
        simulated=any(row[-1] for row in cells),
        gpus=found,
    )


def _sees(warehouse: Warehouse, caller: QueryCaller, job: str) -> bool:
    owner = warehouse.rows(_OWNER, [job])
    scope = scope_of(caller)
    return bool(owner) and (scope is None or scope.sees(job, *(value or "" for value in owner[0])))


def _cells(warehouse: Warehouse, run: str, steps: Steps) -> list[tuple[Any, ...]]:
    return warehouse.rows(
        _CELLS.format(source=_FROM[steps.source]), [run, steps.from_ns, steps.to_ns, steps.step_s * SECOND_NS]
    )


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint}})
