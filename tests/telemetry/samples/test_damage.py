"""A database that a disk has spoiled is set aside and made again; nothing else is taken for damage."""

import asyncio
import os
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import duckdb
import pytest

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.samples import encode_samples
from fairlead_telemetry.samples.day_files import FOLDER, MANIFEST
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.service import Telemetry
from fairlead_telemetry.usage.usage_store import refold
from fairlead_telemetry.warehouse import database
from fairlead_telemetry.warehouse.warehouse import FILE, Retention, Warehouse, WarehouseRefused
from tests.kit.eventually import eventually_async
from tests.telemetry.rows import actual, store
from tests.telemetry.samples.nodes import START_NS, content, day, put
from tests.telemetry.service_on_bus import ask, running, world
from tests.telemetry.story import morning

FOLDED = ("jobs", "runs", "allocations", "nodes", "queues", "gpu_hours_by_user")
EVER = Retention(9 * 10**18, 9 * 10**18, 9 * 10**18)


def spoil(path: Path, seed: int = 1) -> None:
    """A disk changes bytes all over the file but its first page."""
    chance = random.Random(seed)
    with path.open("r+b") as file:
        for at in range(12_288, path.stat().st_size, 100_000):
            file.seek(at + chance.randrange(1000))
            file.write(chance.randbytes(64))


