"""Rows and cursor move together (I9): equal to a plain fold of the log, also after kill -9 at any moment."""

import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from fairlead_schemas.wire.commit import decode_envelope
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.samples.intake import SampleBook, SampleGap, SampleHead
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Retention, Warehouse, WarehouseBusy
from tests.telemetry.rows import actual, expected, store
from tests.telemetry.story import busy, morning

KILLS = 8
JOBS = 8_000
REPOSITORY = Path(__file__).parents[3]


def test_rows_equal_a_plain_fold(tmp_path: Path) -> None:
    """For any batches, the rows are those of a plain Python fold of the log, bodies byte for byte."""
    story = morning()
    for batch in (1, 4, 100):
        warehouse = Warehouse(tmp_path / str(batch))
        while warehouse.cursor.sequence < len(story.commits):
            store(warehouse, story, first=warehouse.cursor.sequence, count=batch)
        assert actual(warehouse) == expected([payload for *_, payload in story.commits])
        assert (warehouse.cursor.sequence, warehouse.cursor.events) == (33, 46)
        warehouse.close()


def test_cursor_survives_reopening(tmp_path: Path) -> None:
    """Stored rows, cursor and chain heads are there in the next process."""
    warehouse = Warehouse(tmp_path)
    told = store(warehouse, morning())
    warehouse.close()
    again = Warehouse(tmp_path)
    assert again.cursor == told
    assert again.cursor.heads["placer"].n == 18
    again.close()


def test_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    """After one unreadable event, or a missing commit, rows and cursor do not move."""
    warehouse, story = Warehouse(tmp_path), morning()
    store(warehouse, story, count=3)
    before, rows = warehouse.cursor, actual(warehouse)
    sound = CommitBytes.of(4, decode_envelope(story.commits[3][2]))
    broken = sound._replace(bodies=[*sound.bodies, b'{"type": "JobQ'])
    with pytest.raises(duckdb.InvalidInputException, match="Malformed JSON"):
        warehouse.store([broken], before.heads, "a log", SampleBook({}).take())
    with pytest.raises(AssertionError, match="cursor 3"):
        warehouse.store([sound._replace(sequence=5)], before.heads, "a log", SampleBook({}).take())
    assert (warehouse.cursor, actual(warehouse)) == (before, rows)
    store(warehouse, story, first=3)
    assert actual(warehouse) == expected([payload for *_, payload in story.commits])
    warehouse.close()


def test_white_space_in_a_spec_stays(tmp_path: Path) -> None:
    """A job file carried undecoded may hold line breaks between its tokens; its event stays one row, byte for byte."""
    warehouse = Warehouse(tmp_path)
    *_, payload = morning().commits[2]
    spaced = payload.replace(b'{"name"', b'{\n\r\n"name"', 1)
    assert spaced != payload
    commit = CommitBytes.of(1, decode_envelope(spaced))
    warehouse.store([commit], {}, "a log", SampleBook({}).take())
    assert warehouse.rows("SELECT body FROM events ORDER BY idx") == [(bytes(body).decode(),) for body in commit.bodies]
    assert warehouse.rows("SELECT body->>'$.spec.name' FROM events WHERE contains(body, chr(10))") == [("job-1",)]
    warehouse.close()


def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    """Killed in mid-transaction again and again: rows == cursor == fold each time, and the last run completes."""
    payloads = [payload for *_, payload in busy(JOBS).commits]
    rows = expected(payloads)
    chance, reached, killed_at = random.Random(7), 0, set[int]()
    for kill in range(KILLS + 1):
        command = [sys.executable, "-m", "tests.telemetry.storing", str(tmp_path), str(JOBS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"storing\n"
            if kill < KILLS:
                for _ in range(chance.randrange(5)):
                    process.stdout.readline()
                time.sleep(chance.uniform(0.0, 0.05))
                process.kill()
            process.stdout.read()
        warehouse = Warehouse(tmp_path)
        cursor = warehouse.cursor
        assert actual(warehouse) == rows[: cursor.events]
        assert cursor.events == len([row for row in rows if row[0] <= cursor.sequence])
        assert cursor.sequence >= reached
        reached = cursor.sequence
        killed_at.add(reached)
        warehouse.close()
    assert reached == len(payloads)
    assert killed_at - {0, reached}, "no kill fell into the middle: the test proved nothing"


def test_second_process_is_kept_out(tmp_path: Path) -> None:
    """While one process has the warehouse, also after it made a copy, another is refused."""
    warehouse = Warehouse(tmp_path / "w")
    store(warehouse, morning())
    warehouse.copy_to(tmp_path / "copy.duckdb")
    probe = (
        "import sys, pathlib; from fairlead_telemetry.warehouse.warehouse import *\n"
        "try: Warehouse(pathlib.Path(sys.argv[1]))\n"
        "except WarehouseBusy as busy: print('busy', busy)"
    )
    told = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path / "w")], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("busy cannot open")
    assert issubclass(WarehouseBusy, Exception)
    warehouse.close()


