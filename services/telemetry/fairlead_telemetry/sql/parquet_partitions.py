"""Member's rows of days that have left for files: the files to search, and the database to put the rows into.

The files hold the rows of all users; a member's SQL never reaches them. The member's rows are copied, newest first, up to
a bound that is reported. Files never change. So copied rows stay valid until there are new files, or the member's runs
in their spans change: `Wanted.key` identifies the contents of a copy (no member may see it: it contains others' files).
Start at `wanted`, then `gather`.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fairlead_schemas.units.timestamps import utc_text
from fairlead_telemetry.samples.day_files import RAW
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.schema.samples import FILED, MEASURED, from_file, measured_ddl, stored_columns

#: Of each kind: rows of one member; and rows of everybody that are looked through for them.
ROWS_MAX = 2_000_000
LOOKED_THROUGH_MAX = 200_000_000
MINUTE_MS = 60_000
#: Order of rows that does not depend on the rows of other users.
_ORDER = {"samples": "uuid, time, n", "uses": "uuid, run, rank, time, n", "resources": "run, rank, node, time, n"}
_KINDS = {relation.name: relation for relation in MEASURED}

#: The member's runs and when they had their places. `mine` holds the ids of the member's jobs.
_SPANS = """CREATE OR REPLACE TEMP TABLE spans AS
SELECT DISTINCT job || '.' || attempt AS run, placed_ns, released_ns FROM (FROM fold.done_parts UNION ALL FROM fold.open_parts)
WHERE job IN (SELECT job FROM mine)"""
#: Files of a kind in whose time the member had runs, and these. A node's clock may be off by as much as late samples are waited for.
_FILES = """SELECT f.kind, f.name, f.rows, f.to_ns, list(DISTINCT s.run ORDER BY s.run)
FROM sample_files f JOIN spans s ON s.placed_ns <= f.last_ns + $late AND coalesce(s.released_ns, f.first_ns) + $late >= f.first_ns
WHERE f.kind IN ('samples', 'uses', 'resources') GROUP BY ALL ORDER BY f.to_ns DESC, f.name"""


class PartitionSource(NamedTuple):
    """File and the member's runs of which it may have rows."""

    kind: str
    name: str
    rows: int
    to_ns: int
    runs: tuple[str, ...]


class PartitionSources(NamedTuple):
    """Available sources for a member, newest first, and their folder."""

    folder: Path
    sources: tuple[PartitionSource, ...]

    @property
    def key(self) -> str:
        """Hash that identifies the contents of a copy made from these sources."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def partition_sources(db: duckdb.DuckDBPyConnection) -> PartitionSources:
    """By the catalogue that `db` uses, with its table `mine`."""
    db.execute(_SPANS)
    found = db.execute(_FILES, {"late": SETTLE_NS}).fetchall()
    sources = [PartitionSource(kind, name, rows, to_ns, tuple(runs)) for kind, name, rows, to_ns, runs in found]
    folder = db.execute("SELECT folder FROM measured.place").fetchall()
    return PartitionSources(Path(folder[0][0]) if folder else Path(), tuple(sources))


def gather_partitions(path: Path, wanted: PartitionSources, config: dict[str, Any]) -> str:
    """Make the database at `path`: the tables of measured rows with the member's rows of all files, and `measured.left_out`, which says
    what did not fit or could not be read. Its key; "" where it is to be made again next time."""
    key = wanted.key
    with duckdb.connect(str(path), config=config) as db:
        for statement in measured_ddl():
            db.execute(statement)
        db.execute("CREATE TABLE measured.left_out (kind VARCHAR, words VARCHAR)")
        for kind in RAW:
            sources = [source for source in wanted.sources if source.kind == kind]
            try:
                words = _gather(db, kind, sources, wanted.folder)
            except duckdb.Error:  # the folder may be another machine's disk, and there again in a minute
                key, words = "", f"{kind} of days that are in files cannot be read now"
            if words:
                db.execute("INSERT INTO measured.left_out VALUES (?, ?)", [kind, words])
    return key


def left_out(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """{table: what of the member's it does not have} of an open copy; {} of the whole one, which reads files itself."""
    if not db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'left_out'").fetchall():
        return {}
    return dict(db.execute("SELECT kind, words FROM measured.left_out ORDER BY ALL").fetchall())


def _gather(db: duckdb.DuckDBPyConnection, kind: str, sources: Sequence[PartitionSource], folder: Path) -> str:
    """Copy one kind's rows; what is left out of them, in words ("": nothing is). Raises duckdb.Error."""
    near, from_ns = _near(sources)
    if not near:
        return _omission(kind, from_ns)
    files = f"read_parquet([{', '.join(_text(str(folder / source.name)) for source in near)}], union_by_name = true)"
    mine = f"run IN ({', '.join(map(_text, sorted({run for source in near for run in source.runs})))})"
    minutes = db.execute(
        f"SELECT epoch_ms(time) // {MINUTE_MS}, count(*) FROM {files} WHERE {mine} GROUP BY 1 ORDER BY 1 DESC"  # noqa: S608 names of ours, quoted
    ).fetchall()
    from_ns = max(from_ns, _fitting(minutes))
    there = {name for name, *_ in db.execute(f"DESCRIBE FROM {files}").fetchall()}
    columns = [column.name for column in stored_columns(_KINDS[kind]) if _in_file(column.name) in there]
    db.execute(
        f"""INSERT INTO measured.{kind} BY NAME SELECT {", ".join(map(from_file, columns))} FROM {files}
        WHERE {mine} AND time >= make_timestamp({from_ns // 1000}) ORDER BY {_ORDER[kind]}"""  # noqa: S608 as above
    )
    return _omission(kind, from_ns)


def _near(sources: Sequence[PartitionSource]) -> tuple[list[PartitionSource], int]:
    """Return the sources that are searched, and the Unix ns from which their rows are complete; 0: from the first."""
    looked = 0
    for at, source in enumerate(sources):
        looked += source.rows
        if looked > LOOKED_THROUGH_MAX:
            return list(sources[:at]), source.to_ns
    return list(sources), 0


def _fitting(minutes: Sequence[tuple[int, int]]) -> int:
    """From when on (Unix ns) the rows of (minute, rows), the newest first, keep the bound; 0: they all do."""
    rows = 0
    for minute, count in minutes:
        rows += count
        if rows > ROWS_MAX:
            return (minute + 1) * MINUTE_MS * 10**6
    return 0


def _omission(kind: str, from_ns: int) -> str:
    if not from_ns:
        return ""
    moment = utc_text(from_ns)[: len("2026-01-01 00:00")]
    return f"{kind} before {moment} (UTC) that are in files: they are too many; their sums per minute and hour are all there"


def _in_file(column: str) -> str:
    return FILED[column].name if column in FILED else column


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
