"""Longest delay of one second's samples of 14,000 GPUs while the warehouse takes its write-ahead log in.

    python -m bench.telemetry.stalls [--nodes 1750] [--seconds 60]

Batches by the seeded model (load.py), stored a second's worth at a time, without a bus and as fast as it goes. CPU is that of storing and
settling; under load a wall clock says more about the others. The baseline, in the same run: DuckDB's own checkpoints, at the same
size of the log.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.telemetry.load import GPUS, PATTERNS, Node
from bench.telemetry.model import METRICS, gpu_day
from fairlead_schemas.wire.samples import decode_columns
from fairlead_telemetry.samples.intake import SampleBook, SampleIntake
from fairlead_telemetry.warehouse.database import SETTLE_BYTES
from fairlead_telemetry.warehouse.warehouse import Warehouse


class Held(NamedTuple):
    """CPU milliseconds per second of samples."""

    mean_ms: float
    longest_ms: float


def measure(nodes: int, seconds: int) -> dict[str, Held]:
    """{way: what storing costs}; "settled" is ours."""
    intakes = _intakes(nodes, seconds)
    return {way: _stored(intakes, by_itself=way == "by_itself") for way in ("settled", "by_itself")}


def _intakes(nodes: int, seconds: int) -> list[SampleIntake]:
    days = [[gpu_day(pattern * GPUS + gpu) for gpu in range(GPUS)] for pattern in range(PATTERNS)]
    patterns = [
        (np.array([[measured[name] for measured, _ in gpus] for name in METRICS]), [runs for _, runs in gpus])
        for gpus in days
    ]
    telling, book, found = [Node(number, patterns) for number in range(nodes)], SampleBook({}), list[SampleIntake]()
    for _ in range(seconds):
        for node in telling:
            book.add(decode_columns(node.next()))
        found.append(book.take())
    return found


def _stored(intakes: Sequence[SampleIntake], *, by_itself: bool) -> Held:
    took: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        warehouse = Warehouse(Path(directory))
        if by_itself:
            warehouse.rows("SET max_vacuum_tasks = 100")
            warehouse.rows(f"SET wal_autocheckpoint = '{SETTLE_BYTES}B'")
        for intake in intakes:
            began = time.thread_time()
            warehouse.store([], {}, "bench", intake)
            if not by_itself:
                warehouse.settle()
            took.append((time.thread_time() - began) * 1000)
        warehouse.close()
    return Held(round(sum(took) / len(took), 1), round(max(took), 1))


def main() -> None:
    """Print one JSON line per way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1750)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    for way, held in measure(options.nodes, options.seconds).items():
        print(
            json.dumps({"way": way, "gpus": options.nodes * GPUS, "seconds": options.seconds, **held._asdict()}),
            flush=True,
        )


if __name__ == "__main__":
    main()
