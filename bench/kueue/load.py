"""Kueue's published baseline load in real time on the real bus: `python -m bench.kueue`.

`kueue_schedule` gives the submits and their times, hollow nodes play each job for as long as its class says, and
`kueue_tally` reads the log. The nodes hold four times the quotas, so that only the quotas limit. Measured from the
first submit until the log has the last job's end.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

import uvloop

from bench import http, table
from bench.kueue.model import Rules, outcome
from bench.kueue.schedule import BORROWING, COHORTS, GUARANTEED, QUEUES, SIZES, Arrival, least_ms, schedule
from bench.kueue.tally import Tally, read
from bench.stack import Stack
from fairlead_bus.main import collect_rarely
from fairlead_schemas.wire import subjects

#: Full of the smallest jobs, a node has 64 runs: with more, job files go to the SPEC store, which hollow nodes do not
#: read.
NODES, NODE_CPUS = 40, 64
PUBLISHED_S, GOAL_S = 351, 80.0
CONNECTIONS = 32


def queue_file() -> dict[str, object]:
    """The queues as a queue file. Runs are not safe for any time, as Kueue's are not."""
    preemption = {"reclaim": "any", "lowerPriority": True, "rebalance": False, "protect": "0s"}
    queue = {"guaranteed": {"cpu": GUARANTEED}, "borrowing": {"cpu": BORROWING}, "preemption": preemption}
    queues = {f"q{number}": queue for number in range(1, QUEUES + 1)}
    cohort = {"maximum": {"cpu": QUEUES * GUARANTEED}, "queues": queues}
    return {"queues": {f"c{number}": cohort for number in range(1, COHORTS + 1)}}


def job_file(arrival: Arrival) -> dict[str, object]:
    """Return the job file of an arrival."""
    return {
        "command": ["sleep", f"{arrival.duration_ms / 1000:g}"],
        "queue": arrival.queue,
        "priority": arrival.priority,
        "resources": {"cpu": str(arrival.units), "memory": "1Mi"},
    }


class Pace:
    """Submits each job by itself when its time has come, with one request in flight on each connection."""

    def __init__(self, port: int, arrivals: Sequence[Arrival]) -> None:
        self.port = port
        self.requests = iter([(a.at_ms / 1000, http.post("/v1/jobs", job_file(a))) for a in arrivals])
        self.began = 0.0  # time.perf_counter() at the schedule's zero
        #: The longest that a job was due before its request went out, seconds.
        self.late = 0.0

    async def run(self) -> None:
        """Run until everything is submitted. Raises RuntimeError when a job is refused."""
        connections = [await http.connect(self.port) for _ in range(CONNECTIONS)]
        self.began = time.perf_counter()
        await asyncio.gather(*[self._drive(connection) for connection in connections])

    async def _drive(self, connection: http.Connection) -> None:
        for at, request in self.requests:
            await asyncio.sleep(self.began + at - time.perf_counter())
            self.late = max(self.late, time.perf_counter() - self.began - at)
            status, body = await connection.send(request)
            if status not in (201, 202):
                raise RuntimeError(f"submit answered {status}: {body.decode()}")


def nodes(stack: Stack) -> None:
    """Start the played nodes and wait for them."""
    shapes = stack.data / "nodes.csv"
    rows = [f"hollow-{number},{NODE_CPUS * 1000},262144,0," for number in range(1, NODES + 1)]
    shapes.write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *rows]))
    stack.spawn("hollow", [sys.executable, "-m", "fairlead_agent.hollow", "--shapes", str(shapes)])
    stack.wait_nodes(NODES)


async def configure(port: int) -> None:
    """Apply the queues. Raises RuntimeError when they are refused."""
    connection = await http.connect(port)
    status, body = await connection.send(http.post("/v1/queues:apply", queue_file()))
    if status not in (200, 202):
        raise RuntimeError(f"queues:apply answered {status}: {body.decode()}")


async def play(stack: Stack, arrivals: Sequence[Arrival]) -> tuple[float, float, Tally]:
    """Submit, and wait until all have ended: (seconds from the first submit to the last end, the longest that a
    submit was late, the tally of the log). Raises RuntimeError, TimeoutError."""
    bus = await stack.bus()
    after, pace = (await bus.state(subjects.LOG)).last, Pace(stack.port, arrivals)
    async with asyncio.TaskGroup() as together:
        reading = together.create_task(read(bus, after=after, jobs=len(arrivals)))
        together.create_task(pace.run())
    await bus.close()
    tally = reading.result()
    return tally.ended - pace.began - arrivals[0].at_ms / 1000, pace.late, tally


async def baseline(stack: Stack) -> table.Row:
    """The row, on a control plane and nodes that run already."""
    await configure(stack.port)
    arrivals = schedule()
    took, late, tally = await play(stack, arrivals)
    for size in SIZES:
        print(f"  {size.name} jobs waited {tally.mean_wait_s(size.units):.1f} s on average until they first ran")
    print(f"  {tally.preempted:,} runs yielded; submits were {late * 1e3:.0f} ms late at most")
    model = outcome(schedule(cohorts=1), Rules())
    return table.Row(
        f"Kueue's baseline load, {len(arrivals):,} jobs in {COHORTS} × {QUEUES} queues: first submit → last end",
        f"{took:.1f} s",
        f"≤ {GOAL_S:g} s",
        took <= GOAL_S,
        f"no quota ever idle: {least_ms(arrivals) / 1000:.1f} s; the rules without delays: {model.took_ms / 1000:.1f} s; "
        f"Kueue's own figure: {PUBLISHED_S} s",
    )


async def measure() -> table.Row:
    """The row, on a stack of its own."""
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        nodes(stack)
        return await baseline(stack)


def main() -> int:
    """Measure and print; 1 when the goal was missed."""
    argparse.ArgumentParser(prog="python -m bench.kueue", description=__doc__).parse_args()
    collect_rarely()
    row = uvloop.run(measure())
    print(table.markdown([row]))
    return 0 if row.met else 1
