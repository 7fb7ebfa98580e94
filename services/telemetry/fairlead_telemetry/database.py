"""The DuckDB file as such: its settings, its transactions, when its write-ahead log is taken into it, and copies. Knows no table.

Taking the write-ahead log in (a checkpoint) holds up every insert until it is done, so what it may cost at once is bounded: `settle`
does it piece by piece, and rows are merged into larger groups by `tidy` alone, a little at a time. Left to DuckDB, a checkpoint rewrites
whole groups of 122,880 rows that were written by those before it, and takes the longer the more there are.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb

FILE = "warehouse.duckdb"
#: Interval of checkpoints while it catches up. A smaller one rewrites parts of the folded tables for fewer
#: events.
WAL_BYTES = "128MB"
#: While it keeps up: some seconds of 14,000 GPUs, which take a fifth of a second.
SETTLE_BYTES = 24 * 2**20
#: Of each table, so many pieces of work per `tidy`; one merges groups of up to some 300,000 rows.
TIDY_TASKS = 1


class Means(NamedTuple):
    """Resources that the database may use, and the factor by which the steps of a full fold are enlarged."""

    threads: int
    memory: str
    stride: int = 1


#: The machine is shared with the services that decide.
SHARED = Means(1, "256MB")


def whole_machine() -> Means:
    """For a command that runs while the service does not."""
    return Means(os.cpu_count() or 1, "1GB", 5)


class Database:
    """Open database file, used by one thread."""

    def __init__(self, path: Path, means: Means = SHARED) -> None:
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
