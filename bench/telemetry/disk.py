"""Bytes of a GPU sample of 15 metrics on disk once its day is over.

    python -m bench.telemetry.disk [--gpus 16]

A day of GPUs by the seeded model (model.py), a sample per second, through the warehouse's own insertion and its own filing. Baseline of the
same run: the same rows in DuckDB's own file, checkpointed; and as raw numbers.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from bench.table import Row
from bench.telemetry.model import METRICS, SECONDS, gpu_day
from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.warehouse.warehouse import FILE, Warehouse

START_NS = 20_777 * DAY_NS
#: Goal of the row.
BYTES_MAX = 12.0


class OnDisk(NamedTuple):
    """Measured values; bytes are per sample."""

    samples: int
    parquet_bytes: float
    duckdb_bytes: float
    raw_bytes: float
    #: CPU seconds of writing the day's files.
    filing_cpu_s: float
    by_column: dict[str, float]


def measure(gpus: int) -> OnDisk:
    """Measure in a directory of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        warehouse = Warehouse(directory)
        for number in range(gpus):
            _insert(warehouse, number)
        warehouse.rows("CHECKPOINT")
        stored = (directory / FILE).stat().st_size
        warehouse.roll_up(START_NS + DAY_NS + SETTLE_NS)
        began = time.process_time()
        assert warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS)
        took = time.process_time() - began
        (file,) = (each for each in warehouse.measured.files() if each.kind == "samples")
        path = warehouse.measured.folder / file.name
        sizes = duckdb.execute(
            f"SELECT path_in_schema, sum(total_compressed_size) FROM parquet_metadata('{path}') GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
        warehouse.close()
        assert file.rows == gpus * SECONDS
        raw = len(METRICS) * 4 + 8 + 8 + 1  # 15 metrics (4 bytes), time, GPU and run as numbers, a flag
        return OnDisk(
            file.rows,
            file.bytes / file.rows,
            stored / file.rows,
            raw,
            took,
            {name: round(size / file.rows, 3) for name, size in sizes if size > file.rows // 1000},
        )


def _insert(warehouse: Warehouse, number: int) -> None:
    """A day of one GPU; its node's clock is some milliseconds off each second."""
    columns, runs = gpu_day(number)
    jitter = np.random.default_rng(number // 8).integers(0, 4, SECONDS)
    times = START_NS // 10**6 + np.arange(SECONDS) * 1000 + jitter
    columns = {
        "time": times.astype("datetime64[ms]"), "n": np.arange(1, SECONDS + 1),
        **{name: np.full(SECONDS, text, dtype=np.object_) for name, text in (
            ("node", f"n{number // 8:04d}"), ("incarnation", f"{number // 8:024x}"), ("uuid", f"GPU-{number:08x}-4a2b-11ee-8c99-0242ac120002"),
            ("parent", ""),
        )},
        "run": np.array(runs, dtype=np.object_), "simulated": np.full(SECONDS, fill_value=True), **columns,
    }  # fmt: skip
    warehouse.measured.insert_arrays("samples", columns)


def row() -> Row:
    """Measure the row of `python -m bench`: a day by the model."""
    found = measure(16)
    return Row(
        "bytes on disk per GPU sample of 15 metrics, once its day is in Parquet (a day of 16 GPUs by the seeded model)",
        f"{found.parquet_bytes:.1f} ({found.filing_cpu_s / found.samples * 1e6:.1f} µs of CPU)",
        f"≤ {BYTES_MAX:g}",
        found.parquet_bytes <= BYTES_MAX,
        f"the same rows in DuckDB's own file: {found.duckdb_bytes:.1f}; as plain numbers: {found.raw_bytes:.0f}",
    )


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=16)
    print(json.dumps(measure(parser.parse_args().gpus)._asdict()))


if __name__ == "__main__":
    main()
