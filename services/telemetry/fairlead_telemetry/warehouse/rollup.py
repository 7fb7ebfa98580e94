"""Sums of samples per minute and per hour, so that the past stays cheap to query after its samples are dropped.

A transaction that stores samples marks their minutes. A marked minute that is over is summed again from all its samples,
and its hour from all its minutes. So samples may come late and in any order, and a crash at any moment changes nothing.
Samples for a minute whose samples were dropped meanwhile are not added. Sums, not means, are stored: they are exact for
any later use.
"""

from collections.abc import Set

import duckdb

from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS, SECOND_NS

#: A minute is added up this long after its end: most of its samples have come by then.
GRACE_NS = 10 * SECOND_NS

#: Of what a GPU may not tell: its sum, and of how many samples that is.
_ALSO = ("memory_busy_pct", "sm_permille", "tensor_permille", "dram_permille", "pcie_tx_bytes_s", "pcie_rx_bytes_s")
_ALSO_COLUMNS = [f"{name}_{what}" for name in _ALSO for what in ("sum", "samples")]

_SUMS = """node VARCHAR, uuid VARCHAR, run VARCHAR, samples BIGINT, busy_samples BIGINT, utilization_pct_sum BIGINT,
  utilization_pct_max INTEGER, memory_used_mib_sum BIGINT, memory_used_mib_max BIGINT, power_mw_sum BIGINT,
  power_mw_max BIGINT, temperature_c_max INTEGER, sm_clock_mhz_sum BIGINT, simulated BOOLEAN"""

#: `slot` counts minutes or hours since 1970. These are no part of `fold`: they cannot be made again from events.
TABLES = (
    "CREATE SCHEMA IF NOT EXISTS rolled",
    f"CREATE TABLE IF NOT EXISTS rolled.minutes (slot BIGINT, {_SUMS})",
    f"CREATE TABLE IF NOT EXISTS rolled.hours (slot BIGINT, {_SUMS})",
    *(
        f"ALTER TABLE rolled.{table} ADD COLUMN IF NOT EXISTS {column} BIGINT"
        for table in ("minutes", "hours")
        for column in _ALSO_COLUMNS
    ),
    "CREATE TABLE IF NOT EXISTS rolled.stale_minutes (slot BIGINT)",
    "CREATE TABLE IF NOT EXISTS rolled.stale_hours (slot BIGINT)",
    "CREATE TABLE IF NOT EXISTS rolled.horizon (at_ns BIGINT)",
)

_MARK = "INSERT INTO rolled.stale_minutes SELECT DISTINCT unnest(?::BIGINT[]) AS slot EXCEPT FROM rolled.stale_minutes"
_MARK_ALL = """INSERT INTO rolled.stale_minutes
SELECT DISTINCT epoch_ms(time) // 60000 AS slot FROM samples WHERE epoch_ms(time) // 60000 >= ? EXCEPT FROM rolled.stale_minutes"""
_MARK_HOURS = (
    "INSERT INTO rolled.stale_hours SELECT DISTINCT slot // 60 AS slot FROM due EXCEPT FROM rolled.stale_hours"
)
_HORIZON = "SELECT coalesce(max(at_ns), 0) FROM rolled.horizon"

_DUE = """CREATE OR REPLACE TEMP TABLE due AS SELECT slot FROM rolled.stale_{} WHERE slot < ?"""
_RANGE = "SELECT min(slot), max(slot) FROM due"

_MINUTES = """
INSERT INTO rolled.minutes BY NAME
SELECT epoch_ms(time) // 60000 AS slot, node, uuid, run, count(*) AS samples,
  count(*) FILTER (coalesce(utilization_pct, engine_permille, sm_permille, 1) > 0) AS busy_samples,
  sum(utilization_pct) AS utilization_pct_sum, max(utilization_pct) AS utilization_pct_max,
  sum(memory_used_mib) AS memory_used_mib_sum, max(memory_used_mib) AS memory_used_mib_max, sum(power_mw) AS power_mw_sum,
  max(power_mw) AS power_mw_max, max(temperature_c) AS temperature_c_max, sum(sm_clock_mhz) AS sm_clock_mhz_sum,
  bool_or(simulated) AS simulated, {also}
FROM {source} WHERE time >= make_timestamp(? // 1000) AND time < make_timestamp(? // 1000)
  AND epoch_ms(time) // 60000 IN (SELECT slot FROM due)
GROUP BY slot, node, uuid, run ORDER BY slot, node, uuid"""
_HOURS = f"""
INSERT INTO rolled.hours BY NAME
SELECT slot // 60 AS slot, node, uuid, run, sum(samples) AS samples, sum(busy_samples) AS busy_samples,
  sum(utilization_pct_sum) AS utilization_pct_sum, max(utilization_pct_max) AS utilization_pct_max,
  sum(memory_used_mib_sum) AS memory_used_mib_sum, max(memory_used_mib_max) AS memory_used_mib_max,
  sum(power_mw_sum) AS power_mw_sum, max(power_mw_max) AS power_mw_max, max(temperature_c_max) AS temperature_c_max,
  sum(sm_clock_mhz_sum) AS sm_clock_mhz_sum, bool_or(simulated) AS simulated,
  {", ".join(f"sum({name}) AS {name}" for name in _ALSO_COLUMNS)}
FROM rolled.minutes m WHERE m.slot >= ? AND m.slot < ? AND m.slot // 60 IN (SELECT slot FROM due)
GROUP BY m.slot // 60, node, uuid, run ORDER BY 1, node, uuid"""  # noqa: S608 words of ours
_ALSO_SUMS = ", ".join(f"sum({name}) AS {name}_sum, count({name}) AS {name}_samples" for name in _ALSO)


