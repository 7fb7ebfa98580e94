"""Sums of samples per minute and hour: what the samples say, whenever they come, and after the samples are gone."""

import random
from collections import defaultdict
from pathlib import Path

import pytest

from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import Retention, Warehouse

START = 490_000 * HOUR_NS  # an hour's start
SUMS = "slot, node, uuid, run, samples, busy_samples, utilization_pct_sum, memory_used_mib_max, power_mw_sum"


def measured(seconds: range, chance: random.Random) -> list[SampleBatch]:
    """Build the samples of one node with two GPUs, every ten seconds; its run changes after an hour."""
    return [
        SampleBatch(
            node="n1",
            incarnation="a",
            n=n,
            at_ns=START + second * 10**9,
            gpus=[
                GpuSample(
                    uuid=f"g{i}",
                    run="7.1" if second < 3600 else "8.1",
                    utilization_pct=chance.choice([0, 0, 40, 90]),
                    memory_used_mib=chance.randrange(80_000),
                    power_mw=100 * chance.randrange(7000),
                )
                for i in range(2)
            ],
        )
        for n, second in enumerate(seconds, 1)
    ]


def plain(batches: list[SampleBatch], slot_ns: int) -> list[tuple]:
    """The sums by a plain loop."""
    of: dict[tuple, list[GpuSample]] = defaultdict(list)
    for batch in batches:
        for gpu in batch.gpus:
            of[batch.at_ns // slot_ns, batch.node, gpu.uuid, gpu.run].append(gpu)
    return sorted(
        (
            *key,
            len(gpus),
            sum((gpu.utilization_pct or 0) > 0 for gpu in gpus),
            sum(gpu.utilization_pct or 0 for gpu in gpus),
            max(gpu.memory_used_mib for gpu in gpus),
            sum(gpu.power_mw or 0 for gpu in gpus),
        )
        for key, gpus in of.items()
    )


def put(warehouse: Warehouse, batches: list[SampleBatch]) -> None:
    book = SampleBook({})
    for batch in batches:
        book.add(columns_of(batch))
    warehouse.store([], {}, "a log", book.take())


def sums(warehouse: Warehouse, what: str) -> list[tuple]:
    return warehouse.rows(f"SELECT {SUMS} FROM rolled.{what} ORDER BY ALL")


def test_sums_are_those_of_the_samples(tmp_path: Path) -> None:
    """In pieces of any size, rolled up at any moment in between, over a new start: a plain loop's sums, each once."""
    chance = random.Random(3)
    batches = measured(range(0, 7500, 10), chance)
    warehouse, begin = Warehouse(tmp_path), 0
    while begin < len(batches):
        end = begin + chance.randint(1, 120)
        put(warehouse, batches[begin:end])
        if chance.random() < 0.7:
            warehouse.roll_up(batches[min(end, len(batches)) - 1].at_ns)
        if chance.random() < 0.2:
            warehouse.close()
            warehouse = Warehouse(tmp_path)
        begin = end
    warehouse.roll_up(START + 3 * HOUR_NS + MINUTE_NS)
    assert sums(warehouse, "minutes") == plain(batches, MINUTE_NS)
    assert sums(warehouse, "hours") == plain(batches, HOUR_NS)
    assert warehouse.rows("SELECT count(*) FROM rolled.stale_minutes") == [(0,)]
    mean = warehouse.rows("SELECT sum(samples * utilization_pct), sum(samples * busy_pct) FROM samples_1h")[0]
    raw = warehouse.rows("SELECT sum(utilization_pct), 100 * count(*) FILTER (utilization_pct > 0) FROM samples")[0]
    assert mean == pytest.approx(raw)
    warehouse.close()


def test_a_minute_is_summed_when_it_is_over_and_again_with_late_samples(tmp_path: Path) -> None:
    """The present minute and one of a clock that runs ahead are not summed; a late batch is added to the sum."""
    warehouse = Warehouse(tmp_path)
    batches = measured(range(0, 180, 10), random.Random(1))
    early, late = [batch for batch in batches if batch.n != 3], [batch for batch in batches if batch.n == 3]
    put(warehouse, early)
    warehouse.roll_up(START + 2 * MINUTE_NS + 10 * 10**9)
    done = [batch for batch in early if batch.at_ns < START + 2 * MINUTE_NS]
    assert sums(warehouse, "minutes") == plain(done, MINUTE_NS)
    put(warehouse, late)
    warehouse.roll_up(START + 3 * MINUTE_NS + 10 * 10**9)
    assert sums(warehouse, "minutes") == plain(batches, MINUTE_NS)
    ahead = SampleBatch(
        node="n2",
        incarnation="b",
        n=1,
        at_ns=START * 2,
        gpus=[GpuSample(uuid="x", utilization_pct=1, memory_used_mib=1)],
    )
    put(warehouse, [ahead])
    warehouse.roll_up(START + HOUR_NS)
    assert warehouse.rows("SELECT count(*) FROM samples_1m WHERE node = 'n2'") == [(0,)]
    assert warehouse.rows("SELECT count(*) FROM rolled.stale_minutes") == [(1,)]
    warehouse.close()


def test_sums_outlive_their_samples(tmp_path: Path) -> None:
    """Dropped samples were summed before; late ones for them change nothing; sums are removed at their own time."""
    warehouse = Warehouse(tmp_path)
    batches = measured(range(0, 7200, 10), random.Random(2))
    put(warehouse, batches)
    warehouse.drop_samples(Retention(START + 90 * MINUTE_NS))
    assert warehouse.rows("SELECT min(at_ns) FROM samples") == [(START + 90 * MINUTE_NS,)]
    before = plain([batch for batch in batches if batch.at_ns < START + 90 * MINUTE_NS], MINUTE_NS)
    assert sums(warehouse, "minutes") == before
    put(warehouse, batches[5:6])
    warehouse.roll_up(START + 3 * HOUR_NS)
    assert sums(warehouse, "minutes") == plain(batches, MINUTE_NS)
    warehouse.drop_samples(Retention(START + 90 * MINUTE_NS, START + HOUR_NS, START))
    assert sums(warehouse, "minutes") == plain(
        [batch for batch in batches if batch.at_ns >= START + HOUR_NS], MINUTE_NS
    )
    assert sums(warehouse, "hours") == plain(batches, HOUR_NS)
    warehouse.drop_samples(Retention(START + 2 * HOUR_NS, START + 2 * HOUR_NS, START + HOUR_NS))
    assert {row[0] for row in sums(warehouse, "hours")} == {START // HOUR_NS + 1}
    warehouse.close()
