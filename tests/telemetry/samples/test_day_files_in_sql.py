"""People's SQL sees days that have left for files, through the views and in no other way."""

from pathlib import Path

import msgspec
import pytest

from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS
from fairlead_telemetry.samples.day_files import FOLDER
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.sql.query_pool import QueryPool
from fairlead_telemetry.warehouse.warehouse import Retention, Warehouse
from tests.kit.eventually import eventually_async
from tests.telemetry.samples.nodes import START_NS, day, put
from tests.telemetry.sql.asking import LONG_S

NOW_NS = START_NS + DAY_NS + SETTLE_NS


class Asked:
    """A warehouse of two days, one of which is exported, and its client."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = Warehouse(directory)
        for number in (0, 1):
            put(self.warehouse, day(number, first=1 + 144 * number))
        self.warehouse.roll_up(NOW_NS + DAY_NS)
        self.warehouse.file_samples(NOW_NS)
        self.desk = QueryPool(
            directory, copy_to=self._copy, version=lambda: self.warehouse.version, deadline_s=LONG_S, wait_s=LONG_S
        )

    async def _copy(self, target: Path) -> None:
        self.warehouse.copy_to(target)

    async def ask(self, query: str) -> dict:
        asked = {"caller": ANONYMOUS_ADMIN, "query": query}
        return msgspec.json.decode(await self.desk.ask(msgspec.json.encode(asked)))

    async def close(self) -> None:
        await self.desk.close()
        self.warehouse.close()


async def test_both_are_one(tmp_path: Path) -> None:
    """Rows of the file and of the table; a day that was dropped is gone at once, though its file is there a while."""
    asked = Asked(tmp_path)
    query = (
        f"SELECT count(*), count(DISTINCT time::DATE), sum(at_ns // 86400000000000 - {START_NS // DAY_NS}) FROM samples"
    )
    assert (await asked.ask(query))["rows"] == [[2 * 144 * 3, 2, 144 * 3]]
    assert (await asked.ask("SELECT (SELECT count(*) FROM uses), (SELECT count(*) FROM resources)"))["rows"] == [
        [288, 288]
    ]
    asked.warehouse.drop_samples(Retention(START_NS + DAY_NS), now_ns=NOW_NS + HOUR_NS)

    async def dropped() -> bool:  # in the next copy, which is made when the old one is some seconds old
        return (await asked.ask(query))["rows"] == [[144 * 3, 1, 144 * 3]]

    await eventually_async(dropped)
    await asked.close()


@pytest.mark.parametrize(
    "source",
    [
        "'{file}'",
        "read_parquet('{file}')",
        "'{folder}/*.parquet'",
        '"{file}"',
        "glob('{folder}/*')",
        "'{folder}/manifest.json'",
        "read_text('{folder}/manifest.json')",
        "'/etc/passwd'",
        "read_csv('/etc/passwd')",
        "parquet_metadata('{file}')",
    ],
)
async def test_files_are_read_through_the_views_alone(tmp_path: Path, source: str) -> None:
    """Not even those that the views read."""
    asked = Asked(tmp_path)
    folder = tmp_path / FOLDER
    answer = await asked.ask(
        "SELECT * FROM " + source.format(file=folder / "samples-2026-11-20.parquet", folder=folder)
    )
    assert answer["error"]["code"] in ("forbidden", "unknown_name", "query_failed")
    assert (await asked.ask("SELECT count(*) FROM samples"))["rows"] == [[2 * 144 * 3]]
    await asked.close()
