"""Statements of a small log, read like a bill, with an independent recount."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import msgspec
import pytest

from fairlead_schemas.queries.telemetry import BYS, By, UsageStatement
from fairlead_telemetry.usage.prices import PriceTableError, read_prices
from fairlead_telemetry.usage.statement import amount, month_at, month_named, span_between
from fairlead_telemetry.usage.usage_store import UsageStore, refold
from tests.telemetry.story import START_NS, joined, of_story, submitted
from tests.telemetry.usage.logs import caught_up, costs_that_differ, disagreements, statements, warehouse_of
from tests.telemetry.usage.winter import DAY, HOUR, PRICES, winter


@pytest.mark.parametrize("by", BYS)
def test_an_estimate_counts_what_runs_up_to_now_and_leaves_the_bill_alone(tmp_path: Path, by: By) -> None:
    """Exactly the bill that the log would give if its clock stood at that moment; never less than the bill, however far the
    machine's clock is behind; and none for a month that is over."""
    warehouse = warehouse_of(tmp_path, of_story(winter()))
    usage, prices = caught_up(warehouse), read_prices(PRICES)
    february, january = month_named("2026-02"), month_named("2026-01")
    assert february and january
    bill = usage.statement(february, by, prices)
    later_ns = usage.as_of_ns + 30 * 60 * 10**9
    told = usage.statement(february, by, prices, usage.newest(later_ns))
    assert told.estimate is not None
    assert msgspec.structs.replace(told, estimate=None) == bill
    # Job 4 holds one GPU and is the only one that runs.
    assert told.estimate.charged == bill.charged + 30 * 60 * 10**12
    assert (told.estimate.at_ns, told.estimate.gpu_hours) == (later_ns, 4.5)
    assert sum(line.charged for line in told.estimate.lines) == told.estimate.charged

    behind = usage.statement(february, by, prices, usage.newest(1)).estimate
    assert behind is not None
    assert (behind.at_ns, behind.charged, behind.totals) == (bill.as_of_ns, bill.charged, bill.totals)
    assert usage.statement(january, by, prices, usage.newest(later_ns)).estimate is None

    at_later = winter()
    at_later.at(31 * DAY + 5 * HOUR + 30 * 60, joined("n4"))
    (tmp_path / "later").mkdir()
    other = warehouse_of(tmp_path / "later", of_story(at_later))
    confirmed = caught_up(other).statement(february, by, prices)
    assert [(line.key, line.model, line.charged) for line in confirmed.lines if line.charged] == [
        (line.key, line.model, line.charged) for line in told.estimate.lines if line.charged
    ]
    assert confirmed.totals == told.estimate.totals
    other.close()
    warehouse.close()


def test_an_estimate_is_never_before_the_log(tmp_path: Path) -> None:
    """The placer's clock ends the bill; a newer commit of the queue moves now, where the machine's clock is behind both."""
    story = winter()
    story.at(31 * DAY + 7 * HOUR, submitted("5", user="bob"))
    warehouse = warehouse_of(tmp_path, of_story(story))
    usage, month = caught_up(warehouse), month_named("2026-02")
    assert month
    told = usage.statement(month, "user", read_prices(PRICES), usage.newest(1))
    assert told.estimate is not None
    assert told.estimate.at_ns == warehouse.cursor.at_ns == told.as_of_ns + 2 * HOUR * 10**9
    assert told.estimate.charged == told.charged + 2 * HOUR * 10**12
    warehouse.close()


def test_a_month_by_user(tmp_path: Path) -> None:
    """A price changes in the month, a run crosses its end; each line has its part."""
    warehouse = warehouse_of(tmp_path, of_story(winter()))
    usage = caught_up(warehouse)
    [january, *_] = statements(usage, ["2026-01"], PRICES)
    assert [(line.key, line.per_gpu_hour, line.gpu_hours, line.amount) for line in january.lines] == [
        ("ada", "1.5", 5.0, "7.50"),
        ("ada", "2.5", 1.0, "2.50"),
        ("bob", "2.5", 2.0, "5.00"),
    ]
    assert (january.totals, january.gpu_hours, january.is_final, january.unpriced) == ({"EUR": "15.00"}, 8.0, True, [])
    [february, *_] = statements(usage, ["2026-02"], PRICES)
    assert [(line.key, line.runs, line.gpu_hours) for line in february.lines] == [("bob", 2, 4.0)]
    assert not february.is_final
    assert february.held == february.charged + 1000 * HOUR * 10**9  # what job 3 kept after its end
    warehouse.close()


