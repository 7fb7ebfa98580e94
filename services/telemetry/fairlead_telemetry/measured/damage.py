"""Damaged database file: it is recognised and set aside under another name, never deleted.

Its contents come back from the log, from the stream of samples within its retention, and from the files of days.
"""

from pathlib import Path

import duckdb

#: DuckDB's words for what a disk did to its file or its write-ahead log (tests/telemetry/measured/test_damage.py plays each).
_WORDS = ("Corrupt database file", "Corrupt WAL file", "Could not read enough bytes", "not a valid DuckDB database")
MARK = "warehouse.damaged"


def is_damage(error: duckdb.Error) -> bool:
    """Return True if the file is damaged; a lock, a full disk or another release's file is no damage."""
    return any(words in str(error) for words in _WORDS)


def mark(directory: Path, reason: str) -> None:
    """Damage showed while the file was open: it is set aside at the next start."""
    (directory / MARK).write_text(reason + "\n")


def marked(directory: Path) -> str:
    """The reason why it shall be set aside; "" if it shall not."""
    try:
        return (directory / MARK).read_text().strip()
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
    (path.parent / MARK).unlink(missing_ok=True)
    return aside
