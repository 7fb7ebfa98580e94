"""A full disk: nothing is half stored, and the next start continues."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_telemetry.samples.day_files import FOLDER, mismatch
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse import database
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.samples.nodes import START_NS, content, day, put

SIZE_MIB = 24
TABLES = ("samples", "uses", "sample_heads")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of some MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def fill(disk: Path, leave_bytes: int) -> Path:
    """Write another file, which leaves this much space."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    path = disk / "somebody-elses"
    path.write_bytes(b"\0" * (free - leave_bytes))
    return path


def test_a_full_disk_costs_nothing_that_was_stored(small: Path) -> None:
    """The transaction that did not fit is gone whole, is no damage, and fits once there is room."""
    warehouse = Warehouse(small / "telemetry")
    put(warehouse, day(0, every_s=60))
    kept = [content(warehouse, TABLES)]
    filler = fill(small, 4096)
    book = SampleBook(warehouse.sample_heads())
    with pytest.raises((duckdb.Error, OSError)) as full:
        put_for_ever(warehouse, book, kept)
    assert not (isinstance(full.value, duckdb.Error) and database.is_damage(full.value))
    warehouse.close()
    filler.unlink()
    again = Warehouse(small / "telemetry")
    assert again.damage == ""
    assert content(again, TABLES) == kept[-1]
    put(again, day(2, every_s=600, first=book_next(again)))
    again.close()


def put_for_ever(warehouse: Warehouse, book: SampleBook, kept: list[dict]) -> None:
    """Until what was set apart for it is used up; `kept`: what is stored after each."""
    while True:
        put(warehouse, day(1, every_s=10, first=book_next(warehouse)), book)
        kept.append(content(warehouse, TABLES))


def book_next(warehouse: Warehouse) -> int:
    return max(head.n for head in warehouse.sample_heads().values()) + 1


def test_a_full_disk_leaves_a_day_where_it_is(small: Path) -> None:
    """No half a file counts; with room again it leaves."""
    warehouse = Warehouse(small / "telemetry")
    put(warehouse, day(0, every_s=20))
    warehouse.roll_up(START_NS + 2 * DAY_NS)
    before = content(warehouse)
    filler = fill(small, 8192)
    with pytest.raises((duckdb.Error, OSError)):
        warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    assert warehouse.measured.files() == []
    filler.unlink()
    warehouse.close()
    again = Warehouse(small / "telemetry")
    assert content(again) == before
    assert list((small / "telemetry" / FOLDER).glob("*.parquet*")) == []
    assert again.file_samples(START_NS + DAY_NS + SETTLE_NS) == 1
    assert content(again) == before
    assert [words for file in again.measured.files() if (words := mismatch(again.measured.folder, file))] == []
    again.close()
