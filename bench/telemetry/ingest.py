"""Cost of 14,000 GPUs, sampled each second, for the telemetry service, and the delay of a sample until it is in the warehouse.

    python -m bench.telemetry.ingest [--nodes 1750] [--seconds 60]

Nodes by a seeded model (load.py) publish through a real nats-server. CPU is that of the telemetry process alone, all its threads, over
the seconds that are measured, at the rate that arrived. The baseline, in the same run: DuckDB inserts the same rows
out of a table of its own, in transactions of as many.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
import uvloop

from bench.stack import Stack
from bench.table import Row
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import BusError
from fairlead_schemas.wire import subjects
from fairlead_telemetry.warehouse.warehouse import FILE

GPUS = 8
#: Goals of the row: CPU s of telemetry per s, ms until a sample is in the warehouse.
SHARE_MAX, DELAY_MAX_MS = 1 / 3, 3000
#: Until all nodes have reported, and the first transactions are over.
WARM_UP_S = 10
STARTED_S = 120.0


class Taken(NamedTuple):
    """Measured values."""

    rows_per_second: float
    #: CPU seconds of telemetry per second of samples at the full rate.
    cpu_share: float
    delay_p50_ms: int
    delay_p99_ms: int
    rows: int
    batches_lost: int
    bytes_per_batch: float
    #: DuckDB alone: rows per CPU second, and CPU seconds per second of samples at the full rate.
    own_rows_per_second: float
    own_share: float


async def measure(nodes: int, seconds: int) -> Taken:
    """Measure on a stack of its own."""
    with Stack() as stack:
        bus = await stack.bus()
        stack.service("telemetry")
        stack.spawn("load", [sys.executable, "-m", "bench.telemetry.load", "--nodes", str(nodes)])
        deadline = time.monotonic() + STARTED_S
        while not (await bus.state(subjects.SAMPLE)).last:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no sample came: {stack.log('load')}")
            await asyncio.sleep(0.1)
        await asyncio.sleep(WARM_UP_S)
        first, began_ns, cpu_s, began = await _last(bus), time.time_ns(), stack.cpu_s("telemetry"), time.monotonic()
        await asyncio.sleep(seconds)
        last, ended_ns, cpu_s, took_s = (
            await _last(bus),
            time.time_ns(),
            stack.cpu_s("telemetry") - cpu_s,
            time.monotonic() - began,
        )
        stack.kill("load")
        await asyncio.sleep(3)
        state = await _state(bus)
        size = len((await _newest(bus)) or b"")
        await bus.close()
        stack.stop("telemetry")
        path = stack.data / "telemetry" / "telemetry" / FILE
        rate = (last - first) * GPUS / took_s
        rows, own = _counted(path, began_ns, ended_ns)
        full = nodes * GPUS
        return Taken(
            rate,
            cpu_s / took_s * full / rate,
            state.sample_delay_ms["p50"],
            state.sample_delay_ms["p99"],
            rows,
            state.samples_lost,
            size,
            own,
            full / own,
        )


async def _last(bus: NatsBus) -> int:
    return (await bus.state(subjects.SAMPLE)).last


async def _newest(bus: NatsBus) -> bytes | None:
    found = await bus.read(subjects.SAMPLE, await _last(bus))
    return found.payload if found else None


class _State(msgspec.Struct):
    samples_lost: int
    sample_delay_ms: dict[str, int]


async def _state(bus: NatsBus) -> _State:
    for _ in range(20):
        try:
            return msgspec.json.decode(
                await bus.request(subjects.rpc("telemetry", "warehouse"), b"{}", timeout_s=5), type=_State
            )
        except BusError:
            await asyncio.sleep(0.5)
    raise RuntimeError("telemetry does not answer")


def _counted(path: Path, began_ns: int, ended_ns: int) -> tuple[int, float]:
    """Rows of that time, and how many of them DuckDB inserts per CPU second out of a table of its own."""
    with duckdb.connect(str(path), config={"threads": 1}) as db:
        window = f"epoch_ns(time) >= {began_ns} AND epoch_ns(time) < {ended_ns}"
        row = db.execute(f"SELECT count(*) FROM measured.samples WHERE {window}").fetchone()
        db.execute(f"CREATE TEMP TABLE source AS FROM measured.samples WHERE {window} LIMIT 560000")
        db.execute("CREATE TABLE target AS FROM source LIMIT 0")
        held = db.execute("SELECT count(*) FROM source").fetchone()
        assert row is not None
        assert held is not None
        began = time.process_time()
        for start in range(0, held[0], 14_000):
            db.execute(f"INSERT INTO target FROM source WHERE rowid >= {start} AND rowid < {start + 14_000}")
        return row[0], held[0] / (time.process_time() - began)


async def row(nodes: int = 1750, seconds: int = 60) -> Row:
    """Measure the row of `python -m bench`: CPU of telemetry alone."""
    found = await measure(nodes, seconds)
    return Row(
        f"samples of {nodes * GPUS:,} GPUs per second, with uses and resources of runs, through NATS into the warehouse: CPU s of telemetry per second, delay",
        f"{found.cpu_share:.2f} s; p50 {found.delay_p50_ms / 1000:.2f} s, p99 {found.delay_p99_ms / 1000:.2f} s; "
        f"{found.batches_lost} batches lost; {found.bytes_per_batch:.0f} bytes a batch of {GPUS} GPUs",
        f"≤ {SHARE_MAX:.2f} s, p99 ≤ {DELAY_MAX_MS / 1000:g} s",
        found.cpu_share <= SHARE_MAX and found.delay_p99_ms <= DELAY_MAX_MS and not found.batches_lost,
        f"DuckDB inserting the same samples out of a table of its own: {found.own_share:.2f} s ({found.own_rows_per_second:,.0f} rows/s)",
    )


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1750)
    parser.add_argument("--seconds", type=int, default=60)
    found = parser.parse_args()
    print(json.dumps(uvloop.run(measure(found.nodes, found.seconds))._asdict()))


if __name__ == "__main__":
    main()
