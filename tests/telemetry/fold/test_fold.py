"""The folded tables: independent of how the log is split, equal after a rebuild, and equal to a plain Python fold."""

import io
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

from fairlead_schemas.wire.commit import decode_commit
from fairlead_telemetry import rebuild
from fairlead_telemetry.fold import jobs, tables, updater
from fairlead_telemetry.fold.updater import FoldCut, cuts
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.database import DatabaseResources
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse
from tests.telemetry.log_feed import anew, feed, folded
from tests.telemetry.moved_jobs import again
from tests.telemetry.plainfold import Oracle
from tests.telemetry.simulated import log_of
from tests.telemetry.story import busy, morning, of_story


@pytest.mark.parametrize("story", [morning, again], ids=["morning", "moves"])
def test_pieces_make_no_difference(story, tmp_path: Path) -> None:
    """One commit at a time, a few, or all at once: every folded row is the same."""
    log = of_story(story())
    whole = anew(tmp_path / "whole", log, [len(log)])
    assert whole["jobs"]
    assert whole["state"] == [(tables.VERSION, len(log))]
    assert anew(tmp_path / "single", log, [1]) == whole
    assert anew(tmp_path / "some", log, [2, 5, 3]) == whole


def test_a_full_rebuild_gives_equal_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On request, or because the rules have another version; in steps, and continued after an interruption."""
    log = of_story(busy(300))
    before = anew(tmp_path, log, [20])
    monkeypatch.setattr(updater, "EVENTS_PER_STEP", 70)
    warehouse = Warehouse(tmp_path)
    warehouse._db.execute("DELETE FROM fold.jobs WHERE job LIKE '1%'")  # so that doing nothing would show
    assert folded(warehouse) != before
    assert warehouse.rebuild() == warehouse.cursor.events
    assert folded(warehouse) == before
    views = warehouse.rows("FROM jobs ORDER BY id")
    warehouse._db.execute("UPDATE fold.state SET version = 0")
    warehouse._db.execute("DELETE FROM fold.jobs")
    warehouse.close()
    again = Warehouse(tmp_path)
    assert folded(again) == before
    assert again.rows("FROM jobs ORDER BY id") == views
    again._folding.drop()
    again._folding.advance(10)  # a rebuild that got no further
    again.close()
    resumed = Warehouse(tmp_path, DatabaseResources(2, "512MB", 3))  # in larger steps, on two threads
    assert folded(resumed) == before
    resumed.close()


def test_a_failed_transaction_is_not_folded(tmp_path: Path) -> None:
    """A rollback leaves the fold unchanged, in memory, too."""
    log = of_story(morning())
    warehouse = Warehouse(tmp_path)
    feed(warehouse, log[:5], [5])
    before, reached = folded(warehouse), warehouse._folding.sequence
    broken = [CommitBytes(6, "queue", 1, [b"no JSON"])]
    with pytest.raises(duckdb.InvalidInputException, match="Malformed JSON"):
        warehouse.store(broken, warehouse.cursor.heads, "a log", SampleIntake([], [], {}))
    assert (folded(warehouse), warehouse._folding.sequence) == (before, reached)
    feed(warehouse, log, [4])
    assert folded(warehouse) == anew(tmp_path / "other", log, [len(log)])
    warehouse.close()


def test_the_command_rebuilds_and_prints_the_result(tmp_path: Path) -> None:
    """`python -m fairlead_telemetry.rebuild`; while the service runs it is refused in one line."""
    directory = tmp_path / "telemetry"
    before = anew(directory, of_story(morning()), [10])
    warehouse = Warehouse(directory)
    command = [sys.executable, "-m", "fairlead_telemetry.rebuild", str(directory)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 75
    assert "stop the telemetry service" in refused.stderr
    warehouse._db.execute("DELETE FROM fold.done_runs")
    warehouse.close()
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("folded 46 events up to log sequence 33")
    warehouse = Warehouse(directory)
    assert folded(warehouse) == before
    warehouse.close()
    missing = subprocess.run([*command[:-1], str(tmp_path / "no")], capture_output=True, text=True)
    assert missing.returncode == 1
    assert "no warehouse" in missing.stderr


def test_the_log_is_split_before_moves() -> None:
    """Neighbouring moves by name are grouped; each removal is alone; nothing is left out."""
    assert cuts(10, 99, [], []) == [FoldCut(10, 99)]
    assert cuts(10, 99, [20, 21, 30], [22, 23]) == [
        FoldCut(10, 19),
        FoldCut(20, 21, jobs.BY_WORD, 21),
        FoldCut(22, 22, jobs.BY_REMOVAL, 22),
        FoldCut(23, 29, jobs.BY_REMOVAL, 23),
        FoldCut(30, 99, jobs.BY_WORD, 30),
    ]
    assert cuts(10, 99, [10], []) == [FoldCut(10, 99, jobs.BY_WORD, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 7, 43])
def test_runs_are_those_of_a_plain_fold(seed: int, tmp_path: Path) -> None:
    """On the logs of simulated clusters, in random pieces: runs, what they held, and GPU-hours per user and queue."""
    log, chance = log_of(seed), random.Random(seed)
    warehouse, oracle = Warehouse(tmp_path / "pieces"), Oracle()
    feed(warehouse, log, [chance.randint(1, 40) for _ in range(1000)])
    oracle.fold([decode_commit(stored.payload) for stored in log])
    runs = oracle.runs()
    assert runs
    columns = "job, attempt, placed_ns, started_ns, ended_ns, outcome"
    told = warehouse.rows(f"SELECT {columns} FROM fold.done_runs UNION ALL SELECT {columns} FROM fold.open_runs")
    assert {row[:2]: row[2:] for row in told} == {key: run[2:6] for key, run in runs.items()}
    seconds = warehouse.rows("SELECT job, attempt, gpu_seconds FROM runs")
    assert {row[:2]: row[2] for row in seconds} == pytest.approx(
        {k: run.gpu_milli_ns / 1e12 for k, run in runs.items()}
    )
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for run in runs.values():
        hours[run.user, run.queue] += run.gpu_milli_ns / 3.6e15
    assert {row[:2]: row[2] for row in warehouse.rows('SELECT "user", queue, gpu_hours FROM gpu_hours_by_user')} == (
        pytest.approx(dict(hours))
    )
    parts = warehouse.rows("SELECT sum(gpu_seconds) FROM allocations")[0][0]
    assert parts == pytest.approx(sum(run.gpu_milli_ns for run in runs.values()) / 1e12)
    pieces = folded(warehouse)
    warehouse.rebuild()
    assert folded(warehouse) == pieces
    warehouse.close()


@pytest.mark.parametrize(
    ("is_terminal", "expected"),
    [
        (
            False,
            "rebuild: 20 of 40 commits (50 %), 2 a second, 10 s left\nrebuild: 40 of 40 commits (100 %), 3 a second\n",
        ),
        (
            True,
            "rebuild: 20 of 40 commits (50 %), 2 a second, 10 s left\r\x1b[Krebuild: 40 of 40 commits (100 %), 3 a second\n",
        ),
    ],
)
def test_a_long_rebuild_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_terminal: bool, expected: str
) -> None:
    """One line that is written again on a terminal, lines elsewhere; a short one shows nothing. The warehouse calls it to the end."""
    times = iter([0.0, 0.1, 10.0, 14.0])
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    seen = rebuild.RebuildProgress(stream, lambda: next(times))
    for done in (10, 20, 40):
        seen(done, 40)
    assert stream.getvalue().removeprefix("\r\x1b[K") == expected
    quick = io.StringIO()
    rebuild.RebuildProgress(quick, lambda: 0.0)(40, 40)
    assert quick.getvalue() == ""
    warehouse, steps = Warehouse(tmp_path), list[tuple[int, int]]()
    feed(warehouse, of_story(morning()), [10])
    warehouse.rebuild(lambda done, of: steps.append((done, of)))
    assert steps[-1] == (warehouse.cursor.sequence, warehouse.cursor.sequence)
    warehouse.close()
