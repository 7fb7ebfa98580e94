"""Prices that were set in the log: statements, SQL and the recount count by them, with and without the file's."""

from pathlib import Path
from random import Random

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_telemetry.usage.prices import NO_PRICES, read_prices
from fairlead_telemetry.usage.usage_store import UsageStore, refold
from tests.telemetry.story import START_NS, Story, of_story
from tests.telemetry.usage.logs import caught_up, costs_that_differ, disagreements, statements, warehouse_of
from tests.telemetry.usage.winter import DAY, HOUR, PRICES, winter

NO_FILE = "model,per_gpu_hour,currency,valid_from\n"


def priced(*prices: tuple[str, int, str, int]) -> Story:
    """The winter, in which these prices (model, millionths, currency, second from which it holds) were set at its end."""
    story = winter()
    for model, micro, currency, second in prices:
        price = ev.PriceSet(
            cause="cmd:p", model=model, micro=micro, currency=currency, from_ns=START_NS + second * 10**9, by="boss"
        )
        story.at(31 * DAY + 6 * HOUR, price)
    return story


def test_a_price_that_was_set_holds_from_its_moment_on(tmp_path: Path) -> None:
    """Job 2 runs three hours before and one hour after it; the later of two of one moment holds."""
    change = 10 * DAY
    log = of_story(
        priced(
            ("NVIDIA A100", 1_000_000, "EUR", 0),
            ("NVIDIA A100", 7_000_000, "EUR", change),
            ("NVIDIA A100", 4_000_000, "EUR", change),
        )
    )
    warehouse = warehouse_of(tmp_path, log)
    usage = caught_up(warehouse)
    [january, *_] = statements(usage, ["2026-01"], NO_FILE)
    assert [(line.key, line.per_gpu_hour, line.gpu_hours, line.amount) for line in january.lines] == [
        ("ada", "1", 5.0, "5.00"),
        ("ada", "4", 1.0, "4.00"),
        ("bob", "4", 2.0, "8.00"),
    ]
    usage.set_prices(NO_PRICES)
    assert warehouse.rows("SELECT per_gpu_hour, valid_until IS NULL FROM prices ORDER BY valid_from") == [
        (1, False),
        (4, True),
    ]
    warehouse.close()


@pytest.mark.parametrize("file", [NO_FILE, PRICES])
@pytest.mark.parametrize("seed", range(12))
def test_statements_sql_and_the_recount_agree(tmp_path: Path, file: str, seed: int) -> None:
    """Over random prices of models and of *, some of one moment, next to those of the file; also after everything was folded again."""
    rng = Random(seed)
    moments = [0, 10 * DAY, *(rng.randrange(33 * DAY) for _ in range(3))]
    prices = [
        (rng.choice(("NVIDIA A100", "*")), rng.randrange(10) * 500_000, rng.choice(("EUR", "USD")), rng.choice(moments))
        for _ in range(rng.randrange(1, 6))
    ]
    log = of_story(priced(*prices))
    warehouse = warehouse_of(tmp_path, log)
    usage = caught_up(warehouse, step=7)
    told = statements(usage, ["2026-01", "2026-02"], file)
    assert disagreements(log, told, file) == []
    assert costs_that_differ(warehouse, usage, told, file) == []
    assert any(line.per_gpu_hour for each in told for line in each.lines)
    refold(warehouse)
    again = UsageStore(warehouse)
    assert statements(again, ["2026-01", "2026-02"], file) == told
    warehouse.close()


def test_a_file_and_the_log_are_one_table() -> None:
    """The later of one moment is that of the log, and a model with a price of its own takes none of *."""
    both = read_prices(PRICES).extended([("NVIDIA A100", 9_000_000, "EUR", 0), ("NVIDIA H100", 1, "EUR", 5)])
    assert [price.micro for price in [both.at("NVIDIA A100", 1), both.at("NVIDIA H100", 6)] if price] == [9_000_000, 1]
    assert both.at("NVIDIA H100", 4) is None
