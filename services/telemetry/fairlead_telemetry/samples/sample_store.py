"""Store of measured rows: the newest in tables, older ones in files; views show both as one; and accounts of samples apart
from their rows: the newest batch of each node, losses, and refusals. Start at `Measured`.

Its owner provides the transactions. A span moves into files in three steps, so that the long one does not hold up new
rows: `plan` (names, noted before anything is written), `writing.write`, and `attach`. In one transaction, `attach` takes
rows out and files in. A crash at any moment leaves each row in one place.

A new warehouse takes in the files of days that an older one has left: rows, sums, and from the rows what was lost.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec

from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS
from fairlead_schemas.wire.samples import SampleColumns
from fairlead_telemetry.samples.column_batches import KINDS, Arrays, coarse, column_arrays, heads_arrays
from fairlead_telemetry.samples.day_files import (
    FOLDER,
    RAW,
    SUMS,
    DayFile,
    Kind,
    read_manifest,
    span_condition,
    table_of,
    write_manifest,
)
from fairlead_telemetry.samples.day_spans import DaySpan, due_spans, file_name
from fairlead_telemetry.samples.intake import SampleHead, SampleIntake
from fairlead_telemetry.schema.samples import MEASURED, SAMPLES, measured_ddl, measured_view, stored_columns

_KINDS: tuple[Kind, ...] = (*RAW, *SUMS)
#: Files that are no longer wanted, or were begun: deleted later, as a question may still read them.
_DOOMED = "CREATE TABLE IF NOT EXISTS measured.doomed (name VARCHAR, at_ns BIGINT)"
_PLACE = "CREATE TABLE IF NOT EXISTS measured.place (folder VARCHAR)"
_FILE_COLUMNS = ", ".join(DayFile.__struct_fields__)


class FilePlan(NamedTuple):
    """A span that is to be written, and the names of its files."""

    span: DaySpan
    names: dict[Kind, str]


class SampleStore:
    """The measured rows of one warehouse."""

    def __init__(self, db: duckdb.DuckDBPyConnection, directory: Path) -> None:
        """Creates and alters tables; `directory` is that of the warehouse."""
        self._db = db
        self.folder = directory / FOLDER
        self.folder.mkdir(exist_ok=True)
        for statement in (*measured_ddl(), _DOOMED, _PLACE, "DELETE FROM measured.place"):
            db.execute(statement)
        db.execute("INSERT INTO measured.place VALUES (?)", [str(self.folder.absolute())])
        self._take_over_old_table()

    def _take_over_old_table(self) -> None:
        """Before there were files, `samples` was a table."""
        kind = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'main' AND table_name = 'samples' AND table_type = 'BASE TABLE'"
        if not self._number(kind):
            return
        old = {
            name
            for (name,) in self._rows(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'main' AND table_name = 'samples'"
            )
        }
        columns = [column.name for column in stored_columns(SAMPLES) if column.name in old and column.name != "time"]
        names = ", ".join(f'"{name}"' for name in columns)
        self._db.execute(
            f"INSERT INTO measured.samples BY NAME SELECT date_trunc('milliseconds', time) AS time, '' AS parent, {names} FROM samples"  # noqa: S608 words of ours
        )
        self._db.execute("DROP TABLE samples")

    def create_views(self) -> None:
        """Over the tables and the files that count now."""
        of: dict[str, list[str]] = {}
        for file in self.files():
            of.setdefault(file.kind, []).append(str(self.folder.absolute() / file.name))
        for relation in MEASURED:
            self._db.execute(measured_view(relation, of.get(relation.name, [])))

    def insert(self, batches: Sequence[SampleColumns]) -> None:
        """All rows of these batches."""
        for kind in KINDS if batches else ():
            if arrays := column_arrays(batches, kind):
                self.insert_arrays(kind, arrays)

    def insert_arrays(self, kind: str, arrays: Arrays) -> None:
        """Rows of one table, as columns; one that is left out is not known."""
        self._db.register("arriving", coarse(arrays))
        self._db.execute(f"INSERT INTO measured.{kind} BY NAME FROM arriving")
        self._db.unregister("arriving")

    # ------------------------------------------------------------------ files

    def files(self) -> list[DayFile]:
        """Return the files that count, oldest first."""
        rows = self._rows(f"SELECT {_FILE_COLUMNS} FROM sample_files ORDER BY from_ns, name")  # noqa: S608 names of our own fields
        return [msgspec.convert(dict(zip(DayFile.__struct_fields__, row, strict=True)), DayFile) for row in rows]

    def filed_to_ns(self) -> int:
        """From here on, no samples are in files."""
        return self._number("SELECT coalesce(max(last_ns) + 1, 0) FROM sample_files WHERE kind = 'samples'")

    def whole_from_ns(self) -> int:
        """The time of the oldest sample that is there, rounded up to a minute unless nothing was ever dropped."""
        if not self._number("SELECT count(*) FROM rolled.horizon WHERE at_ns > 0"):
            return 0
        return self._number("SELECT coalesce(epoch_ns(min(time)), 0) FROM samples")

    def plan(self, now_ns: int) -> list[FilePlan]:
        """Spans that are due, their names noted as begun. The transaction must be over before they are written."""
        hours: dict[int, int] = {}
        for kind in RAW:
            counted = self._rows(f"SELECT epoch_ms(time) // 3600000, count(*) FROM {table_of(kind)} GROUP BY 1")  # noqa: S608 a name of ours
            for hour, rows in counted:
                hours[hour] = hours.get(hour, 0) + rows
        files = self.files()
        days = {day for file in files for day in range(file.from_ns // DAY_NS, (file.to_ns - 1) // DAY_NS + 1)}
        taken = {path.name for path in self.folder.iterdir()} | {file.name for file in files}
        filings: list[FilePlan] = []
        for span in due_spans(hours, now_ns, days):
            if not self._is_stale(span):
                filings.append(FilePlan(span, {kind: file_name(kind, span, taken) for kind in _KINDS}))
        self._doom([name for filing in filings for name in filing.names.values()], now_ns)
        return filings

    def _is_stale(self, span: DaySpan) -> bool:
        """Return True if sums of the span are still to be made."""
        minutes = self._number(f"SELECT count(*) FROM rolled.stale_minutes WHERE {span_condition('minutes', span)}")  # noqa: S608 numbers of ours
        return bool(
            minutes or self._number(f"SELECT count(*) FROM rolled.stale_hours WHERE {span_condition('hours', span)}")  # noqa: S608 as above
        )

    def attach(self, filing: FilePlan, files: Sequence[DayFile], now_ns: int) -> bool:
        """Exchange the span's rows for these files. False, and nothing done, where more has come since they were written."""
        rows = {file.kind: file.rows for file in files}
        where = {kind: f"{table_of(kind)} WHERE {span_condition(kind, filing.span)}" for kind in _KINDS}
        if self._is_stale(filing.span) or any(
            self._number(f"SELECT count(*) FROM {where[kind]}") != rows.get(kind, 0)  # noqa: S608 words of ours
            for kind in _KINDS
        ):
            return False
        for kind in RAW:
            self._db.execute(f"DELETE FROM {where[kind]}")  # noqa: S608 as above
        old = [file for file in self.files() if file.kind in SUMS and DaySpan(file.from_ns, file.to_ns) == filing.span]
        self._forget(old, now_ns)
        self.take_in(files)
        return True

    def take_in(self, files: Iterable[DayFile]) -> None:
        """Let files count."""
        for file in files:
            self._db.execute("DELETE FROM measured.doomed WHERE name = ?", [file.name])
            row = list(msgspec.structs.astuple(file))
            self._db.execute(f"INSERT INTO sample_files ({_FILE_COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 as above
        self.tell()

    def tell(self) -> None:
        """Manifest and views say what the table says. The manifest may run ahead of a transaction that fails: it only counts
        where the warehouse is lost, and says what is on disk."""
        write_manifest(self.folder, self.files())
        self.create_views()

    def drop(self, samples_ns: int, minutes_ns: int, hours_ns: int, now_ns: int) -> None:
        """Forget rows and files that were over before these times."""
        before = dict.fromkeys(RAW, samples_ns) | {"minutes": minutes_ns, "hours": hours_ns}
        for kind in RAW:
            self._db.execute(f"DELETE FROM {table_of(kind)} WHERE time < make_timestamp(?)", [samples_ns // 1000])  # noqa: S608 a name of ours
        old = [file for file in self.files() if file.to_ns <= before[file.kind]]
        if old:
            self._forget(old, now_ns)
            self.tell()

    def oldest_to_spare(self, rows_max: int) -> int:
        """The time before which samples must go so that not more than so many stay; 0: none must."""
        files = [file for file in self.files() if file.kind == "samples"]
        here = self._number("SELECT count(*) FROM measured.samples")
        over = here + sum(file.rows for file in files) - rows_max
        before_ns = 0
        for file in files:
            if over <= 0:
                return before_ns
            over, before_ns = over - file.rows, file.to_ns
        if over <= 0 or not here:
            return before_ns
        share = min(1.0, over / here)
        newest = self._number("SELECT epoch_ns(quantile_disc(time, ?)) FROM measured.samples", [share])
        return max(before_ns, newest + MINUTE_NS)

    def _forget(self, files: Iterable[DayFile], now_ns: int) -> None:
        names = [file.name for file in files]
        for name in names:
            self._db.execute("DELETE FROM sample_files WHERE name = ?", [name])
        self._doom(names, now_ns)

    def _doom(self, names: Iterable[str], now_ns: int) -> None:
        for name in names:
            self._db.execute("INSERT INTO measured.doomed VALUES (?, ?)", [name, now_ns])

    def reap(self, before_ns: int) -> list[str]:
        """Delete files that were doomed before then; their names."""
        names = [name for (name,) in self._rows("SELECT name FROM measured.doomed WHERE at_ns < ?", [before_ns])]
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / f"{name}.tmp").unlink(missing_ok=True)
        self._db.execute("DELETE FROM measured.doomed WHERE at_ns < ?", [before_ns])
        return names

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(query, list(parameters)).fetchall()

    def _number(self, query: str, parameters: Sequence[object] = ()) -> int:
        row = self._db.execute(query, list(parameters)).fetchone()
        return int(row[0] or 0) if row else 0


def keep_accounts(db: duckdb.DuckDBPyConnection, samples: SampleIntake) -> None:
    """The accounts of what has come. The caller owns the transaction."""
    if samples.gaps:
        db.executemany("INSERT INTO sample_gaps VALUES (?, ?, ?, ?, ?, ?)", list(samples.gaps))
    if samples.heads:
        db.register("moved", heads_arrays(samples.heads))
        db.execute("DELETE FROM sample_heads WHERE (node, incarnation) IN (SELECT (node, incarnation) FROM moved)")
        db.execute("INSERT INTO sample_heads BY NAME FROM moved")
        db.unregister("moved")
    if samples.refusals:
        db.execute("DELETE FROM sample_refusals")
        rows = [(*key, *refusal) for key, refusal in samples.refusals.items()]
        db.executemany("INSERT INTO sample_refusals VALUES (?, ?, ?, ?)", rows)


def forget_accounts(db: duckdb.DuckDBPyConnection, before_ns: int) -> None:
    """Delete the accounts recorded before that time."""
    db.execute("DELETE FROM sample_gaps WHERE noticed_at_ns < ?", [before_ns])
    db.execute("DELETE FROM sample_heads WHERE at_ns < ?", [before_ns])


def stored_heads(db: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], SampleHead]:
    """{(node, incarnation): newest batch} as stored."""
    rows = db.execute("SELECT node, incarnation, n, at_ns, lost FROM sample_heads").fetchall()
    return {(node, incarnation): SampleHead(n, at_ns, lost) for node, incarnation, n, at_ns, lost in rows}


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


def recover(db: duckdb.DuckDBPyConnection, measured: SampleStore) -> tuple[int, list[str]]:
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