def test_statements_of_any_time_add_up_and_are_counted_again(tmp_path: Path) -> None:
    """Random times: the recount and SQL over `gpu_usage` have the same, two that meet add up, and a whole month is that month."""
    log, rng = of_story(winter()), Random(7)
    warehouse = warehouse_of(tmp_path, log)
    usage, prices, found = caught_up(warehouse), read_prices(PRICES), list[UsageStatement]()
    overlap = """SELECT coalesce(sum(charged_milli::HUGEINT * greatest(0, least(coalesce(end_ns, $3), $2) - greatest(begin_ns, $1))), 0)::HUGEINT
        FROM gpu_usage"""
    for _ in range(40):
        moments = sorted(START_NS + rng.randrange(34 * DAY * 10**9) for _ in range(3))
        by = rng.choice(BYS)
        first, second, whole = (
            usage.statement(span_between(begin, end), by, prices)
            for begin, end in ((moments[0], moments[1]), (moments[1], moments[2]), (moments[0], moments[2]))
        )
        assert (first.charged + second.charged, first.held + second.held) == (whole.charged, whole.held)
        [(counted,)] = warehouse.rows(overlap, [moments[0], moments[2], usage.as_of_ns])
        assert counted == whole.charged
        found += [first, second, whole]
    assert sum(1 for each in found if each.lines) > 40
    assert disagreements(log, found, PRICES) == []
    month = month_named("2026-01")
    assert month is not None
    assert span_between(month.begin_ns, month.end_ns) == month
    warehouse.close()


def test_the_recount_agrees_in_every_view(tmp_path: Path) -> None:
    """And notices a nanosecond."""
    log = of_story(winter())
    warehouse = warehouse_of(tmp_path, log)
    told = statements(caught_up(warehouse), ["2025-12", "2026-01", "2026-02"], PRICES)
    assert sum(len(each.lines) for each in told) > 20
    assert disagreements(log, told, PRICES) == []
    assert disagreements(log, statements(caught_up(warehouse), ["2026-01"], PRICES), "") != []
    told[7].lines[0].charged += 1
    [found] = disagreements(log, told, PRICES)
    assert "charged is" in found
    warehouse.close()


@pytest.mark.parametrize(
    "rows", ["", "NVIDIA A100,3,EUR,2026-02-01", "*,4,EUR,2026-01-31\n*,5,USD,2026-02-01", PRICES.split("\n", 1)[1]]
)
def test_costs_in_sql_are_those_of_the_statements(tmp_path: Path, rows: str) -> None:
    """By everything, whatever has a price and from when on; and a piece that is not counted is noticed."""
    prices = f"model,per_gpu_hour,currency,valid_from\n{rows}\n"
    warehouse = warehouse_of(tmp_path, of_story(winter()))
    usage = caught_up(warehouse)
    told = statements(usage, ["2025-12", "2026-01", "2026-02"], prices)
    assert costs_that_differ(warehouse, usage, told, prices) == []
    told[7].lines[0].charged += 1
    assert len(costs_that_differ(warehouse, usage, told, prices)) == 1
    warehouse.close()


def test_a_cost_names_its_price(tmp_path: Path) -> None:
    """With the day from which it holds; a model's own price goes before that of all others."""
    warehouse = warehouse_of(tmp_path, of_story(winter()))
    usage = caught_up(warehouse)
    usage.set_prices(read_prices(PRICES))
    query = "SELECT strftime(begins_at, '%d %H:%M'), gpu_hours, price_model, strftime(price_from, '%Y-%m-%d'), per_gpu_hour::VARCHAR, currency, cost FROM costs WHERE job = '2'"
    assert warehouse.rows(f"{query} ORDER BY 1") == [
        ("10 21:00", 3.0, "NVIDIA A100", "2025-01-01", "1.500000", "EUR", 4.5),
        ("11 00:00", 1.0, "NVIDIA A100", "2026-01-11", "2.500000", "EUR", 2.5),
    ]
    assert warehouse.rows(
        "SELECT model, per_gpu_hour::DOUBLE, strftime(valid_until, '%Y-%m-%d') FROM prices ORDER BY ALL"
    ) == [
        ("*", 9.0, None),
        ("NVIDIA A100", 1.5, "2026-01-11"),
        ("NVIDIA A100", 2.5, None),
    ]
    warehouse.close()


def test_a_model_without_a_price_is_named_and_costs_nothing(tmp_path: Path) -> None:
    """Rather than an amount that is too small and looks whole."""
    warehouse = warehouse_of(tmp_path, of_story(winter()))
    prices = "model,per_gpu_hour,currency,valid_from\nH100,3,EUR,2025-01-01\n"
    [january, *_] = statements(caught_up(warehouse), ["2026-01"], prices)
    assert (january.unpriced, january.totals, january.lines[0].amount) == (["NVIDIA A100"], {}, None)
    warehouse.close()