@pytest.mark.parametrize("how", ["head", "middle", "cut", "other"])
def test_damage_by_a_disk_is_recognised(tmp_path: Path, how: str) -> None:
    """At any place of the damage, opening or reading names it; the old file is kept under another name."""
    warehouse = Warehouse(tmp_path)
    store(warehouse, morning())
    warehouse.close()
    path = tmp_path / FILE
    size = path.stat().st_size
    if how == "head":
        with path.open("r+b") as file:
            file.seek(4100)
            file.write(os.urandom(64))
    if how == "middle":
        spoil(path)
    if how == "cut":
        os.truncate(path, size // 2)
    if how == "other":
        path.write_bytes(b"no database" * 10_000)
    again = Warehouse(tmp_path)
    if not (told := again.damage):  # it shows when rows are read
        with pytest.raises(duckdb.Error) as shown:
            again.rows("SELECT count(body) FROM events")
        assert database.is_damage(shown.value)
        again.close()
        database.mark_damaged(tmp_path, str(shown.value))
        again = Warehouse(tmp_path)
        told = again.damage
    again.close()
    assert "set aside as warehouse.duckdb.damaged-1" in told
    assert (tmp_path / "warehouse.duckdb.damaged-1").exists()
    assert not (tmp_path / database.DAMAGE_MARK).exists()
    anew = Warehouse(tmp_path)
    assert (anew.damage, anew.cursor.sequence) == ("", 0)
    anew.close()


def test_another_release_or_a_missing_permission_is_no_damage(tmp_path: Path) -> None:
    """Such a file may be good."""
    assert not database.is_damage(duckdb.IOException("Trying to read a database file with version number 99"))
    assert not database.is_damage(duckdb.IOException("Could not set lock on file"))
    assert not database.is_damage(
        duckdb.OutOfMemoryException("Out of Memory Error: could not write block: No space left")
    )
    (tmp_path / FILE).mkdir()
    with pytest.raises(WarehouseRefused, match="cannot open"):
        Warehouse(tmp_path)


def test_a_new_warehouse_takes_in_the_files_of_an_old_one(tmp_path: Path) -> None:
    """Rows, sums, heads and gaps are those that were; batches that are in files are known, and not taken twice."""
    warehouse = Warehouse(tmp_path)
    lossy = [batch for batch in day(0) if batch.n not in (5, 6, 40)]
    put(warehouse, lossy)
    warehouse.roll_up(START_NS + DAY_NS + HOUR_NS)
    warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    before, lost = content(warehouse), warehouse.cursor.samples_lost
    warehouse.close()
    (tmp_path / FILE).unlink()
    again = Warehouse(tmp_path)
    assert content(again) == before
    assert again.cursor.samples_lost == lost == 3
    book = put(again, lossy)
    assert book.repeated == len(lossy)
    assert content(again) == before
    again.close()


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    """The rest is loaded."""
    warehouse = Warehouse(tmp_path)
    put(warehouse, day(0))
    warehouse.roll_up(START_NS + DAY_NS + HOUR_NS)
    warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    warehouse.close()
    (tmp_path / FILE).unlink()
    (tmp_path / FOLDER / "uses-2026-11-20.parquet").unlink()
    again = Warehouse(tmp_path)
    assert again.files_missing == ["uses-2026-11-20.parquet"]
    assert again.rows("SELECT count(*) FROM samples") == [(144 * 3,)]
    again.close()
    (tmp_path / FILE).unlink()
    (tmp_path / FOLDER / MANIFEST).write_text("{")
    with pytest.raises(WarehouseRefused, match=r"manifest\.json.*move it away"):
        Warehouse(tmp_path)


def test_everything_can_be_dropped_and_made_again(tmp_path: Path) -> None:
    """From stored events, samples and files: equal, whether nothing or something old was dropped before."""
    warehouse = Warehouse(tmp_path)
    store(warehouse, morning())
    for number in (0, 1):
        put(warehouse, day(number, first=1 + 144 * number))
    warehouse.roll_up(START_NS + 2 * DAY_NS + HOUR_NS)
    warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    for before_ns in (0, START_NS + DAY_NS + HOUR_NS):
        warehouse.drop_samples(Retention(before_ns), now_ns=START_NS + 2 * DAY_NS)
        before = content(warehouse), content(warehouse, FOLDED)
        warehouse.rows(
            "UPDATE rolled.minutes SET samples = samples + 1 WHERE slot >= ?",
            [(START_NS + DAY_NS + 2 * HOUR_NS) // (60 * 10**9)],
        )
        assert warehouse.rebuild() == 46
        refold(warehouse)
        assert (content(warehouse), content(warehouse, FOLDED)) == before
    warehouse.close()


async def test_the_service_makes_a_damaged_warehouse_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events from the log, samples from files and from what the stream still holds: all rows are there again, and it says so."""
    hub, bus = await world(morning())
    batches = [*day(0), *day(1, first=145)]
    for batch in batches:
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), encode_samples(batch))

    async def stored() -> bool:
        rows = (await ask(bus, "sql", query="SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM events)"))[
            "rows"
        ]
        return rows == [[3 * len(batches), 46]]

    async with running(hub.connect(), tmp_path):
        await eventually_async(stored, not_yet=(Exception,))
    warehouse = Warehouse(tmp_path)
    warehouse.roll_up(START_NS + 3 * DAY_NS)
    warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    before, events = content(warehouse), actual(warehouse)
    warehouse.close()
    spoil(tmp_path / FILE)
    capsys.readouterr()
    for _ in range(2):  # damage may show only when something is read: then it is set aside at the next start
        service = Telemetry(hub.connect(), tmp_path, kept=EVER)
        running_now = asyncio.create_task(service.run())
        await eventually_async(lambda task=running_now: ended_or(task, stored), not_yet=(Exception,))
        if running_now.done():
            assert running_now.result() == 1
            continue
        damaged = (await ask(bus, "warehouse"))["damage"]
        await service.stop()
        assert await running_now == 0
        break
    else:
        pytest.fail("it did not come back")
    assert "set aside as warehouse.duckdb.damaged-1" in damaged
    assert "warehouse_made_anew" in "".join(capsys.readouterr())
    again = Warehouse(tmp_path)
    again.roll_up(START_NS + 3 * DAY_NS)
    assert actual(again) == events
    assert content(again) == before
    again.close()


async def test_damage_read_at_the_start_is_set_aside_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read of a table may be the service's own, before it follows the log: it must not end the same way every
    time."""
    hub, bus = await world(morning())

    async def stored() -> bool:
        return (await ask(bus, "sql", query="SELECT count(*) FROM events"))["rows"] == [[46]]

    async with running(hub.connect(), tmp_path):
        await eventually_async(stored, not_yet=(Exception,))

    def unreadable(*_: object) -> None:
        raise duckdb.Error(
            "Corrupt database file: computed checksum 7 does not match stored checksum 9 in block at 4096"
        )

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "sample_heads", unreadable)
        assert await asyncio.wait_for(Telemetry(hub.connect(), tmp_path, kept=EVER).run(), 60) == 1
    async with running(hub.connect(), tmp_path):
        await eventually_async(stored, not_yet=(Exception,))
        damaged = (await ask(bus, "warehouse"))["damage"]
    assert "computed checksum 7" in damaged and "set aside as warehouse.duckdb.damaged-1" in damaged


async def ended_or(task: asyncio.Task[int], holds: Callable[[], Awaitable[bool]]) -> bool:
    return task.done() or await holds()


def test_a_copy_of_a_folder_is_a_whole_warehouse(tmp_path: Path) -> None:
    """Moved elsewhere, its views find the files there."""
    warehouse = Warehouse(tmp_path / "old")
    put(warehouse, day(0))
    warehouse.roll_up(START_NS + DAY_NS + HOUR_NS)
    warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
    before = content(warehouse)
    warehouse.close()
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = Warehouse(tmp_path / "new")
    assert content(moved) == before
    moved.close()
