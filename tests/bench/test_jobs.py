"""Live rows show the CPU per job of each process. No figure is looked at."""

import pytest

from bench import jobs
from bench.stack import Stack


@pytest.mark.slow
@pytest.mark.nats
async def test_latency_and_processes_show_their_cpu() -> None:
    """On a node with real processes: the services, the bus and the agent."""
    goals = jobs.Goals(slow=False)
    with Stack() as stack:
        stack.control_plane()
        stack.agent()
        stack.wait_nodes(1)
        rows = [await jobs.idle_latency(stack, goals, rounds=5), await jobs.processes(stack, goals, count=20)]
    for row in rows:
        assert {"agent", "nats", "queue", "placer", "gateway"} <= set(row.cpu.replace(",", "").split())
