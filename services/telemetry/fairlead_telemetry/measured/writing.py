"""Writer of one span of the warehouse into Parquet files. It reads the warehouse over a connection of its own, so that
other writes continue meanwhile, and changes nothing in it. Start at `write`.
"""

from collections.abc import Mapping
from pathlib import Path

import duckdb

from fairlead_telemetry.measured.manifest import DayFile, Kind, settle, sha256_of
from fairlead_telemetry.measured.spans import Span
from fairlead_telemetry.schema.measured import MEASURED, stored_columns, to_file

#: Version 2's delta encodings halve what version 1 takes (docs/concepts/telemetry.md); rows of one GPU stand together, which makes its columns
#: long runs of like values. A row group is what DuckDB reads at once.
_FORMAT = "FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, COMPRESSION_LEVEL 12, ROW_GROUP_SIZE 122880"
_ORDER = {
    "samples": "uuid, time", "uses": "uuid, run, rank, time", "resources": "run, rank, node, time",
    "minutes": "uuid, run, slot", "hours": "uuid, run, slot",
}  # fmt: skip
_SLOTS_NS = {"minutes": 60 * 10**9, "hours": 3600 * 10**9}
_STORED = {relation.name: stored_columns(relation) for relation in MEASURED}


def condition(kind: str, span: Span) -> str:
    """Return the SQL condition for the rows of the kind's table that are in the span."""
    if kind in _SLOTS_NS:
        slot_ns = _SLOTS_NS[kind]
        return f"slot >= {span.from_ns // slot_ns} AND slot < {span.to_ns // slot_ns}"
    return f"time >= make_timestamp({span.from_ns // 1000}) AND time < make_timestamp({span.to_ns // 1000})"


def table(kind: str) -> str:
    """Return the name of the kind's table in the warehouse."""
    return f"rolled.{kind}" if kind in _SLOTS_NS else f"measured.{kind}"


def write(db: duckdb.DuckDBPyConnection, folder: Path, span: Span, names: Mapping[Kind, str]) -> list[DayFile]:
    """The files of these names, on disk for good; none for a kind without rows."""
    files: list[DayFile] = []
    for kind, name in names.items():
        waiting = folder / f"{name}.tmp"
        waiting.unlink(missing_ok=True)
        query = f"SELECT {_columns(kind)} FROM {table(kind)} WHERE {condition(kind, span)} ORDER BY {_ORDER[kind]}"  # noqa: S608 words of ours
        row = db.execute(f"COPY ({query}) TO {_text(waiting)} ({_FORMAT})").fetchone()
        if row and row[0]:
            settle(waiting, folder / name)
            files.append(described(db, folder, name, kind, span))
        waiting.unlink(missing_ok=True)
    return files


def described(db: duckdb.DuckDBPyConnection, folder: Path, name: str, kind: Kind, span: Span | None = None) -> DayFile:
    """Return the description of a file by its content; its span is that of its rows unless a span is given. Raises duckdb.Error
    for any other kind of file.
    """
    when = f"slot * {_SLOTS_NS[kind]}" if kind in _SLOTS_NS else "epoch_ns(time)"
    query = f"SELECT count(*), min({when}), max({when}) FROM read_parquet({_text(folder / name)})"  # noqa: S608 words of ours
    row = db.execute(query).fetchone()
    assert row is not None
    rows, first_ns, last_ns = row[0], row[1] or 0, row[2] or 0
    covered = span or Span(first_ns, last_ns + 1)
    path = folder / name
    return DayFile(
        name=name, kind=kind, from_ns=covered.from_ns, to_ns=covered.to_ns, rows=rows, first_ns=first_ns, last_ns=last_ns,
        bytes=path.stat().st_size, sha256=sha256_of(path),
    )  # fmt: skip


def _columns(kind: str) -> str:
    if kind in _SLOTS_NS:
        return "*"
    # As milliseconds, times take a third less room; they are read as TIMESTAMP all the same.
    names = [column.name for column in _STORED[kind]]
    return ", ".join("time::TIMESTAMP_MS AS time" if name == "time" else to_file(name) for name in names)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
