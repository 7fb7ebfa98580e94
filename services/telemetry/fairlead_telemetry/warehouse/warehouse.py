"""Warehouse in a DuckDB file: rows and cursor in one transaction, so a crash leaves both or neither.

Owns the file and everything that writes to it. Knows nothing about the bus, tasks or people's SQL. One thread uses a
`Warehouse`; the service gives it one. Start at `store`. Other modules handle the rows of each kind: `event_rows.py`,
`fold/`, `measured/`, `rollup.py`; the file as such is `database.py`.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fairlead_bus.log import LogHead
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_telemetry import schema
from fairlead_telemetry.fold.updater import FoldUpdater
from fairlead_telemetry.samples import sample_store
from fairlead_telemetry.samples.day_files import BadManifest, DayFile, write_span
from fairlead_telemetry.samples.intake import SampleHead, SampleIntake
from fairlead_telemetry.samples.sample_store import FilePlan, SampleStore, recover
from fairlead_telemetry.warehouse import database, event_rows
from fairlead_telemetry.warehouse.database import (
    FILE,
    NOWHERE,
    SHARED,
    Cursor,
    Database,
    DatabaseResources,
    read_cursor,
    write_cursor,
)
from fairlead_telemetry.warehouse.event_rows import CommitBytes
from fairlead_telemetry.warehouse.rollup import GRACE_NS, Rollup

#: Samples kept at most, whatever their age.
SAMPLE_ROWS_MAX = 2_000_000_000
#: Files that count no longer stay so long: a question that was asked before may still read them.
REAP_AFTER_NS = 5 * MINUTE_NS


class WarehouseRefused(Exception):
    """The warehouse cannot be used with this log or by this process; the message says how to mend it."""


class WarehouseBusy(WarehouseRefused):
    """Another process has the warehouse open; only one may."""


class Retention(NamedTuple):
    """Retention of samples and of their sums per minute and hour: a duration, or a Unix time from which on they are kept."""

    samples_ns: int
    minutes_ns: int = 0
    hours_ns: int = 0


class Warehouse:
    """The one writer of the DuckDB file."""

    def __init__(self, directory: Path, means: DatabaseResources = SHARED) -> None:
        """Open or create `directory`/warehouse.duckdb. Raises WarehouseBusy while another process has it, else WarehouseRefused."""
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE
        self._means = means
        #: Why the database that was there before was set aside; "" if it was not.
        self.damage = ""
        #: Files of days that the manifest names and that were missing when the database was rebuilt.
        self.files_missing: list[str] = []
        if reason := database.damage_mark(directory):
            self._set_aside(reason)
        try:
            self._start(directory)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            if not database.is_damage(error):
                kind = WarehouseBusy if "lock" in reason else WarehouseRefused
                raise kind(f"cannot open {self.path}: {reason}") from error
            self._set_aside(reason)
            self._start(directory)
        #: Rises with every transaction; tells a copy whether it is still the newest.
        self.version = 0

    def _start(self, directory: Path) -> None:
        self._file = Database(self.path, self._means)
        self._db = self._file.connection
        try:
            self._create(directory)
            self.cursor = read_cursor(self._db)
            self._fold_rest()
        except duckdb.Error:
            self._file.close()
            raise

    def _set_aside(self, why: str) -> None:
        self.damage = f"{why} (set aside as {database.set_aside(self.path).name})"

    def _create(self, directory: Path) -> None:
        """Everything that is missing; in a new warehouse also what files of days hold."""
        with self._file.transaction():
            is_new = not self._db.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_name = 'cursor'"
            ).fetchone()
            event_rows.set_older_apart(self._db)
            for statement in schema.table_ddl():
                self._db.execute(statement)
            self._folding, self._rollup = FoldUpdater(self._db), Rollup(self._db)
            self.measured = SampleStore(self._db, directory)
            self.measured.create_views()
            if is_new:
                self._recover()
            self.measured.reap(2**63 - 1)
            self.measured.tell()
            self._db.execute("DELETE FROM sample_refusals")
            for statement in schema.view_ddl():
                self._db.execute(statement)

    def _recover(self) -> None:
        try:
            lost, self.files_missing = recover(self._db, self.measured)
        except BadManifest as error:
            raise WarehouseRefused(str(error)) from error
        if lost:
            write_cursor(self._db, NOWHERE._replace(samples_lost=lost))

    def sample_heads(self) -> dict[tuple[str, str], SampleHead]:
        """{(node, incarnation): newest batch} as stored."""
        return sample_store.stored_heads(self._db)

    def store(
        self, commits: Sequence[CommitBytes], heads: dict[str, LogHead], log_id: str, samples: SampleIntake
    ) -> Cursor:
        """Store these commits' events and these samples, and move the cursor, together or not at all.

        `commits` follow the cursor without a gap and `heads` is the chain after the last of them.
        """
        old = self.cursor
        sequence = commits[-1].sequence if commits else old.sequence
        assert sequence == old.sequence + len(commits), (
            f"cursor {old.sequence} + {len(commits)} commits is not {sequence}"
        )
        new = Cursor(
            sequence,
            max(old.at_ns, commits[-1].at_ns) if commits else old.at_ns,
            log_id,
            dict(heads) if commits else old.heads,
            old.events + sum(len(commit.bodies) for commit in commits),
            old.samples_lost + sum(gap.lost for gap in samples.gaps),
        )
        try:
            with self._file.transaction():
                inserted = event_rows.insert(self._db, commits)
                if inserted != new.events - old.events:
                    raise AssertionError(f"{inserted} rows for {new.events - old.events} events up to {sequence}")
                self.measured.insert(samples.batches)
                self._rollup.mark(samples.minutes)
                sample_store.keep_accounts(self._db, samples)
                write_cursor(self._db, new)
                if commits:
                    self._folding.advance(new.sequence)
                    event_rows.correct_owners(self._db, old.sequence + 1, new.sequence)
        except BaseException:
            self._folding.sequence = old.sequence
            raise
        self.version += 1  # before the cursor: a copy may be thought stale for a moment, never fresh
        self.cursor = new
        return new

    def rebuild(self, seen: Callable[[int, int], None] = lambda done, of: None) -> int:
        """Drop the folded and summed tables, and build them again from all stored events and samples; return the number of events.
        `seen`: called with the log sequence that is reached, and the one to reach.
        """
        with self._file.transaction():
            self._folding.drop()
        self._fold_rest(seen)
        with self._file.transaction():
            self._rollup.again(self.measured.whole_from_ns())
        self.version += 1
        return self.cursor.events

    def _fold_rest(self, seen: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Fold the stored events that are not folded yet: all of them after an upgrade that changes the tables, the rest
        after an interrupted rebuild."""
        older = event_rows.older_table(self._db)
        while (reached := self._folding.sequence) < self.cursor.sequence:
            try:
                with self._file.transaction():
                    to = self._folding.next_step(self.cursor.sequence, self._means.stride, older or "events")
                    if older:
                        event_rows.insert_again(self._db, older, reached + 1, to)
                    self._folding.advance(to)
                    if older:
                        event_rows.correct_owners(self._db, reached + 1, to)
            except BaseException:
                self._folding.sequence = reached
                raise
            seen(to, self.cursor.sequence)
        event_rows.drop_older_events(self._db)

    def roll_up(self, now_ns: int) -> None:
        """Add up the samples of minutes and hours that are over."""
        with self._file.transaction():
            rolled = self._rollup.roll(now_ns, self.measured.filed_to_ns())
        self.version += rolled

    def drop_samples(self, before: Retention, rows_max: int = SAMPLE_ROWS_MAX, now_ns: int = 0) -> None:
        """Forget samples and their sums older than `before`, and the oldest samples beyond `rows_max`, whole minutes or files
        at a time; with them stale heads and gaps. What a file holds stays until all of its span is older."""
        before_ns = max(before.samples_ns, self.measured.oldest_to_spare(rows_max))
        before_ns -= before_ns % MINUTE_NS
        with self._file.transaction():
            self._rollup.roll(before_ns + GRACE_NS, self.measured.filed_to_ns())
            self._rollup.drop(before_ns, before.minutes_ns, before.hours_ns)
            self.measured.drop(before_ns, before.minutes_ns, before.hours_ns, now_ns)
            sample_store.forget_accounts(self._db, before_ns)
            self.measured.reap(now_ns - REAP_AFTER_NS)
        self.version += 1

    def plan_files(self, now_ns: int) -> list[FilePlan]:
        """Spans of samples that are to leave for files now."""
        with self._file.transaction():
            return self.measured.plan(now_ns)

    def write_files(self, filing: FilePlan) -> list[DayFile]:
        """Write the files of a span to disk and return them. May run on another thread, while this one continues to store."""
        with contextlib.closing(self._db.cursor()) as reading:
            return write_span(reading, self.measured.folder, *filing)

    def attach_files(self, filing: FilePlan, files: Sequence[DayFile], now_ns: int) -> bool:
        """Let the files stand for the span's rows; False where more rows have come meanwhile, and it is left for another time."""
        with self._file.transaction():
            attached = self.measured.attach(filing, files, now_ns)
        self.version += attached
        return attached

    def reading(self) -> duckdb.DuckDBPyConnection:
        """Return a second connection for reading, independent of this one."""
        return self._db.cursor()

    def attach_again(self, files: Sequence[DayFile]) -> None:
        """Let files count that were brought back."""
        with self._file.transaction():
            self.measured.take_in(files)
        self.version += 1

    def file_samples(self, now_ns: int) -> int:
        """All three steps for every span that is due; how many spans there were."""
        filings = self.plan_files(now_ns)
        return sum(self.attach_files(filing, self.write_files(filing), now_ns) for filing in filings)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Answer one of the service's own questions."""
        return self._db.execute(query, list(parameters)).fetchall()

    def settle(self) -> None:
        """Between transactions, while nothing is behind: bring what they have left in the write-ahead log into the file."""
        self._file.settle()

    def tidy(self) -> None:
        """Now and then."""
        self._file.tidy()

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy of the file."""
        self._file.copy_to(target)

    def close(self) -> None:
        """Close the file; everything stored is on disk already."""
        self._file.close()
