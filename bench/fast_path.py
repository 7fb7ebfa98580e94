"""The row about the gateway's fast path: a submit that goes past FastAPI, and the same submit as a plain route.

`python -m bench.fast_path` is a gateway without its fast path. Both gateways serve the same stack in turn.
"""

import itertools
import sys

from bench import http, jobs
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_bus.main import run
from fairlead_bus.port import Bus
from fairlead_gateway.service import Gateway, build

ROUNDS, SUBMITS = 3, 10_000
CONNECTIONS = 64


async def row() -> Row:
    """Submit one by one to both gateways in turn. The figure: CPU of the gateway per submit, the median of the rounds."""
    cpu_us: dict[str, list[float]] = {"fairlead_gateway": [], "bench.fast_path": []}
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        for module, found in itertools.islice(itertools.cycle(cpu_us.items()), 2 * ROUNDS):
            stack.stop("gateway")
            stack.spawn("gateway", [sys.executable, "-m", module])
            stack.wait_gateway()
            await _submit(stack, SUBMITS // 5)
            before = stack.cpu_s("gateway")
            await _submit(stack, SUBMITS)
            found.append((stack.cpu_s("gateway") - before) / SUBMITS * 1e6)
    fast, plain = (percentile(found, 0.5) for found in cpu_us.values())
    return Row(
        "gateway's CPU for a submit, one by one from 64 connections",
        f"{fast:.0f} µs, {(1 - fast / plain) * 100:.0f} % less than without its fast path",
        "≥ 50 % less",
        fast <= 0.5 * plain,
        f"the same request as a plain route of FastAPI: {plain:.0f} µs",
    )


async def _submit(stack: Stack, count: int) -> None:
    request = http.post("/v1/jobs", jobs.TRUE)
    statuses = await http.storm(stack.port, CONNECTIONS, itertools.repeat(request, count))
    if set(statuses) != {201}:
        raise RuntimeError(f"submits answered {set(statuses)}")


async def _plain(bus: Bus) -> Gateway:
    gateway = await build(bus)
    gateway.app.routes.clear()
    return gateway


if __name__ == "__main__":
    run("gateway", _plain)
