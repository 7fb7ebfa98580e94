"""Nodes that measure, without a bus: batches of some days, and warehouses that take them."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse, SampleBatch, columns_of
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import Warehouse

#: Midnight, UTC: 2026-11-20.
START_NS = 20_777 * DAY_NS


def day(
    number: int, *, node: str = "n1", every_s: int = 600, seed: int = 1, first: int = 1, incarnation: str = "a"
) -> Iterator[SampleBatch]:
    """What a node of two GPUs and a MIG instance says during a day: something of every table, some of it not known."""
    chance = random.Random(f"{seed}{node}{number}")
    for n, second in enumerate(range(0, 86_400, every_s), first):
        gpus = [
            GpuSample(
                uuid=f"GPU-{node}-{i}", run="7.1" if i else "", utilization_pct=chance.choice([0, 50, None]),
                memory_used_mib=chance.randrange(80_000), power_mw=chance.randrange(700_000), sm_permille=chance.choice([None, 400]),
                ecc_correctable=n, ecc_uncorrectable=0, slowdowns=(None, 0, 64)[n % 3], xid=63 * i, xids=i,
            )
            for i in range(2)
        ]  # fmt: skip
        gpus.append(GpuSample(uuid=f"MIG-{node}", parent=f"GPU-{node}-0", run="8.1", memory_used_mib=5))
        yield SampleBatch(
            node=node,
            incarnation=incarnation,
            n=n,
            at_ns=START_NS + number * DAY_NS + second * 10**9,
            gpus=gpus,
            simulated=True,
            uses=[RunUse(uuid=f"GPU-{node}-1", run="7.1", memory_mib=n, utilization_pct=9)],
            resources=[RunResources(run="7.1", cpu_ms=n, memory_mib=4, terminal_ns=None if n % 2 else START_NS)],
        )


def put(warehouse: Warehouse, batches: Iterable[SampleBatch], book: SampleBook | None = None) -> SampleBook:
    """Store them in one transaction."""
    book = book or SampleBook(warehouse.sample_heads())
    for batch in batches:
        book.add(columns_of(batch))
    warehouse.store([], {}, "a log", book.take())
    return book


TABLES = (
    "samples",
    "uses",
    "resources",
    "sample_heads",
    "sample_gaps",
    "rolled.minutes",
    "rolled.hours",
    "samples_1m",
    "samples_1h",
)


def content(warehouse: Warehouse, tables: Iterable[str] = TABLES) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, in one order."""
    return {name: warehouse.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in tables}
