"""A new warehouse takes in the files of days that an older one has left: rows, sums, and from the rows what was lost."""

from pathlib import Path

import duckdb

from fairlead_telemetry.measured.manifest import SUMS, DayFile, read_manifest
from fairlead_telemetry.measured.sample_store import Measured

_SEEN = """
CREATE OR REPLACE TEMP TABLE seen AS
SELECT node, incarnation, n, max(epoch_ns(time)) AS at_ns
FROM (SELECT node, incarnation, n, time FROM samples UNION ALL SELECT node, incarnation, n, time FROM resources)
GROUP BY ALL"""
_GAPS = """
INSERT INTO sample_gaps
SELECT node, incarnation, before + 1, n - 1, n - 1 - before, at_ns
FROM (SELECT *, lag(n, 1, 0) OVER (PARTITION BY node, incarnation ORDER BY n) AS before FROM seen) WHERE n > before + 1"""
_HEADS = """
INSERT INTO sample_heads
SELECT node, incarnation, max(n), max(at_ns),
  coalesce((SELECT sum(lost) FROM sample_gaps g WHERE g.node = seen.node AND g.incarnation = seen.incarnation), 0)
FROM seen GROUP BY ALL"""


def recover(db: duckdb.DuckDBPyConnection, measured: Measured) -> tuple[int, list[str]]:
    """Take in what the manifest names and is there; (samples lost, files that are missing or of another size). Raises
    BadManifest. The caller owns the transaction."""
    named = read_manifest(measured.folder)
    there = [file for file in named if _is_there(measured.folder, file)]
    measured.take_in(there)
    for kind in SUMS:
        for file in there:
            if file.kind == kind:
                db.execute(
                    f"INSERT INTO rolled.{kind} BY NAME FROM read_parquet(?)", [str(measured.folder / file.name)]
                )
    for statement in (_SEEN, _GAPS, _HEADS, "DROP TABLE seen"):
        db.execute(statement)
    row = db.execute("SELECT coalesce(sum(lost), 0) FROM sample_gaps").fetchone()
    return int(row[0]) if row else 0, [file.name for file in named if file not in there]


def _is_there(folder: Path, file: DayFile) -> bool:
    path = folder / file.name
    return path.exists() and path.stat().st_size == file.bytes
