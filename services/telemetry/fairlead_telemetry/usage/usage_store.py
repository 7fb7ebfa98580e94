"""Meter over the warehouse's events, with its stays as the table `gpu_usage`; and measured GPU time of a month, from
samples: the part that was measured, and the part of it that was used. The shell around `meter.py`.

`catch_up` folds the events that the warehouse has stored since, so usage is never ahead of the events. Finished stays are
appended with the sequence that ended them. The meter's memory is written only now and then, for it holds every waiting
job. After a crash the fold resumes from that memory, and rows that ended later are made again. The rows are always those
of a fold of the whole log (I9). All of it can be dropped and comes back (`forget`).

Runs on the warehouse's thread. Knows no bus and no tasks.

The table that people can ask about, and the one that keeps the meter's memory.

A minute of a GPU counts as measured where there is a sample of it under the very run that held it. The minute was used by
the mean utilisation of its samples. The rest is not guessed: readers see how much was measured. Minutes come from the
sums per minute. So the newest minutes, which are not over, are left out, and so are minutes dropped since
(docs/reference/settings.md). For a GPU that several runs share, the use is the whole GPU's, times the share that was
held. Runs on the warehouse's thread.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead_schemas.queries.telemetry import By, UsageStatement
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_telemetry.schema.usage import GPU_USAGE
from fairlead_telemetry.usage.meter import METERED, Meter, Metered, MeterState, Stay
from fairlead_telemetry.usage.prices import PriceRow, Prices
from fairlead_telemetry.usage.statement import MeasuredUse, Span, UsageSum, estimate, price_periods, statement
from fairlead_telemetry.warehouse.warehouse import Warehouse

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
      greatest(begin_ns, from_ns) AS since_ns, least(coalesce(back_ns, $4), $4, to_ns) AS until_ns
    FROM gpu_usage JOIN piece USING (model) WHERE begin_ns < to_ns AND held_milli > 0),
  part AS (SELECT job, attempt, rank, gpu_count FROM fold.done_parts UNION ALL SELECT job, attempt, rank, gpu_count FROM fold.open_parts),
  seen AS (
    SELECT key, n, held_milli::HUGEINT AS milli, gpu_count, m.samples, m.utilization_pct_sum AS util,
      least(until_ns, (m.slot + 1) * {minute}) - greatest(since_ns, m.slot * {minute}) AS ns
    FROM stay JOIN part ON part.job = of_job AND part.attempt = of_attempt AND part.rank = of_rank
    JOIN rolled.minutes m ON m.run = of_job || '.' || of_attempt AND m.node = of_node
      AND m.slot >= since_ns // {minute} AND m.slot * {minute} < until_ns)
SELECT key, n, sum(milli * ns // gpu_count), sum(milli * ns * util // (100 * samples * gpu_count)) FROM seen GROUP BY key, n"""


def measured_use(
    warehouse: Warehouse, span: Span, key: str, parameters: list[Any]
) -> dict[tuple[str, int], MeasuredUse] | None:
    """{(key, piece): what was measured}; None where the time has more minutes than are looked at."""
    first, last = span.begin_ns // MINUTE_NS, -(-span.end_ns // MINUTE_NS)
    if warehouse.rows(_COUNT, [first, last])[0][0] > MINUTES_MAX:
        return None
    found = warehouse.rows(_MEASURED.format(key=key, minute=MINUTE_NS), parameters)
    return {(name, piece): MeasuredUse(int(seen), int(used)) for name, piece, seen, used in found}


#: Events that one call takes up: nothing else is stored meanwhile.
STEP_EVENTS = 50_000
#: Events after which the meter's memory is written again.
SNAPSHOT_EVENTS = 200_000