# ------------------------------------------------------------------------------------- samples


def batch(n: int, node: str = "n1", incarnation: str = "a", at_ns: int | None = None, gpus: int = 2) -> SampleBatch:
    """One batch of a node with two GPUs."""
    devices = [GpuSample(uuid=f"GPU-{i}", utilization_pct=50 + i, memory_used_mib=n, run="7.1") for i in range(gpus)]
    return SampleBatch(
        node=node, incarnation=incarnation, n=n, at_ns=n * 10**9 if at_ns is None else at_ns, gpus=devices
    )


def taken(book: SampleBook, *batches: SampleBatch) -> list[bool]:
    return [book.add(columns_of(one)) for one in batches]


def test_lost_and_repeated_samples_are_distinguished() -> None:
    """Numbers decide: a repetition is dropped, a gap is counted, a new incarnation starts at 1."""
    book = SampleBook({("n1", "a"): SampleHead(2, 0, 0)})
    assert taken(book, batch(2), batch(3), batch(6), batch(5), batch(1, incarnation="b")) == [
        False,
        True,
        True,
        False,
        True,
    ]
    intake = book.take()
    assert intake.gaps == [SampleGap("n1", "a", 4, 5, 2, 6 * 10**9)]
    assert intake.heads == {("n1", "a"): SampleHead(6, 6 * 10**9, 2), ("n1", "b"): SampleHead(1, 10**9, 0)}
    assert len(intake.batches) == 3
    assert book.take().batches == []


def test_samples_and_their_cursor_are_stored_together(tmp_path: Path) -> None:
    """Rows per GPU, gaps and heads arrive in one transaction; a reopened warehouse knows what it has."""
    warehouse = Warehouse(tmp_path)
    book = SampleBook(warehouse.sample_heads())
    taken(book, batch(1), batch(4), batch(5, gpus=0))
    warehouse.store([], {}, "a log", book.take())
    assert warehouse.rows(
        "SELECT n, uuid, run, utilization_pct, memory_used_mib, simulated FROM samples ORDER BY n, uuid"
    ) == [
        (1, "GPU-0", "7.1", 50, 1, False),
        (1, "GPU-1", "7.1", 51, 1, False),
        (4, "GPU-0", "7.1", 50, 4, False),
        (4, "GPU-1", "7.1", 51, 4, False),
    ]
    assert warehouse.rows("SELECT node, first_lost, last_lost, lost FROM sample_gaps") == [("n1", 2, 3, 2)]
    assert warehouse.cursor.samples_lost == 2
    warehouse.close()
    again = Warehouse(tmp_path)
    assert again.sample_heads() == {("n1", "a"): SampleHead(5, 5 * 10**9, 2)}
    assert taken(SampleBook(again.sample_heads()), batch(5)) == [False]
    again.close()


def test_old_samples_are_dropped(tmp_path: Path) -> None:
    """Samples older than the limit go, with their gaps and heads; beyond a number of rows the oldest minutes go, too."""
    warehouse = Warehouse(tmp_path)
    book = SampleBook({})
    minute = 60 * 10**9
    taken(book, *(batch(n, at_ns=n * minute) for n in range(2, 12)), batch(1, node="n2", at_ns=2 * minute))
    warehouse.store([], {}, "a log", book.take())
    warehouse.drop_samples(Retention(5 * minute + 7))
    assert warehouse.rows("SELECT node, min(n), count(*) FROM samples GROUP BY node") == [("n1", 5, 14)]
    assert warehouse.rows("SELECT count(*) FROM sample_gaps") == [(0,)]
    assert set(warehouse.sample_heads()) == {("n1", "a")}
    warehouse.drop_samples(Retention(0), rows_max=4)
    assert warehouse.rows("SELECT min(n), count(*) FROM samples") == [(10, 4)]
    warehouse.close()
