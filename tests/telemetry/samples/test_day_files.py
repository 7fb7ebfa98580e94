"""Days that are over leave for Parquet files, and nothing of what can be asked changes by that."""

import hashlib
import json
from pathlib import Path

import duckdb
import pytest

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS
from fairlead_telemetry import days
from fairlead_telemetry.samples.day_files import FOLDER, MANIFEST
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.warehouse.warehouse import Retention, Warehouse
from tests.telemetry.samples.nodes import START_NS, content, day, put

#: When the first day is over, and when the second is.
FIRST_NS, SECOND_NS = START_NS + DAY_NS + SETTLE_NS, START_NS + 2 * DAY_NS + SETTLE_NS
KINDS = ("samples", "uses", "resources", "minutes", "hours")


def two_days(directory: Path) -> Warehouse:
    """Of two nodes, rolled up, in one file."""
    warehouse = Warehouse(directory)
    for number in (0, 1):
        for node in ("n1", "n2"):
            put(warehouse, day(number, node=node, first=1 + 144 * number))
    warehouse.roll_up(SECOND_NS)
    return warehouse


def manifest(directory: Path) -> dict:
    return json.loads((directory / FOLDER / MANIFEST).read_bytes())


def test_queries_return_the_same_before_and_after_an_export(tmp_path: Path) -> None:
    """Every row of every table, also after a restart; each row is in one place only."""
    warehouse = two_days(tmp_path)
    before = content(warehouse)
    assert len(before["samples"]) == 2 * 2 * 144 * 3
    assert warehouse.file_samples(FIRST_NS) == 1
    assert content(warehouse) == before
    assert warehouse.rows(
        "SELECT count(*), min(time) >= make_timestamp(?) FROM measured.samples", [(START_NS + DAY_NS) // 1000]
    ) == [(2 * 144 * 3, True)]
    warehouse.close()
    again = Warehouse(tmp_path)
    assert content(again) == before
    assert again.file_samples(FIRST_NS) == 0
    assert again.file_samples(SECOND_NS) == 1
    assert content(again) == before
    assert again.rows("SELECT count(*) FROM measured.samples") == [(0,)]
    again.close()


def test_files_equal_the_manifest(tmp_path: Path) -> None:
    """Readable by DuckDB alone, in the order of GPUs and time; name, rows, times, size and SHA-256 are recorded."""
    warehouse = two_days(tmp_path)
    warehouse.file_samples(SECOND_NS)
    rows = warehouse.rows("SELECT * FROM sample_files ORDER BY from_ns, name")
    warehouse.close()
    told = manifest(tmp_path)
    assert told["version"] == 1
    assert sorted(file["name"] for file in told["files"]) == sorted(
        f"{kind}-2026-11-2{n}.parquet" for kind in KINDS for n in (0, 1)
    )
    assert [tuple(file.values()) for file in told["files"]] == rows
    for file in told["files"]:
        path = tmp_path / FOLDER / file["name"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file["sha256"]
        assert path.stat().st_size == file["bytes"]
        assert duckdb.execute(f"SELECT count(*) FROM '{path}'").fetchall() == [(file["rows"],)]
    path = tmp_path / FOLDER / "samples-2026-11-20.parquet"
    kept = duckdb.execute(f"SELECT uuid, time, utilization_pct FROM '{path}'").fetchall()
    assert kept == sorted(kept, key=lambda row: row[:2])
    first = next(file for file in told["files"] if file["name"] == path.name)
    assert (first["from_ns"], first["to_ns"]) == (START_NS, START_NS + DAY_NS)
    assert (first["first_ns"], first["last_ns"]) == (START_NS, START_NS + DAY_NS - 600 * 10**9)
    assert list((tmp_path / FOLDER).glob("*.tmp")) == []


def test_late_samples_go_into_a_second_file(tmp_path: Path) -> None:
    """They count at once, are added to their minute, and are exported with the next day; changed sums are written
    again."""
    warehouse = two_days(tmp_path)
    warehouse.file_samples(FIRST_NS)
    put(warehouse, day(0, node="n3"))
    warehouse.roll_up(SECOND_NS)
    before = content(warehouse)
    assert {row[2] for row in before["samples"]} == {"n1", "n2", "n3"}
    assert warehouse.file_samples(SECOND_NS) == 2
    assert content(warehouse) == before
    names = {file["name"] for file in manifest(tmp_path)["files"]}
    assert {"samples-2026-11-20.parquet", "samples-2026-11-20.2.parquet", "minutes-2026-11-20.2.parquet"} <= names
    assert "minutes-2026-11-20.parquet" not in names
    warehouse.close()


def test_samples_that_arrive_during_an_export_are_not_lost(tmp_path: Path) -> None:
    """The file is then not used; the next export replaces it, and removes the unused one."""
    warehouse = two_days(tmp_path)
    (filing,) = warehouse.plan_files(FIRST_NS)
    files = warehouse.write_files(filing)
    put(warehouse, day(0, node="n3"))
    warehouse.roll_up(SECOND_NS)
    before = content(warehouse)
    assert not warehouse.attach_files(filing, files, FIRST_NS)
    assert content(warehouse) == before
    assert manifest(tmp_path)["files"] == []
    assert warehouse.file_samples(FIRST_NS) == 1
    assert content(warehouse) == before
    warehouse.drop_samples(Retention(0), now_ns=FIRST_NS + HOUR_NS)
    on_disk = {path.name for path in (tmp_path / FOLDER).glob("*.parquet")}
    assert on_disk == {file["name"] for file in manifest(tmp_path)["files"]}
    warehouse.close()


def test_minutes_without_sums_hold_their_day_back(tmp_path: Path) -> None:
    """Otherwise a file of sums would be wrong permanently."""
    warehouse = Warehouse(tmp_path)
    put(warehouse, day(0))
    assert warehouse.file_samples(FIRST_NS) == 0
    warehouse.roll_up(FIRST_NS)
    assert warehouse.file_samples(FIRST_NS) == 1
    warehouse.close()


def test_old_files_are_removed(tmp_path: Path) -> None:
    """Files whose whole span is older than the retention first no longer count, then are deleted. Sums stay longer."""
    warehouse = two_days(tmp_path)
    warehouse.file_samples(SECOND_NS)
    warehouse.drop_samples(Retention(START_NS + DAY_NS), now_ns=SECOND_NS)
    assert {name for (name,) in warehouse.rows("SELECT name FROM sample_files WHERE kind = 'samples'")} == {
        "samples-2026-11-21.parquet"
    }
    assert warehouse.rows("SELECT count(*) FROM samples") == [(2 * 144 * 3,)]
    old = tmp_path / FOLDER / "samples-2026-11-20.parquet"
    assert old.exists(), "somebody may still read it"
    warehouse.drop_samples(Retention(START_NS + DAY_NS), now_ns=SECOND_NS + HOUR_NS)
    assert not old.exists()
    assert (tmp_path / FOLDER / "minutes-2026-11-20.parquet").exists()
    assert warehouse.rows("SELECT count(*) FROM samples_1m WHERE time < '2026-11-21'") == [(2 * 144 * 3,)]
    warehouse.drop_samples(Retention(0), rows_max=100, now_ns=SECOND_NS + HOUR_NS)
    assert warehouse.rows("SELECT count(*) FROM samples") == [(0,)]
    warehouse.close()


def run(directory: Path, *words: str) -> int:
    return days.main(["--directory", str(directory), *words])


def test_the_command_exports_and_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the machine's clock these days are over or not: the due ones are listed; each damage is named."""
    warehouse = Warehouse(tmp_path)
    put(warehouse, day(-30))
    warehouse.close()
    assert run(tmp_path, "export") == 0
    assert "samples-2026-10-21.parquet: 432 rows" in capsys.readouterr().out
    assert run(tmp_path, "verify") == 0
    assert capsys.readouterr().out == "5 of 5 files match the manifest\n"
    path = tmp_path / FOLDER / "samples-2026-10-21.parquet"
    content_before = path.read_bytes()
    path.write_bytes(content_before[:50] + b"!" + content_before[51:])
    (tmp_path / FOLDER / "uses-2026-10-21.parquet").unlink()
    (tmp_path / FOLDER / "samples-2026-10-22.parquet").write_bytes(content_before)
    assert run(tmp_path, "verify") == 1
    told = capsys.readouterr()
    assert "samples-2026-10-21.parquet: SHA-256" in told.err
    assert "uses-2026-10-21.parquet: it is missing" in told.err
    assert "samples-2026-10-22.parquet: not in the manifest" in told.out


def test_a_file_that_was_brought_back_counts_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attached by name; what is no such file, or counts already, is refused, and nothing is attached with it."""
    warehouse = two_days(tmp_path)
    before = content(warehouse, ["samples"])
    warehouse.file_samples(SECOND_NS)
    name = "samples-2026-11-20.parquet"
    kept = (tmp_path / FOLDER / name).read_bytes()
    warehouse.drop_samples(Retention(START_NS + DAY_NS), now_ns=SECOND_NS)
    warehouse.drop_samples(Retention(START_NS + DAY_NS), now_ns=SECOND_NS + HOUR_NS)
    warehouse.close()
    (tmp_path / FOLDER / name).write_bytes(kept)
    (tmp_path / FOLDER / "samples-x.parquet").write_bytes(b"no Parquet")
    for words in (
        (name, "samples-x.parquet"),
        (name, "../x.parquet"),
        ("samples-2026-11-21.parquet",),
        ("manifest.json",),
    ):
        assert run(tmp_path, "attach", *words) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert run(tmp_path, "attach", name) == 0
    again = Warehouse(tmp_path)
    assert content(again, ["samples"]) == before
    again.close()