_decoder: msgspec.json.Decoder[Metered] = msgspec.json.Decoder(Metered.__value__)
_encoder = msgspec.json.Encoder(order="deterministic")
_TYPES = ", ".join(f"'{kind.__name__}'" for kind in METERED)
#: Of each commit the placer's clock, whatever its events are: a step back must be seen.
_NEXT = f"""
SELECT sequence, max(at_ns) FILTER (writer = 'placer'), list(body::VARCHAR ORDER BY idx) FILTER (type IN ({_TYPES})), count(*)
FROM events WHERE sequence > ? AND sequence <= ? GROUP BY sequence ORDER BY sequence"""  # noqa: S608 -- names of our own types
_STEP_END = "SELECT max(sequence) FROM (SELECT sequence FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?)"
_FIELDS = [column for column in GPU_USAGE.columns if column.name != "over_at"]
_SHAPE = "[{" + ", ".join(f'"{column.name}": "{column.type}"' for column in _FIELDS) + "}]"
_INSERT = f"""
INSERT INTO gpu_usage SELECT {", ".join(f'stay."{column.name}"' for column in _FIELDS)}, over_at
FROM (SELECT unnest(from_json(?::JSON, '{_SHAPE}')) AS stay, unnest(?::UBIGINT[]) AS over_at)"""  # noqa: S608 -- names of our own columns
_PRICE = """
INSERT INTO prices VALUES ($1, $2::DECIMAL(18,6), $3, make_timestamp_ns($4::BIGINT)::TIMESTAMP, make_timestamp_ns($5::BIGINT)::TIMESTAMP)"""
#: Overlaps of stays with pieces of a month, summed; what is open at $5, the placer's clock there, counts up to $4. That clock never steps
#: back along the log, so what is later than a past one was not known there.
_SUMS = """
WITH piece AS (SELECT unnest($1::VARCHAR[]) AS model, unnest($2::BIGINT[]) AS from_ns,
    unnest($3::BIGINT[]) AS to_ns, unnest(range(len($1::VARCHAR[]))) AS n),
  overlap AS (
    SELECT {key} AS key, n, job, attempt, weight,
      charged_milli::HUGEINT * greatest(0, least(CASE WHEN end_ns <= $5 THEN end_ns ELSE $4 END, to_ns) - greatest(begin_ns, from_ns)) AS charged,
      held_milli::HUGEINT * greatest(0, least(CASE WHEN back_ns <= $5 THEN back_ns ELSE $4 END, to_ns) - greatest(begin_ns, from_ns)) AS held
    FROM gpu_usage JOIN piece USING (model) WHERE begin_ns < to_ns AND begin_ns <= $5)
SELECT key, n, count(DISTINCT (job, attempt)), sum(charged), sum(held), sum(charged * weight)
FROM overlap WHERE charged > 0 OR held > 0 GROUP BY key, n"""
_KEYS: dict[By, str] = {
    "user": '"user"',
    "queue": "queue",
    "project": "project",
    "job": "job",
    "model": "model",
    "pool": "pool",
    "attempt": "job || '.' || attempt",
}


#: Of the log up to a sequence: the placer's clock, the newest time, and the prices that were set.
_THEN = "SELECT max(at_ns) FILTER (writer = 'placer'), max(at_ns) FROM events WHERE sequence <= ?"
_PRICES_SET = "SELECT count(*) FROM events WHERE type = 'PriceSet' AND sequence <= ?"


class UsageMoment(NamedTuple):
    """Moment that a statement is as of. `as_of_ns`: the placer's clock there. `now_ns`: up to where an estimate reaches, 0: there is none.
    `prices`: how many of the prices that were ever set in the log had been set.
    """

    sequence: int
    as_of_ns: int
    now_ns: int
    prices: int


