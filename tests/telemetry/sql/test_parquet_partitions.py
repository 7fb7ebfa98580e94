"""A member's rows of exported days: all of them, up to a reported bound, and copied once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN, QueryCaller
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS
from fairlead_telemetry.samples.day_files import RAW
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.sql import parquet_partitions
from fairlead_telemetry.sql.member_copy import MemberScope, scope_of, write_member_copy
from fairlead_telemetry.sql.worker import QueryWorker
from fairlead_telemetry.sql.worker_process import WorkerQuery
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.samples import nodes
from tests.telemetry.samples.nodes import START_NS, day, put
from tests.telemetry.story import START_NS as STORY_NS
from tests.telemetry.story import Story, placed, started, submitted

ADA, BOB = (QueryCaller(user=user, role="member") for user in ("ada", "bob"))
DAYS = 3
#: Rows of a day of runs 7.1 and 8.1, by table.
OF_ADA = {"samples": 144, "uses": 144, "resources": 144}


class Kept:
    """A warehouse of three days, the first two in files: ada has run 7.1, bob run 8.1 on a MIG instance, and a third
    GPU is free."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.warehouse = Warehouse(directory / "w")
        story = Story()
        # The story's clock is another; what counts is that the runs go on.
        story.at(
            0,
            submitted("7"),
            submitted("8", user="bob"),
            placed("7", n1=1),
            started("7"),
            placed("8", n1=1),
            started("8"),
        )
        store(self.warehouse, story)
        for number in range(DAYS):
            put(self.warehouse, day(number, first=1 + 144 * number))
        self.warehouse.roll_up(START_NS + DAYS * DAY_NS + HOUR_NS)
        self.file(2)
        self.copies = 0

    def file(self, days: int) -> None:
        assert self.warehouse.file_samples(START_NS + days * DAY_NS + SETTLE_NS)

    def ask(self, caller: QueryCaller, query: str, kept: Path | None = None) -> dict[str, Any]:
        """Over a copy of its own."""
        self.copies += 1
        whole = self.directory / f"whole-{self.copies}.duckdb"
        self.warehouse.copy_to(whole)
        path, scope = whole, scope_of(caller)
        if scope is not None:
            path = self.directory / str(self.copies) / "warehouse.duckdb"
            path.parent.mkdir()
            write_member_copy(whole, path, scope, kept)
        desk = QueryWorker()
        try:
            return msgspec.json.decode(desk.answer(WorkerQuery(1, str(path), query, 10_000, 60.0)))
        finally:
            desk.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    assert STORY_NS < nodes.START_NS
    (tmp_path / "w").mkdir()
    there = Kept(tmp_path)
    yield there
    there.warehouse.close()


@pytest.mark.parametrize("table", RAW)
@pytest.mark.parametrize(("caller", "run"), [(ADA, "7.1"), (BOB, "8.1")])
def test_own_rows_are_those_that_an_admin_sees(kept: Kept, table: str, caller: QueryCaller, run: str) -> None:
    """Of days in files and of the present one, with every column; and none of another's."""
    found = kept.ask(caller, f"FROM {table} ORDER BY ALL")
    expected = kept.ask(ANONYMOUS_ADMIN, f"FROM {table} WHERE run = '{run}' ORDER BY ALL")
    assert found["rows"] == expected["rows"]
    assert len(found["rows"]) == (DAYS * OF_ADA[table] if run == "7.1" or table == "samples" else 0)
    assert "left_out" not in found


def test_a_copy_stays_until_there_are_other_files(kept: Kept) -> None:
    """A new copy of the present day leaves it unchanged; another exported day replaces it."""
    count, there = "SELECT count(*), count(DISTINCT time::DATE) FROM samples", kept.directory / "ada.duckdb"
    assert kept.ask(ADA, count, there)["rows"] == [[3 * 144, 3]]
    stamp = there.stat().st_mtime_ns
    put(kept.warehouse, day(3, first=1 + 3 * 144))
    assert kept.ask(ADA, count, there)["rows"] == [[4 * 144, 4]]
    assert there.stat().st_mtime_ns == stamp
    kept.file(3)
    assert kept.ask(ADA, count, there)["rows"] == [[4 * 144, 4]]
    assert there.stat().st_mtime_ns > stamp


def test_the_newest_rows_fit_first_and_the_rest_is_named(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole minutes; sums of all of it are there. Queries of another table get no note."""
    monkeypatch.setattr(parquet_partitions, "ROWS_MAX", 200)
    found = kept.ask(ADA, "SELECT count(*), min(time)::VARCHAR FROM samples")
    assert found["rows"] == [[144 + 200, "2026-11-20 14:40:00"]]
    assert found["left_out"].startswith("samples before 2026-11-20 14:31 (UTC) that are in files: they are too many")
    assert "left_out" not in kept.ask(ADA, "SELECT count(*) FROM samples_1m")


def test_not_more_than_so_much_is_looked_through(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files, the newest first."""
    monkeypatch.setattr(parquet_partitions, "LOOKED_THROUGH_MAX", 144 * 3)
    found = kept.ask(ADA, "SELECT count(*), min(time)::VARCHAR FROM samples")
    assert found["rows"] == [[2 * 144, "2026-11-21 00:00:00"]]
    assert "samples before 2026-11-21 00:00 (UTC)" in found["left_out"]
    monkeypatch.setattr(parquet_partitions, "LOOKED_THROUGH_MAX", 1)
    assert kept.ask(ADA, "SELECT count(*) FROM samples")["rows"] == [[144]]


def test_a_missing_file_is_reported_and_retried(kept: Kept) -> None:
    """All other queries are answered meanwhile."""
    there = kept.directory / "ada.duckdb"
    [file] = kept.warehouse.measured.folder.glob("samples-2026-11-20*.parquet")
    file.rename(away := kept.directory / "away")
    found = kept.ask(ADA, "SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM resources)", there)
    assert found["rows"] == [[144, 3 * 144]]
    assert found["left_out"] == "samples of days that are in files cannot be read now"
    away.rename(file)
    found = kept.ask(ADA, "SELECT count(*) FROM samples", there)
    assert (found["rows"], "left_out" in found) == ([[3 * 144]], False)


def test_a_file_of_an_earlier_version_has_no_new_columns(kept: Kept) -> None:
    """They are not known of its rows; the others are there."""
    folder = kept.warehouse.measured.folder
    for file in folder.glob("samples-*.parquet"):
        with duckdb.connect() as db:
            db.execute(f"COPY (SELECT * EXCLUDE (sm_permille, power_w) FROM '{file}') TO '{file}.old' (FORMAT parquet)")
        Path(f"{file}.old").replace(file)
    query = "SELECT count(*), count(utilization_pct) > 100, count(power_mw), count(sm_permille) FROM samples WHERE time < '2026-11-22'"
    assert kept.ask(ADA, query)["rows"] == [[2 * 144, True, 0, 0]]


def test_a_member_without_runs_in_a_day_reads_no_file_of_it(kept: Kept) -> None:
    whole = kept.directory / "whole.duckdb"
    kept.warehouse.copy_to(whole)
    with duckdb.connect(str(whole), read_only=True) as db:
        db.execute("CREATE TEMP TABLE mine AS SELECT 'nobody' AS job")
        assert parquet_partitions.partition_sources(db).sources == ()
        db.execute("CREATE OR REPLACE TEMP TABLE mine AS SELECT '7' AS job")
        assert {source.runs for source in parquet_partitions.partition_sources(db).sources} == {("7.1",)}
    assert scope_of(ADA) == MemberScope("ada", ())
