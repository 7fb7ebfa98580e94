"""Formats of answers: JSON, CSV or Arrow's IPC stream. Each is cut to fit a message of the bus, with a mark of the cut.

Start at `spell`. Runs in the worker, after the gate has passed the query.
"""

import base64
import csv
import io
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import msgspec

from fairlead_schemas.queries.telemetry import SqlFormat

#: An answer, whole, stays below a bus message (1 MiB) with room for the envelope.
ANSWER_BYTES_MAX = 900 * 1024
ROWS_PER_FETCH = 256
#: Part of the type's name of every zoned time.
ZONED = "WITH TIME ZONE"

type Row = tuple[Any, ...]


class FormattedRows(NamedTuple):
    """Columns as (name, type), the rows' bytes, and what they were cut at ("": they are all there)."""

    columns: list[dict[str, str]]
    body: bytes
    cut: str


class UnknownFormat(Exception):
    """The query has no answer of this form; the message says what to do."""


def format_rows(db: duckdb.DuckDBPyConnection, query: str, limit: int, form: SqlFormat) -> FormattedRows:
    """Run the query and spell up to `limit` rows. Raises duckdb.Error, NoSuchForm, OverflowError, ValueError."""
    if form == "arrow":
        return _arrow(db, query, limit)
    result = db.execute(query)
    columns = _columns(result)
    if any(ZONED in column["type"] for column in columns):
        result = db.execute(_zones_as_text(db, query, [column["type"] for column in columns]))
    if form == "csv":
        head = _csv_line([column["name"] for column in columns])
        lines, cut = _within(_rows(result, limit), _csv_row, limit, len(head))
        return FormattedRows(columns, head + b"".join(lines), cut)
    rows, cut = _within(_rows(result, limit), _json_row, limit, 0)
    return FormattedRows(columns, b",".join(rows), cut)


def _columns(result: duckdb.DuckDBPyConnection) -> list[dict[str, str]]:
    return [{"name": name, "type": str(kind)} for name, kind, *_ in result.description or ()]


def _rows(result: duckdb.DuckDBPyConnection, limit: int) -> Iterator[Row]:
    """Yield the rows up to one more than the limit, where there is one."""
    left = limit + 1
    while left and (chunk := result.fetchmany(min(ROWS_PER_FETCH, left))):
        left -= len(chunk)
        yield from chunk


def _within(rows: Iterator[Row], spelled: Callable[[Row], bytes], limit: int, size: int) -> tuple[list[bytes], str]:
    """Rows that keep both bounds, and which bound has cut them."""
    lines: list[bytes] = []
    for row in rows:
        if len(lines) == limit:
            return lines, _cut_at(limit)
        encoded = spelled(row)
        size += len(encoded) + 1
        if size > ANSWER_BYTES_MAX:
            return lines, _cut_at(None)
        lines.append(encoded)
    return lines, ""


def _cut_at(limit: int | None) -> str:
    if limit is None:
        return f"an answer has at most {ANSWER_BYTES_MAX // 1024} KiB: ask for fewer or narrower rows"
    return f"the first {limit} rows of more: aggregate, filter, or page with ORDER BY and OFFSET"


# ---------------------------------------------------------------------------------------- JSON


def _json_row(row: Row) -> bytes:
    return msgspec.json.encode([plain(value) for value in row])


def plain(value: Any) -> Any:
    """A DuckDB value as JSON can hold it: bytes as base64, integers beyond 64 bits and NaN as text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
    return str(value)  # dates, times, intervals, decimals, UUIDs: their usual spelling


def _zones_as_text(db: duckdb.DuckDBPyConnection, query: str, types: Sequence[str]) -> str:
    """The query with its zoned times spelled out by DuckDB: for Python it would need a time zone package of its own."""
    names = [f"c{i}" for i in range(len(types))]
    texts = ", ".join(f"CAST({n} AS VARCHAR)" if ZONED in t else n for n, t in zip(names, types, strict=True))
    return f"SELECT {texts} FROM ({_bare(db, query)}) AS q({', '.join(names)})"  # noqa: S608 the gate has passed it


def _bare(db: duckdb.DuckDBPyConnection, query: str) -> str:
    """The statement without comments, which would swallow what is put around it. Raises duckdb.Error where it is no SELECT."""
    row = db.execute("SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))", [query]).fetchone()
    assert row is not None
    return str(row[0]).rstrip(";")


# ----------------------------------------------------------------------------------------- CSV


def _csv_row(row: Row) -> bytes:
    return _csv_line([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    """Return a value as a CSV cell: None for NULL, JSON text for lists, structs and maps."""
    converted = plain(value)
    return msgspec.json.encode(converted).decode() if isinstance(converted, list | dict) else converted


def _csv_line(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "surrogateescape")


# --------------------------------------------------------------------------------------- Arrow


def _arrow(db: duckdb.DuckDBPyConnection, query: str, limit: int) -> FormattedRows:
    """An IPC stream with a batch for every ROWS_PER_FETCH rows. They are held in a temporary table meanwhile, for a batch cannot be
    made smaller once DuckDB has given it away."""
    try:
        inner = _bare(db, query)
    except duckdb.Error as error:
        raise UnknownFormat("EXPLAIN has no Arrow form: ask for json or csv") from error
    table = f'"{secrets.token_hex(16)}"'
    db.execute(f"CREATE TEMP TABLE {table} AS FROM ({inner}) LIMIT {limit + 1}")
    try:
        columns = _columns(db.execute(f"FROM {table} LIMIT 0"))
        there = db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 as above
        sink = io.BytesIO()
        written = _batches(db, table, columns, min(limit, there), sink)
        cut = "" if written == there else _cut_at(limit if written == limit else None)
        return FormattedRows(columns, sink.getvalue(), cut)
    finally:
        db.execute(f"DROP TABLE IF EXISTS {table}")


def _batches(
    db: duckdb.DuckDBPyConnection, table: str, columns: Sequence[dict[str, str]], rows: int, sink: io.BytesIO
) -> int:
    """Write batches until one does not fit any more; how many rows stand there."""
    from nanoarrow.ipc import StreamWriter  # loaded when first asked for: most ask for JSON

    # What Arrow's writer has no word for (dictionaries) goes as text.
    selected = ", ".join(
        f"{_name(c['name'])}::VARCHAR AS {_name(c['name'])}" if c["type"].startswith("ENUM") else _name(c["name"])
        for c in columns
    )
    with StreamWriter.from_writable(sink) as writer:
        writer.write_stream(db.sql(f"SELECT {selected} FROM {table} LIMIT 0"))  # noqa: S608 the schema, also where there are no rows
        for first in range(0, rows, ROWS_PER_FETCH):
            last, before = min(first + ROWS_PER_FETCH, rows), sink.tell()
            piece = f"SELECT {selected} FROM {table} WHERE rowid >= {first} AND rowid < {last}"  # noqa: S608 names and numbers of ours
            writer.write_stream(db.sql(piece))
            if sink.tell() > ANSWER_BYTES_MAX:
                sink.seek(before)
                sink.truncate()
                return first
    return rows


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
