"""The verb `usage` on a bus: its answers, its refusals, and its continuation after a restart."""

from pathlib import Path

import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_telemetry.queries.usage import price_file
from fairlead_telemetry.schema.usage import GPU_USAGE
from fairlead_telemetry.service import Telemetry
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.service_on_bus import ask, reaches, running, world
from tests.telemetry.story import START_NS
from tests.telemetry.usage.winter import DAY, HOUR, PRICES, winter


async def test_a_statement_is_answered_and_refusals_name_what_was_expected(tmp_path: Path) -> None:
    """The month that it is, another one; a month or a word that is none."""
    hub, bus = await world(winter())
    prices = tmp_path / "prices.csv"
    prices.write_text(PRICES)
    service = Telemetry(hub.connect(), tmp_path, prices=prices, clock=lambda: START_NS + (31 * DAY + 6 * HOUR) * 10**9)
    async with running(hub.connect(), tmp_path, service):
        await reaches(bus, len(winter().commits))
        now = await ask(bus, "usage")
        assert (now["month"], now["by"], now["is_final"], now["gpu_hours"]) == ("2026-02", "user", False, 4.0)
        assert now["estimate"]["gpu_hours"] == 5.0  # job 4 has held a GPU for an hour since the log's newest commit
        january = await ask(bus, "usage", month="2026-01", by="queue")
        assert [(line["key"], line["amount"]) for line in january["lines"]] == [
            ("research", "3.00"),
            ("research", "5.00"),
            ("vision", "4.50"),
            ("vision", "2.50"),
        ]
        for request, code, told in (
            ({"month": "2026-13"}, "bad_request", "month: expected a month such as 2026-11"),
            ({"to_ns": 7}, "bad_request", "from: expected a begin"),
            ({"from_ns": 7, "month": "2026-01"}, "bad_request", "from: expected a begin, and no month"),
            ({"from_ns": 8, "to_ns": 7}, "bad_request", "to: expected an end after the begin, found 1970-01-01"),
            ({"from_ns": 1, "to_ns": 2**63 - 1}, "bad_request", "to: expected an end after the begin"),
            ({"by": "colour"}, "bad_request", "Invalid enum value 'colour'"),
            ({"of": "ada"}, "bad_request", "Object contains unknown field `of`"),
        ):
            error = (await ask(bus, "usage", **request))["error"]
            assert (error["code"], told in error["message"]) == (code, True)
        assert (await ask(bus, "sql", query="SELECT count(*) FROM gpu_usage"))["rows"] == [[4]]
        assert "gpu_usage: Who had which GPUs" in (await ask(bus, "tables"))["text"]
        columns = (await ask(bus, "sql", query="DESCRIBE gpu_usage"))["rows"]
        assert [tuple(row[:2]) for row in columns] == [(column.name, column.type) for column in GPU_USAGE.columns]
        since = await ask(bus, "usage", from_ns=START_NS + 31 * DAY * 10**9)
        assert (since["gpu_hours"], since["estimate"]["gpu_hours"]) == (
            4.0,
            5.0,
        )  # up to now, as the month that it is in
        assert since["month"].startswith("2026-02-01T00:00:00Z/2026-02-01T06:00:00")
        prices.write_text("model\n")
        assert (await ask(bus, "usage"))["error"]["code"] == "bad_prices"


async def test_the_next_start_has_nothing_to_fold_again(tmp_path: Path) -> None:
    """The memory is written when the service stops."""
    hub, bus = await world(winter())
    async with running(hub.connect(), tmp_path):
        await reaches(bus, len(winter().commits))
        await ask(bus, "usage")
    warehouse = Warehouse(tmp_path)
    assert warehouse.rows("SELECT sequence FROM usage_meter") == [(len(winter().commits),)]
    warehouse.close()


def test_a_setting_that_names_no_price_table_is_refused_at_the_start(tmp_path: Path) -> None:
    """By its name, with the file and the line."""
    (tmp_path / "prices.csv").write_text("model,per_gpu_hour,currency,valid_from\na100,x,EUR,2026-01-01\n")
    with pytest.raises(BadSetting, match=r"FAIRLEAD_PRICES: .*prices\.csv: line 2, per_gpu_hour: expected a price"):
        price_file(str(tmp_path / "prices.csv"))
    with pytest.raises(BadSetting, match=r"FAIRLEAD_PRICES: .*No such file"):
        price_file(str(tmp_path / "none.csv"))
    assert price_file("") is None
