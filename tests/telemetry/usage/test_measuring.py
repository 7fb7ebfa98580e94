"""A month's GPU time by samples: of the measured part only, with its coverage."""

from pathlib import Path

import pytest

from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.usage import usage_store
from fairlead_telemetry.usage.prices import NO_PRICES
from fairlead_telemetry.usage.statement import month_named
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, placed, started, submitted

SECOND = 1000 * 10**9  # milli-GPU times ns of one GPU


def measured_hour(directory: Path) -> Warehouse:
    """Job 1 holds two GPUs for an hour from 00:00:30. Of the first GPU there are samples in the first ten minutes (at 50 %),
    of the second one in the minute in which it begins (at 100 %); and some under another run, which are not its own."""
    story = Story()
    story.at(0, joined("n1"), submitted("1", gpus=2))
    story.at(30, placed("1", n1=2), started("1"))
    story.at(3630, ended("1", released=("n1",)))
    warehouse = Warehouse(directory)
    store(warehouse, story)
    book = SampleBook({})
    for n, second in enumerate(range(30, 600, 10), 1):
        gpus = [GpuSample(uuid="GPU-n1-0", utilization_pct=40 + 20 * (n % 2), memory_used_mib=1, run="1.1")]
        if second < 60:
            gpus.append(GpuSample(uuid="GPU-n1-1", utilization_pct=100, memory_used_mib=1, run="1.1"))
        else:
            gpus.append(GpuSample(uuid="GPU-n1-1", utilization_pct=100, memory_used_mib=1, run="7.1"))
        batch = SampleBatch(node="n1", incarnation="a", n=n, at_ns=START_NS + second * 10**9, gpus=gpus)
        book.add(columns_of(batch))
    warehouse.store([], warehouse.cursor.heads, "a log", book.take())
    warehouse.roll_up(START_NS + 10**13)
    return warehouse


def test_used_is_of_what_was_measured(tmp_path: Path) -> None:
    """The minute in which the job begins counts from there on; held and charged are what events say."""
    warehouse = measured_hour(tmp_path)
    usage = UsageStore(warehouse)
    usage.catch_up()
    january = month_named("2026-01")
    assert january is not None
    for by in ("user", "job", "model", "attempt"):
        bill = usage.statement(january, by, NO_PRICES)
        [line] = bill.lines
        assert line.held == 2 * 3600 * SECOND
        assert line.measured == bill.measured == (570 + 30) * SECOND
        # 30 seconds at a third of 40, 60 and 60; nine minutes at 50; the other GPU's 30 seconds in full.
        assert line.used is not None
        assert abs(line.used - (30 * 160 // 3 * SECOND // 100 + 540 * SECOND // 2 + 30 * SECOND)) < SECOND
        assert line.used == bill.used
    empty = month_named("2026-02")
    assert empty is not None
    bill = usage.statement(empty, "user", NO_PRICES)
    assert (bill.lines, bill.measured, bill.used) == ([], 0, 0)
    warehouse.close()


def test_a_month_with_too_many_minutes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value is unknown, which is not zero."""
    monkeypatch.setattr(usage_store, "MINUTES_MAX", 3)
    warehouse = measured_hour(tmp_path)
    usage = UsageStore(warehouse)
    usage.catch_up()
    january = month_named("2026-01")
    assert january is not None
    bill = usage.statement(january, "user", NO_PRICES)
    assert (bill.measured, bill.used, bill.lines[0].used) == (None, None, None)
    warehouse.close()