def test_rows_equal_those_of_one_fold_whatever_the_restarts(tmp_path: Path) -> None:
    """Commit by commit, with and without a saved state, and after everything was dropped."""
    log = of_story(winter())
    warehouse = warehouse_of(tmp_path, log)
    rows = 'SELECT * FROM gpu_usage ORDER BY job, attempt, "rank"'
    caught_up(warehouse)
    whole = warehouse.rows(rows)
    assert len(whole) == 4
    usage = UsageStore(warehouse)
    usage.forget()
    assert warehouse.rows("SELECT count(*) FROM gpu_usage") == [(0,)]
    for at in range(len(log)):
        usage.catch_up(1)
        if at % 3 == 0:
            usage.save()
        if at % 2 == 0:
            usage = UsageStore(warehouse)  # as after kill -9
    while usage.catch_up(1):
        pass
    assert warehouse.rows(rows) == whole
    assert (refold(warehouse), warehouse.rows(rows)) == (4, whole)
    warehouse.close()


def test_a_step_that_fails_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, for example: the next step continues from the last state, and the rows are those of one fold."""
    log = of_story(winter())
    warehouse = warehouse_of(tmp_path / "one", log)
    caught_up(warehouse)
    whole = warehouse.rows("SELECT * FROM gpu_usage ORDER BY ALL")
    warehouse.close()
    warehouse = warehouse_of(tmp_path / "two", log)
    usage, rows = UsageStore(warehouse), warehouse.rows
    usage.catch_up(9)
    for fails_at in range(1, 8):
        left = fails_at

        def failing(query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            nonlocal left
            left -= 1
            if not left:
                raise OSError("no space left on device")
            return rows(query, parameters)

        monkeypatch.setattr(warehouse, "rows", failing)
        with contextlib.suppress(OSError):
            usage.catch_up(3)
        monkeypatch.setattr(warehouse, "rows", rows)
        with contextlib.suppress(duckdb.Error):
            rows("ROLLBACK")
    while usage.catch_up(3):
        pass
    assert warehouse.rows("SELECT * FROM gpu_usage ORDER BY ALL") == whole
    warehouse.close()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("", "line 1: expected the heads"),
        ("model,price\n", "line 1: expected the heads"),
        ("{heads}\na100,1,EUR", "line 2: expected 4 values, found 3"),
        ("{heads}\na100,1.0000001,EUR,2026-01-01", "line 2, per_gpu_hour: expected a price such as 2.49"),
        ("{heads}\na100,-1,EUR,2026-01-01", "line 2, per_gpu_hour"),
        ("{heads}\na100,nan,EUR,2026-01-01", "line 2, per_gpu_hour"),
        ("{heads}\na100,1e999,EUR,2026-01-01", "line 2, per_gpu_hour"),
        ("{heads}\na100,1,euro,2026-01-01", "line 2, currency: expected three capitals"),
        ("{heads}\na100,1,EUR,1.1.2026", "line 2, valid_from: expected a day such as 2026-01-01"),
        ("{heads}\n,1,EUR,2026-01-01", "line 2, model: expected a GPU model"),
        ("{heads}\na,1,EUR,2026-01-01\n\na,2,EUR,2026-01-01", "line 4, valid_from: a has a price from 2026-01-01 on"),
    ],
)
def test_a_price_table_with_a_mistake_is_refused_by_line_and_column(table: str, told: str) -> None:
    with pytest.raises(PriceTableError, match=told):
        read_prices(table.replace("{heads}", "model,per_gpu_hour,currency,valid_from"))


def test_amounts_are_rounded_once_half_up() -> None:
    """To hundredths of the currency."""
    gpu_hour = 1000 * 3600 * 10**9
    assert amount(gpu_hour, 2_490_000) == "2.49"
    assert amount(gpu_hour // 2, 10_000) == "0.01"  # half a hundredth
    assert amount(gpu_hour // 2 - 1, 10_000) == "0.00"


def test_months() -> None:
    """Of UTC; what is none is none."""
    january = month_named("2026-01")
    assert january is not None
    assert (january.begin_ns, month_at(START_NS)) == (START_NS, january)
    december = month_named("2025-12")
    assert december is not None
    assert december.end_ns == january.begin_ns
    assert [month_named(text) for text in ("2026-13", "2026-1", "", "26-01", "2026-01-01")] == [None] * 5
