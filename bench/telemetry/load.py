"""Load of samples: `python -m bench.telemetry.load --nodes 1750` publishes what so many 8-GPU nodes would report, one batch a node and second, until it is killed.

Numbers are those of the seeded model (model.py), each node at another moment of its day; with them go what each run's processes use of each GPU
that is held, and what the run uses of its node. FAIRLEAD_NATS names the server.
"""

import argparse
import asyncio
import itertools
import os
import time

import msgspec
import numpy as np
import uvloop
from numpy.typing import NDArray

from bench.telemetry.model import METRICS, SECONDS, gpu_day
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.samples import VERSION, GpuColumns, ResourceColumns, SampleColumns, UseColumns

GPUS = 8
#: Nodes whose days are drawn; the others play these at other moments.
PATTERNS = 2
STEP_S = 0.01


class Node:
    """Node that measures."""

    def __init__(self, number: int, patterns: list[tuple[NDArray[np.int64], list[list[str]]]]) -> None:
        self.name = f"n{number:04d}"
        self._incarnation = f"{number:024x}"
        self._uuids = [f"GPU-{number:08x}-4a2b-11ee-8c99-{gpu:012x}" for gpu in range(GPUS)]
        self._measured, self._runs = patterns[number % len(patterns)]
        self._second = number * 97
        self._n = 0

    def next(self) -> bytes:
        """The bytes of its next batch."""
        self._n += 1
        second, at_ns = (self._second + self._n) % SECONDS, time.time_ns()
        runs = [of[second] for of in self._runs]
        held = [gpu for gpu in range(GPUS) if runs[gpu]]
        measured = {name: column[:, second].tolist() for name, column in zip(METRICS, self._measured, strict=True)}
        columns = SampleColumns(
            v=VERSION, node=self.name, incarnation=self._incarnation, n=self._n, at_ns=at_ns - at_ns % 10**6, simulated=True,
            gpus=GpuColumns(uuid=self._uuids, run=runs, **measured),
            uses=UseColumns(
                uuid=[self._uuids[gpu] for gpu in held], run=[runs[gpu] for gpu in held], rank=0,
                memory_mib=[measured["memory_used_mib"][gpu] for gpu in held], utilization_pct=[measured["utilization_pct"][gpu] for gpu in held],
            ) if held else None,
            resources=ResourceColumns(run=[runs[held[0]]], rank=0, cpu_ms=self._n * 4000, memory_mib=9000 + self._n % 50) if held else None,
        )  # fmt: skip
        return msgspec.msgpack.encode(columns)


async def publish(count: int) -> None:
    """Publish without end, each node in its turn; a late node catches up, none is left out."""
    days = [[gpu_day(pattern * GPUS + gpu) for gpu in range(GPUS)] for pattern in range(PATTERNS)]
    patterns = [
        (np.array([[measured[name] for measured, _ in gpus] for name in METRICS]), [runs for _, runs in gpus])
        for gpus in days
    ]
    nodes = [Node(number, patterns) for number in range(count)]
    bus = await connect(os.environ["FAIRLEAD_NATS"], name="load")
    began = time.monotonic()
    for turn in itertools.count():
        node = nodes[turn % count]
        if (ahead_s := began + turn / count - time.monotonic()) > 0:
            await asyncio.sleep(max(ahead_s, STEP_S))
        await bus.publish(subjects.sample(node.name), node.next())


def main() -> None:
    """Publish until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1750)
    uvloop.run(publish(parser.parse_args().nodes))


if __name__ == "__main__":
    main()
