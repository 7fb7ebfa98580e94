"""The DuckDB file as such: its settings, its transactions, when its write-ahead log is taken into it, and copies. Knows no
table.

Further parts:
- cursor of the warehouse: one row, moved in the transaction that stores the rows read;
- damaged database file: it is recognised and set aside under another name, never deleted.

Taking the write-ahead log in (a checkpoint) holds up every insert until it is done, so what it may cost at once is bounded: `settle`
does it piece by piece, and rows are merged into larger groups by `tidy` alone, a little at a time. Left to DuckDB, a checkpoint rewrites
whole groups of 122,880 rows that were written by those before it, and takes the longer the more there are.

Its contents come back from the log, from the stream of samples within its retention, and from the files of days.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec

from fairlead_bus.log import LogHead

FILE = "warehouse.duckdb"
#: Interval of checkpoints while it catches up. A smaller one rewrites parts of the folded tables for fewer
#: events.
WAL_BYTES = "128MB"
#: While it keeps up: some seconds of 14,000 GPUs, which take a fifth of a second.
SETTLE_BYTES = 24 * 2**20
#: Of each table, so many pieces of work per `tidy`; one merges groups of up to some 300,000 rows.
TIDY_TASKS = 1


class DatabaseResources(NamedTuple):
    """Resources that the database may use, and the factor by which the steps of a full fold are enlarged."""

    threads: int
    memory: str
    stride: int = 1


#: The machine is shared with the services that decide.
SHARED = DatabaseResources(1, "256MB")


def whole_machine() -> DatabaseResources:
    """For a command that runs while the service does not."""
    return DatabaseResources(os.cpu_count() or 1, "1GB", 5)


class Database:
    """Open database file, used by one thread."""

    def __init__(self, path: Path, means: DatabaseResources = SHARED) -> None:
        """Raises duckdb.Error."""
        self.path = path
        self.connection = duckdb.connect(
            str(path),
            config={
                "threads": means.threads,
                "memory_limit": means.memory,
                "wal_autocheckpoint": WAL_BYTES,
                "max_vacuum_tasks": 0,
                "temp_directory": str(path.parent / "spill"),
            },
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it, or none."""
        self.connection.execute("BEGIN")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(
                duckdb.Error
            ):  # a fault such as a full disk has ended it already; that fault is the one to report
                self.connection.execute("ROLLBACK")
            raise

    def settle(self) -> bool:
        """Take the write-ahead log in if it has grown to a piece; whether it did."""
        try:
            due = self._wal.stat().st_size >= SETTLE_BYTES
        except FileNotFoundError:
            return False
        if due:
            self.connection.execute("CHECKPOINT")
        return due

    def tidy(self) -> None:
        """Merge some of the small groups of rows that settling leaves. (Groups without rows go by themselves.)"""
        self.connection.execute(f"SET max_vacuum_tasks = {TIDY_TASKS}")
        try:
            self.connection.execute("CHECKPOINT")
        finally:
            self.connection.execute("SET max_vacuum_tasks = 0")

    @property
    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + ".wal")

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy of the file. The caller's thread is the only writer, so nothing moves meanwhile.

        `cp` copies in a process of its own (and shares blocks where the file system can): a copy made here
        would, on closing its descriptor, drop the POSIX lock that keeps a second telemetry service out.
        """
        self.connection.execute("CHECKPOINT")
        subprocess.run(["cp", "--", str(self.path), str(target)], check=True, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """Everything stored is on disk already."""
        self.connection.close()


class Cursor(NamedTuple):
    """Position up to which the warehouse has read."""

    sequence: int
    at_ns: int
    #: The log's identity (`fairlead_bus.log.identity`); "" while it was empty. Older versions stored the time when the
    #: stream was created, which says nothing.
    log_id: str
    heads: dict[str, LogHead]
    events: int
    samples_lost: int

    def is_of(self, log_id: str) -> bool:
        """True unless the cursor names another log."""
        return len(self.log_id) != IDENTITY_CHARS or self.log_id == log_id


#: Characters of an identity: a SHA-256 in hex.
IDENTITY_CHARS = 64

NOWHERE = Cursor(0, 0, "", {}, 0, 0)


def read_cursor(db: duckdb.DuckDBPyConnection) -> Cursor:
    """Return the cursor in its stored form, or the start of the log where none is stored."""
    row = db.execute("SELECT * FROM cursor").fetchone()
    if row is None:
        return NOWHERE
    sequence, at_ns, log_id, heads, events, lost = row
    return Cursor(sequence, at_ns, log_id, msgspec.json.decode(heads, type=dict[str, LogHead]), events, lost)


def write_cursor(db: duckdb.DuckDBPyConnection, new: Cursor) -> None:
    """The caller owns the transaction."""
    heads = msgspec.json.encode(new.heads, order="deterministic").decode()
    db.execute("DELETE FROM cursor")
    db.execute("INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?)", [*new[:3], heads, *new[4:]])


#: DuckDB's words for what a disk did to its file or its write-ahead log (tests/telemetry/samples/test_damage.py plays each).
_DAMAGE_WORDS = (
    "Corrupt database file",
    "Corrupt WAL file",
    "Could not read enough bytes",
    "not a valid DuckDB database",
)
DAMAGE_MARK = "warehouse.damaged"


def is_damage(error: duckdb.Error) -> bool:
    """Return True if the file is damaged; a lock, a full disk or another release's file is no damage."""
    return any(words in str(error) for words in _DAMAGE_WORDS)


def mark_damaged(directory: Path, reason: str) -> None:
    """Damage showed while the file was open: it is set aside at the next start."""
    (directory / DAMAGE_MARK).write_text(reason + "\n")


def damage_mark(directory: Path) -> str:
    """The reason why it shall be set aside; "" if it shall not."""
    try:
        return (directory / DAMAGE_MARK).read_text().strip()
    except FileNotFoundError:
        return ""


def set_aside(path: Path) -> Path:
    """The new name of the database file, whose write-ahead log goes with it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    log = path.with_name(path.name + ".wal")
    if log.exists():
        log.replace(aside.with_name(aside.name + ".wal"))
    if path.exists():
        path.replace(aside)
    (path.parent / DAMAGE_MARK).unlink(missing_ok=True)
    return aside
