"""Gangs on a large cluster: the time from the submit to the start of all ranks, on 5,000 played nodes of 8 GPUs in 50 racks.

Sizes are those of kube-scheduler's benchmark of topology-aware scheduling (test/integration/scheduler_perf/podgroup/tas in its
repository: 5,000 nodes in racks of 100; 3 gangs of 1,000 pods, and gangs of 4). There a rack has room for a gang of either size, since
a pod takes a tenth of a CPU and no GPU; here a rank takes a GPU, and a rack has 800. So small gangs require a rack, and large ones
prefer racks. Start at `rows`.
"""

import asyncio
import time
from typing import Any, NamedTuple

import msgspec

from bench import finishing, http
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_bus.nats.adapter import NatsBus

NODES, GPUS_PER_NODE, NODES_PER_RACK = 5_000, 8, 100
CANCELLED = b'"type":"JobCancelled"'


class Gangs(NamedTuple):
    """Load of a row: how many gangs of how many ranks, the job file's keys that set them, goal and bar in ranks per second."""

    gangs: int
    ranks: int
    #: What a rank is, and where it must be.
    placed: str
    keys: dict[str, Any]
    goal: int
    bar: int
    #: kube-scheduler's rate with gangs of this size, pods per second.
    published: str
    #: Repetitions, of which the median counts.
    rounds: int = 3

    @property
    def what(self) -> str:
        """Label of the row."""
        size = f"{NODES:,} × {GPUS_PER_NODE} hollow GPUs in {NODES // NODES_PER_RACK} racks"
        return f"gangs, {self.gangs} × {self.ranks:,} {self.placed}, {size}, submitted → all running"

    def jobs(self) -> list[dict[str, Any]]:
        """The gangs as job files. They run until they are cancelled."""
        resources = {"nvidia.com/gpu": 1, "cpu": 1, "memory": "1Gi"}
        return [{"command": ["sleep", "86400"], "resources": resources, **self.keys}] * self.gangs


#: kubernetes/kubernetes pull request 139859, comment of 2026-07-16: the scheduler alone, 3 gangs of 1,000 and 750 gangs of 4.
LARGE, SMALL = "953 to 975", "562 to 630"
LOADS = (
    Gangs(
        gangs=3,
        ranks=1_000,
        placed="ranks, each on its own node, racks preferred",
        keys={"nodes": 1_000, "topology": {"prefer": "rack"}},
        goal=10_000,
        bar=4_000,
        published=LARGE,
    ),
    Gangs(
        gangs=3,
        ranks=1_000,
        placed="ranks that share nodes, racks preferred",
        keys={"tasks": 1_000, "topology": {"prefer": "rack"}},
        goal=10_000,
        bar=4_000,
        published=LARGE,
    ),
    Gangs(
        gangs=100,
        ranks=4,
        placed="ranks, each on its own node, a rack required",
        keys={"nodes": 4, "topology": {"require": "rack"}},
        goal=15_000,
        bar=8_000,
        published=SMALL,
        rounds=10,
    ),
)


async def rows(loads: tuple[Gangs, ...] = LOADS, nodes: int = NODES) -> list[Row]:
    """Measure each load some times, and take the median."""
    with Stack() as stack:
        stack.control_plane()
        stack.hollow(nodes, GPUS_PER_NODE, nodes_per_rack=NODES_PER_RACK)
        stack.wait_nodes(nodes)
        bus = await stack.bus()
        idle = stack.cpu_meter().idle()  # so many nodes send heartbeats all the time
        found = [await _row(stack, bus, load, idle) for load in loads]
        await bus.close()
    return found


async def _row(stack: Stack, bus: NatsBus, load: Gangs, idle: dict[str, float]) -> Row:
    await _round(stack, bus, load)  # the first of a kind also builds what the later ones find
    meter = stack.cpu_meter(idle)
    took_s = percentile([await _round(stack, bus, load) for _ in range(load.rounds)], 0.5)
    ranks = load.gangs * load.ranks
    cpu = meter.per_job(ranks * load.rounds)
    rate = ranks / took_s
    return Row(
        load.what,
        f"{rate:,.0f} ranks/s",
        f"≥ {load.goal:,}/s (bar {load.bar:,}/s)",
        rate >= load.goal,
        f"kube-scheduler's own figure, pods bound: {load.published}/s; median of {load.rounds}: {took_s * 1e3:,.0f} ms",
        str(cpu).replace("a job", "a rank"),
    )


async def _round(stack: Stack, bus: NatsBus, load: Gangs) -> float:
    """Seconds from the submit of all gangs to the last start. They are gone afterwards."""
    started = await finishing.EventCount.open(bus, finishing.STARTED)
    connection = await http.connect(stack.port)
    starting = asyncio.create_task(started.reach(load.gangs))
    began = time.perf_counter()
    status, body = await connection.send(http.post("/v1/jobs", load.jobs()))
    if status != 200:
        raise RuntimeError(f"submit answered {status}: {body.decode()}")
    took = await starting - began
    await started.close()
    ended = await finishing.EventCount.open(bus, CANCELLED)
    for item in msgspec.json.decode(body):
        await connection.send(http.post(f"/v1/jobs/{item['id']}:cancel", {}))
    await ended.reach(load.gangs)
    await ended.close()
    return took
