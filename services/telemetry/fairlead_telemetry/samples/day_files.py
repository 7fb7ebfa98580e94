"""The folder of days: Parquet files, and `manifest.json`, which says what each of them is; and writer of one span of the
warehouse into Parquet files.

While the warehouse is whole, its table `sample_files` says which files count, and the manifest is a copy of that; when the
warehouse is lost, the manifest is what it is made again from. Both, and every file, are written whole or not at all.

The writer reads the warehouse over a connection of its own, so that other writes continue meanwhile, and changes
nothing in it. Start at `write`.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import duckdb
import msgspec

from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_telemetry.samples.day_spans import DaySpan
from fairlead_telemetry.schema.samples import MEASURED, stored_columns, to_file

FOLDER = "days"
MANIFEST = "manifest.json"
VERSION = 1

#: Rows as they were measured, which leave the warehouse; sums, of which files are copies.
RAW = ("samples", "uses", "resources")
SUMS = ("minutes", "hours")
type Kind = Literal["samples", "uses", "resources", "minutes", "hours"]


class DayFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parquet file, described by the columns of the table `sample_files`. Times are Unix nanoseconds."""

    name: str
    kind: Kind
    #: The span that it covers.
    from_ns: int
    to_ns: int
    rows: int
    #: Of its oldest and its newest row.
    first_ns: int
    last_ns: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of `manifest.json`."""

    version: int
    files: list[DayFile] = []


class BadManifest(Exception):
    """The manifest cannot be read; the message says why, and what to do."""


def read_manifest(folder: Path) -> list[DayFile]:
    """The files that it names; [] where there is none. Raises BadManifest."""
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise BadManifest(f"{path}: {error}; restore it, or move it away and attach the files one by one") from error
    if found.version != VERSION:
        raise BadManifest(f"{path}: version {found.version}, expected {VERSION}: it was written by another release")
    if strange := [each.name for each in found.files if Path(each.name).name != each.name]:
        raise BadManifest(f"{path}: {strange[0]!r} is no file name in this folder")
    return found.files


def write_manifest(folder: Path, files: Iterable[DayFile]) -> None:
    """Replace it."""
    manifest = Manifest(version=VERSION, files=sorted(files, key=lambda each: (each.from_ns, each.name)))
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    path, waiting = folder / MANIFEST, folder / f"{MANIFEST}.tmp"
    if not path.exists() or path.read_bytes() != content:
        waiting.write_bytes(content)
        publish_file(waiting, path)


def publish_file(written: Path, name: Path) -> None:
    """Give a written file its name, for good: content, then name, then folder are on disk."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    written.replace(name)
    descriptor = os.open(name.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(folder: Path, file: DayFile) -> str:
    """Return the difference between the file on disk and the manifest; "" where they agree."""
    path = folder / file.name
    if not path.exists():
        return f"{file.name}: it is missing; restore it from a copy"
    if (size := path.stat().st_size) != file.bytes:
        return f"{file.name}: {size} bytes, expected {file.bytes}; restore it from a copy"
    if (found := sha256_of(path)) != file.sha256:
        return f"{file.name}: SHA-256 {found}, expected {file.sha256}; restore it from a copy"
    return ""


#: Version 2's delta encodings halve what version 1 takes (docs/concepts/telemetry.md); rows of one GPU stand together, which makes its columns
#: long runs of like values. A row group is what DuckDB reads at once.
_FORMAT = "FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, COMPRESSION_LEVEL 12, ROW_GROUP_SIZE 122880"
_ORDER = {
    "samples": "uuid, time",
    "uses": "uuid, run, rank, time",
    "resources": "run, rank, node, time",
    "minutes": "uuid, run, slot",
    "hours": "uuid, run, slot",
}
_SLOTS_NS = {"minutes": MINUTE_NS, "hours": HOUR_NS}
_STORED = {relation.name: stored_columns(relation) for relation in MEASURED}


def span_condition(kind: str, span: DaySpan) -> str:
    """Return the SQL condition for the rows of the kind's table that are in the span."""
    if kind in _SLOTS_NS:
        slot_ns = _SLOTS_NS[kind]
        return f"slot >= {span.from_ns // slot_ns} AND slot < {span.to_ns // slot_ns}"
    return f"time >= make_timestamp({span.from_ns // 1000}) AND time < make_timestamp({span.to_ns // 1000})"


def table_of(kind: str) -> str:
    """Return the name of the kind's table in the warehouse."""
    return f"rolled.{kind}" if kind in _SLOTS_NS else f"measured.{kind}"


def write_span(db: duckdb.DuckDBPyConnection, folder: Path, span: DaySpan, names: Mapping[Kind, str]) -> list[DayFile]:
    """The files of these names, on disk for good; none for a kind without rows."""
    files: list[DayFile] = []
    for kind, name in names.items():
        waiting = folder / f"{name}.tmp"
        waiting.unlink(missing_ok=True)
        query = (
            f"SELECT {_columns(kind)} FROM {table_of(kind)} WHERE {span_condition(kind, span)} ORDER BY {_ORDER[kind]}"  # noqa: S608 words of ours
        )
        row = db.execute(f"COPY ({query}) TO {_text(waiting)} ({_FORMAT})").fetchone()
        if row and row[0]:
            publish_file(waiting, folder / name)
            files.append(describe_file(db, folder, name, kind, span))
        waiting.unlink(missing_ok=True)
    return files


def describe_file(
    db: duckdb.DuckDBPyConnection, folder: Path, name: str, kind: Kind, span: DaySpan | None = None
) -> DayFile:
    """Return the description of a file by its content; its span is that of its rows unless a span is given. Raises duckdb.Error
    for any other kind of file.
    """
    when = f"slot * {_SLOTS_NS[kind]}" if kind in _SLOTS_NS else "epoch_ns(time)"
    query = f"SELECT count(*), min({when}), max({when}) FROM read_parquet({_text(folder / name)})"  # noqa: S608 words of ours
    row = db.execute(query).fetchone()
    assert row is not None
    rows, first_ns, last_ns = row[0], row[1] or 0, row[2] or 0
    covered = span or DaySpan(first_ns, last_ns + 1)
    path = folder / name
    return DayFile(
        name=name,
        kind=kind,
        from_ns=covered.from_ns,
        to_ns=covered.to_ns,
        rows=rows,
        first_ns=first_ns,
        last_ns=last_ns,
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
    )


def _columns(kind: str) -> str:
    if kind in _SLOTS_NS:
        return "*"
    # As milliseconds, times take a third less room; they are read as TIMESTAMP all the same.
    names = [column.name for column in _STORED[kind]]
    return ", ".join("time::TIMESTAMP_MS AS time" if name == "time" else to_file(name) for name in names)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