class Rollup:
    """The sums of one warehouse. Its owner gives the transactions."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        for statement in TABLES:
            db.execute(statement)

    def mark(self, minutes: Set[int]) -> None:
        """Samples of these minutes (since 1970) were stored: what had been added up of them is stale."""
        if minutes:
            self._db.execute(_MARK, [sorted(minutes)])

    def roll(self, now_ns: int, files_to_ns: int = 2**63 - 1) -> bool:
        """Add up the stale minutes that were over by `now_ns` (Unix), then the stale hours; whether there were any. From
        `files_to_ns` on no samples are in files."""
        horizon_ns = self._number(_HORIZON)
        self._db.execute("DELETE FROM rolled.stale_minutes WHERE slot * 60000000000 < ?", [horizon_ns])
        first, minute = self._due("minutes", (now_ns - GRACE_NS) // MINUTE_NS)
        if minute:
            self._db.execute(_MARK_HOURS)
            source = "measured.samples" if first * MINUTE_NS >= files_to_ns else "samples"
            self._replace(
                "minutes", _MINUTES.format(source=source, also=_ALSO_SUMS), first * MINUTE_NS, (minute + 1) * MINUTE_NS
            )
        first, hour = self._due("hours", (now_ns - GRACE_NS) // HOUR_NS)
        if hour:
            self._replace("hours", _HOURS, first * 60, (hour + 1) * 60)
        return bool(minute or hour)

    def again(self, from_ns: int) -> None:
        """Drop the sums of all minutes that still have all their samples, from this time on, and sum them again."""
        first = max(self._number(_HORIZON), from_ns)
        added = self._number("SELECT coalesce(max(slot) + 1, 0) FROM rolled.minutes") * MINUTE_NS
        rolled_ns = max(added, self._number("SELECT coalesce(max(slot) + 1, 0) FROM rolled.hours") * HOUR_NS)
        first_minute = -(-first // MINUTE_NS)
        self._db.execute("DELETE FROM rolled.minutes WHERE slot >= ?", [first_minute])
        self._db.execute(_MARK_ALL, [first_minute])
        self.roll(rolled_ns + GRACE_NS)

    def drop(self, samples_before_ns: int, minutes_before_ns: int, hours_before_ns: int) -> None:
        """Forget minutes and hours before these times; samples before theirs are gone from here on."""
        self._db.execute("DELETE FROM rolled.horizon WHERE at_ns <= ?", [samples_before_ns])
        self._db.execute("INSERT INTO rolled.horizon VALUES (?)", [samples_before_ns])
        self._db.execute("DELETE FROM rolled.minutes WHERE slot < ?", [minutes_before_ns // MINUTE_NS])
        self._db.execute("DELETE FROM rolled.hours WHERE slot < ?", [hours_before_ns // HOUR_NS])

    def _due(self, what: str, before: int) -> tuple[int, int]:
        """First and last of the stale slots that are over; zeros: there is none."""
        self._db.execute(_DUE.format(what), [before])
        row = self._db.execute(_RANGE).fetchone()
        return (0, 0) if row is None or row[0] is None else row

    def _replace(self, what: str, insert: str, low: int, high: int) -> None:
        self._db.execute(f"DELETE FROM rolled.{what} WHERE slot IN (SELECT slot FROM due)")  # noqa: S608 two names of ours
        self._db.execute(insert, [low, high])
        self._db.execute(f"DELETE FROM rolled.stale_{what} WHERE slot IN (SELECT slot FROM due)")  # noqa: S608 as above

    def _number(self, query: str) -> int:
        row = self._db.execute(query).fetchone()
        return row[0] if row else 0