class UsageStore:
    """Usage of GPU time from the warehouse's events, up to `sequence`."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        #: Rows of `prices` that this store has written; None: those of an earlier run, whatever they are.
        self._prices: list[PriceRow] | None = None
        self._restore()

    def _restore(self) -> None:
        """Go back to the memory that was written last; what was made after it is made again."""
        saved = self._warehouse.rows("SELECT sequence, state FROM usage_meter")
        self.sequence, state = saved[0] if saved else (0, None)
        self._meter = Meter(msgspec.json.decode(state, type=MeterState) if state else None)
        self._unsaved = 0
        self._warehouse.rows("DELETE FROM gpu_usage WHERE over_at > ?", [self.sequence])
        self._write([], save=False)
        self._failed = False

    @property
    def as_of_ns(self) -> int:
        """The placer's clock at `sequence`."""
        return self._meter.state.at_ns

    def catch_up(self, step: int = STEP_EVENTS) -> bool:
        """Fold the next events; True where there are more. Where it fails, memory and rows go back together before the next."""
        if self._failed:
            self._restore()
        last = self._warehouse.cursor.sequence
        if self.sequence >= last:
            return False
        self._failed = True
        more = self._fold_step(last, step)
        self._failed = False
        return more

    def _fold_step(self, last: int, step: int) -> bool:
        found = self._warehouse.rows(_STEP_END, [self.sequence, step])[0][0]
        upto, changed = last if found is None else int(found), False
        for sequence, placer_ns, bodies, count in self._warehouse.rows(_NEXT, [self.sequence, upto]):
            if placer_ns is not None:
                self._meter.pass_time(placer_ns)
            for body in bodies or ():
                self._meter.take(sequence, _decoder.decode(body))
            changed = changed or bool(bodies)
            self._unsaved += count
        self.sequence = upto
        over, self._meter.over = self._meter.over, []
        if changed:
            self._write(over, save=self._unsaved >= SNAPSHOT_EVENTS)
        else:
            self._together(*self._clock())
        return upto < last

    def save(self) -> None:
        """Write the meter's memory, so that the next start has nothing to fold again."""
        if self._unsaved and not self._failed:
            self._write([], save=True)

    def forget(self) -> None:
        """Drop everything; `catch_up` makes it again from the events."""
        self._meter, self.sequence, self._unsaved = Meter(), 0, 0
        self._together(("DELETE FROM gpu_usage", []), ("DELETE FROM usage_meter", []))

    def set_prices(self, prices: Prices) -> None:
        """Make `prices`, and those that were set in the log, those of SQL, unless they are already."""
        rows = prices.extended(self._meter.state.prices).rows()
        if rows != self._prices:
            self._together(("DELETE FROM prices", []), *((_PRICE, list(row)) for row in rows))
            self._prices = rows

    def newest(self, clock_ns: int = 0) -> UsageMoment:
        """Return the moment of `sequence`. `clock_ns`: a machine's clock for the estimate; 0: without one."""
        now_ns = self.now_ns(clock_ns) if clock_ns else 0
        return UsageMoment(self.sequence, self.as_of_ns, now_ns, len(self._meter.state.prices))

    def moment(self, sequence: int) -> UsageMoment:
        """Return the moment of a sequence up to `self.sequence`; the log's time there counts as now."""
        ((as_of_ns, now_ns),) = self._warehouse.rows(_THEN, [sequence])
        ((prices,),) = self._warehouse.rows(_PRICES_SET, [sequence])
        return UsageMoment(sequence, as_of_ns or 0, now_ns or 0, prices)

    def statement(self, span: Span, by: By, prices: Prices, then: UsageMoment | None = None) -> UsageStatement:
        """The bill of a month or another time, as of a moment (None: `sequence`); before its end with an estimate."""
        then = then or self.newest()
        rows, prices = self._warehouse.rows, prices.extended(self._meter.state.prices[: then.prices])
        models = [model for (model,) in rows("SELECT DISTINCT model FROM gpu_usage WHERE begin_ns < ?", [span.end_ns])]
        pieces = price_periods(span, models, prices)
        bounds = [
            [piece.model for piece in pieces],
            [piece.begin_ns for piece in pieces],
            [piece.end_ns for piece in pieces],
        ]
        sums = self._sums(by, bounds, then.as_of_ns, then.as_of_ns)
        measures = measured_use(self._warehouse, span, _KEYS[by], [*bounds, then.as_of_ns])
        made = statement(span, by, pieces, sums, sequence=then.sequence, as_of_ns=then.as_of_ns, measures=measures)
        if then.now_ns and not made.is_final:
            made.estimate = estimate(pieces, self._sums(by, bounds, then.now_ns, then.as_of_ns), then.now_ns)
        return made

    def now_ns(self, clock_ns: int) -> int:
        """Return now by a machine's clock, or the newest time in the log where that clock is behind it."""
        return max(clock_ns, self.as_of_ns, self._warehouse.cursor.at_ns)

    def _sums(self, by: By, bounds: list[Any], clock_ns: int, known_ns: int) -> list[UsageSum]:
        found = self._warehouse.rows(_SUMS.format(key=_KEYS[by]), [*bounds, clock_ns, known_ns])
        return [UsageSum(*row) for row in found]

    def _write(self, over: Sequence[tuple[int, Stay]], *, save: bool) -> None:
        """Append finished stays and replace the open rows."""
        stays = [stay for _, stay in over]
        ends: list[int | None] = [sequence for sequence, _ in over]
        opened = list(self._meter.open)
        statements = [*self._clock(), ("DELETE FROM gpu_usage WHERE over_at IS NULL", [])]
        if stays or opened:
            rows = _encoder.encode(stays + opened).decode()
            statements.append((_INSERT, [rows, ends + [None] * len(opened)]))
        if save:
            statements.append(("DELETE FROM usage_meter", []))
            state = _encoder.encode(self._meter.state).decode()
            statements.append(("INSERT INTO usage_meter VALUES (?, ?)", [self.sequence, state]))
        self._together(*statements)
        if save:
            self._unsaved = 0

    def _clock(self) -> list[tuple[str, list[Any]]]:
        """Statements that write how far the rows are: `costs` charges present runs up to there, as a statement does."""
        now = [self.sequence, self.as_of_ns]
        return [("DELETE FROM usage_clock", []), ("INSERT INTO usage_clock VALUES (?, ?)", now)]

    def _together(self, *statements: tuple[str, list[Any]]) -> None:
        rows = self._warehouse.rows
        rows("BEGIN")
        try:
            for query, parameters in statements:
                rows(query, parameters)
            rows("COMMIT")
        except BaseException:
            rows("ROLLBACK")
            raise
        self._warehouse.version += 1


def refold(warehouse: Warehouse) -> int:
    """Drop all stored usage and fold it again from the stored events; return the number of rows."""
    usage = UsageStore(warehouse)
    usage.forget()
    while usage.catch_up():
        pass
    usage.save()
    return warehouse.rows("SELECT count(*) FROM gpu_usage")[0][0]
