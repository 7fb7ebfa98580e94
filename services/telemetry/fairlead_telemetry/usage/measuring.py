"""Measured GPU time of a month, from samples: the part that was measured, and the part of it that was used.

A minute of a GPU counts as measured where there is a sample of it under the very run that held it. The minute was used by
the mean utilisation of its samples. The rest is not guessed: readers see how much was measured. Minutes come from the
sums per minute. So the newest minutes, which are not over, are left out, and so are minutes dropped since
(docs/reference/settings.md). For a GPU that several runs share, the use is the whole GPU's, times the share that was
held. Runs on the warehouse's thread.
"""

from typing import Any

from fairlead_telemetry.usage.statement import Measured, Month
from fairlead_telemetry.warehouse import Warehouse

MINUTE_NS = 60 * 10**9
#: Above this number of GPU minutes in the month, the answer would take too long: SQL over job_efficiency
#: answers for single jobs.
MINUTES_MAX = 20_000_000

_COUNT = "SELECT count(*) FROM rolled.minutes WHERE slot >= ? AND slot < ?"
#: Parameters as of the sums of stays: $1 models, $2 from, $3 to of the pieces, $4 the clock.
_MEASURED = """
WITH piece AS (SELECT unnest($1::VARCHAR[]) AS model, unnest($2::BIGINT[]) AS from_ns,
    unnest($3::BIGINT[]) AS to_ns, unnest(range(len($1::VARCHAR[]))) AS n),
  stay AS (
    SELECT {key} AS key, n, job AS of_job, attempt AS of_attempt, rank AS of_rank, node AS of_node, held_milli,
      greatest(begin_ns, from_ns) AS since_ns, least(coalesce(back_ns, $4), to_ns) AS until_ns
    FROM gpu_usage JOIN piece USING (model) WHERE begin_ns < to_ns AND held_milli > 0),
  part AS (SELECT job, attempt, rank, gpu_count FROM fold.done_parts UNION ALL SELECT job, attempt, rank, gpu_count FROM fold.open_parts),
  seen AS (
    SELECT key, n, held_milli::HUGEINT AS milli, gpu_count, m.samples, m.utilization_pct_sum AS util,
      least(until_ns, (m.slot + 1) * {minute}) - greatest(since_ns, m.slot * {minute}) AS ns
    FROM stay JOIN part ON part.job = of_job AND part.attempt = of_attempt AND part.rank = of_rank
    JOIN rolled.minutes m ON m.run = of_job || '.' || of_attempt AND m.node = of_node
      AND m.slot >= since_ns // {minute} AND m.slot * {minute} < until_ns)
SELECT key, n, sum(milli * ns // gpu_count), sum(milli * ns * util // (100 * samples * gpu_count)) FROM seen GROUP BY key, n"""


def measured(
    warehouse: Warehouse, month: Month, key: str, parameters: list[Any]
) -> dict[tuple[str, int], Measured] | None:
    """{(key, piece): what was measured}; None where the month has more minutes than are looked at."""
    first, last = month.begin_ns // MINUTE_NS, -(-month.end_ns // MINUTE_NS)
    if warehouse.rows(_COUNT, [first, last])[0][0] > MINUTES_MAX:
        return None
    found = warehouse.rows(_MEASURED.format(key=key, minute=MINUTE_NS), parameters)
    return {(name, piece): Measured(int(seen), int(used)) for name, piece, seen, used in found}
