"""The file as such: its write-ahead log is taken in piece by piece, and nothing that was stored depends on when."""

from pathlib import Path

import pytest

from fairlead_telemetry.warehouse import database
from fairlead_telemetry.warehouse.database import FILE, Database, DatabaseResources

ROWS = 2_000


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """One table, whose every row is reason enough to settle."""
    monkeypatch.setattr(database, "SETTLE_BYTES", 1)
    opened = Database(tmp_path / FILE)
    opened.connection.execute("CREATE TABLE kept (n BIGINT)")
    opened.settle()
    return opened


def add(file: Database, begin: int) -> None:
    with file.transaction():
        file.connection.execute("INSERT INTO kept FROM range(?, ?)", [begin, begin + ROWS])


def groups(file: Database) -> int:
    """Groups of rows that the table consists of in the file."""
    row = file.connection.execute("SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('kept')").fetchone()
    assert row is not None
    return row[0]


def counted(file: Database) -> tuple[int, ...]:
    row = file.connection.execute("SELECT count(*), count(DISTINCT n), sum(n) FROM kept").fetchone()
    assert row is not None
    return row


def wal_bytes(file: Database) -> int:
    path = file.path.with_name(FILE + ".wal")
    return path.stat().st_size if path.exists() else 0


def test_the_log_is_taken_in_once_it_is_a_piece(file: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the size it is left alone; above it is empty afterwards, and the rows are those that were there."""
    add(file, 0)
    before = wal_bytes(file)
    assert before > 0
    monkeypatch.setattr(database, "SETTLE_BYTES", before + 1)
    assert file.settle() is False
    assert wal_bytes(file) == before
    monkeypatch.setattr(database, "SETTLE_BYTES", before)
    assert file.settle() is True
    assert wal_bytes(file) == 0
    assert file.settle() is False
    assert counted(file) == (ROWS, ROWS, sum(range(ROWS)))
    file.close()


def test_compaction_writes_only_new_rows(file: Database) -> None:
    """Rows of an earlier one are not written again, so that the next takes no longer; a merge combines them."""
    for number in range(6):
        add(file, number * ROWS)
        assert file.settle()
    assert groups(file) == 6
    add(file, 6 * ROWS)
    file.tidy()
    assert groups(file) < 6
    total = 7 * ROWS
    assert counted(file) == (total, total, sum(range(total)))
    add(file, total)
    file.settle()
    groups_now = groups(file)
    add(file, total + ROWS)
    file.settle()
    assert groups(file) == groups_now + 1  # a tidying lasts no longer than itself
    file.close()


def test_compacted_rows_are_there_after_reopening(file: Database) -> None:
    """Half of them in the file, half in the write-ahead log."""
    add(file, 0)
    file.settle()
    add(file, ROWS)
    path, before = file.path, counted(file)
    file.close()
    again = Database(path, DatabaseResources(2, "512MB"))
    assert counted(again) == before == (2 * ROWS, 2 * ROWS, sum(range(2 * ROWS)))
    again.close()


def test_a_reader_does_not_delay_compaction(file: Database) -> None:
    """Files of days are written by a separate reader; it continues to see the rows of its start."""
    add(file, 0)
    reader = file.connection.cursor()
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM kept").fetchone() == (ROWS,)
    add(file, ROWS)
    assert file.settle()
    file.tidy()
    assert reader.execute("SELECT count(*) FROM kept").fetchone() == (ROWS,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM kept").fetchone() == (2 * ROWS,)
    reader.close()
    file.close()


def test_a_transaction_that_fails_leaves_nothing(file: Database) -> None:
    """And the next one is not its continuation."""

    def fails() -> None:
        with file.transaction():
            file.connection.execute("INSERT INTO kept VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    add(file, 0)
    assert counted(file)[0] == ROWS
    file.close()
