"""Two rows of the table: samples of 14,000 GPUs into the warehouse, and what they take on disk."""

import asyncio

from bench.table import Row
from bench.telemetry import disk, ingest

NODES, SECONDS = 1750, 60
SHARE_MAX, DELAY_MAX_MS, BYTES_MAX = 1 / 3, 3000, 12.0


async def taking_in() -> Row:
    """CPU of telemetry alone."""
    found = await ingest.measure(NODES, SECONDS)
    return Row(
        f"samples of {NODES * ingest.GPUS:,} GPUs per second, with uses and resources of runs, through NATS into the warehouse: CPU s of telemetry per second, delay",
        f"{found.cpu_share:.2f} s; p50 {found.delay_p50_ms / 1000:.2f} s, p99 {found.delay_p99_ms / 1000:.2f} s; "
        f"{found.batches_lost} batches lost; {found.bytes_per_batch:.0f} bytes a batch of {ingest.GPUS} GPUs",
        f"≤ {SHARE_MAX:.2f} s, p99 ≤ {DELAY_MAX_MS / 1000:g} s",
        found.cpu_share <= SHARE_MAX and found.delay_p99_ms <= DELAY_MAX_MS and not found.batches_lost,
        f"DuckDB inserting the same samples out of a table of its own: {found.own_share:.2f} s ({found.own_rows_per_second:,.0f} rows/s)",
    )


def on_disk() -> Row:
    """Return the row of a day by the model."""
    found = disk.measure(16)
    return Row(
        "bytes on disk per GPU sample of 15 metrics, once its day is in Parquet (a day of 16 GPUs by the seeded model)",
        f"{found.parquet_bytes:.1f} ({found.filing_cpu_s / found.samples * 1e6:.1f} µs of CPU)",
        f"≤ {BYTES_MAX:g}",
        found.parquet_bytes <= BYTES_MAX,
        f"the same rows in DuckDB's own file: {found.duckdb_bytes:.1f}; as plain numbers: {found.raw_bytes:.0f}",
    )


async def all_rows() -> list[Row]:
    """Return both rows: taking samples in, and their size on disk."""
    return [await taking_in(), await asyncio.to_thread(on_disk)]
