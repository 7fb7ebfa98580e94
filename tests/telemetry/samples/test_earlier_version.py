"""A warehouse of an earlier version is altered when it is opened, and keeps its rows."""

from pathlib import Path

import duckdb

from fairlead_telemetry.warehouse.warehouse import FILE, Warehouse
from tests.telemetry.samples.nodes import START_NS, day, put

#: As the version before files of days made them.
OLD = (
    """CREATE TABLE samples (time TIMESTAMP, at_ns BIGINT, node VARCHAR, incarnation VARCHAR, n UBIGINT, uuid VARCHAR, run VARCHAR,
      utilization_pct INTEGER, memory_used_mib BIGINT, power_mw BIGINT, temperature_c INTEGER, sm_clock_mhz INTEGER, simulated BOOLEAN)""",
    "CREATE TABLE sample_heads (node VARCHAR, incarnation VARCHAR, n UBIGINT, at_ns BIGINT, lost UBIGINT)",
    "CREATE TABLE cursor (sequence UBIGINT, at_ns BIGINT, created VARCHAR, heads JSON, events UBIGINT, samples_lost UBIGINT)",
    "CREATE SCHEMA rolled",
    """CREATE TABLE rolled.minutes (slot BIGINT, node VARCHAR, uuid VARCHAR, run VARCHAR, samples BIGINT, busy_samples BIGINT,
      utilization_pct_sum BIGINT, utilization_pct_max INTEGER, memory_used_mib_sum BIGINT, memory_used_mib_max BIGINT,
      power_mw_sum BIGINT, power_mw_max BIGINT, temperature_c_max INTEGER, sm_clock_mhz_sum BIGINT, simulated BOOLEAN)""",
    "CREATE VIEW of_old AS SELECT count(*) FROM samples",
)


def test_an_earlier_warehouse_is_migrated(tmp_path: Path) -> None:
    """Its samples and sums are there with unknown values in new columns, and new samples are added."""
    with duckdb.connect(str(tmp_path / FILE)) as old:
        for statement in OLD:
            old.execute(statement)
        old.execute(
            "INSERT INTO samples VALUES (make_timestamp_ns($1)::TIMESTAMP, $1, 'n0', 'z', 3, 'GPU-n0', '1.1', 50, 7, 9, 30, 1400, true)",
            [START_NS - 60 * 10**9 + 123_456_789],
        )
        old.execute("INSERT INTO sample_heads VALUES ('n0', 'z', 3, 1, 0)")
        old.execute("INSERT INTO cursor VALUES (0, 0, '', '{}', 0, 4)")
        old.execute(
            "INSERT INTO rolled.minutes VALUES (5, 'n0', 'GPU-n0', '', 2, 1, 100, 50, 8, 4, 6, 3, 30, 10, true)"
        )
    warehouse = Warehouse(tmp_path)
    row = warehouse.rows(
        "SELECT at_ns, node, n, uuid, parent, run, utilization_pct, power_mw, energy_mj, simulated FROM samples"
    )
    assert row == [(START_NS - 60 * 10**9 + 123_000_000, "n0", 3, "GPU-n0", "", "1.1", 50, 9, None, True)]
    assert warehouse.rows("SELECT samples, utilization_pct, tensor_permille FROM samples_1m") == [(2, 50.0, None)]
    assert warehouse.cursor.samples_lost == 4
    put(warehouse, day(0))
    warehouse.close()
    again = Warehouse(tmp_path)
    assert again.rows("SELECT count(*), count(*) FILTER (node = 'n0') FROM samples") == [(144 * 3 + 1, 1)]
    again.close()
