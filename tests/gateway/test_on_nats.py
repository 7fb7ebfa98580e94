"""The gateway on a real server: acknowledged work survives kills of the server and of the gateway, once each."""

import asyncio
import contextlib

import httpx
import pytest

from fairlead_bus.input_source import CommandSource
from fairlead_bus.nats.adapter import connect
from fairlead_bus.service import Service
from fairlead_gateway.service import Gateway, GatewaySettings, build
from fairlead_queue.core import QueueCore
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer

pytestmark = pytest.mark.nats


def client_of(gateway: Gateway) -> httpx.AsyncClient:
    """HTTP without a port."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://localhost", timeout=30)


async def test_submits_survive_a_killed_server_and_a_restarted_gateway(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed twice during keyed submits, which are repeated until answered: every key is one job, none is
    lost, and a new gateway shows the same."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", fresh_nats.monitor)
    bus = await connect(fresh_nats.url, name="gateway")
    await bus.ensure()
    queue_bus = await connect(fresh_nats.url, name="queue")
    queue = Service(queue_bus, QueueCore, writer="queue", sources=[CommandSource("queue")])
    serving = asyncio.create_task(queue.run())
    gateway = await build(bus, GatewaySettings(decision_wait_s=1.0))
    background = asyncio.create_task(gateway.background())
    answered: dict[str, str] = {}

    async def submit(http: httpx.AsyncClient, key: str) -> None:
        while key not in answered:
            answer = await http.post("/v1/jobs", json={"command": [key]}, headers={"idempotency-key": key})
            if answer.status_code in (200, 201):
                answered[key] = answer.json()["id"]
            else:
                assert answer.status_code in (202, 503), answer.text
                await asyncio.sleep(0.1)

    async with client_of(gateway) as http, asyncio.timeout(90):
        for turn in range(2):
            work = [asyncio.create_task(submit(http, f"k{turn}-{number}")) for number in range(100)]
            await asyncio.sleep(0.02)
            await asyncio.to_thread(fresh_nats.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(fresh_nats.start)
            await asyncio.gather(*work)
        assert len(set(answered.values())) == 200
        assert len(gateway.views.jobs.rows) == 200
        assert {row.name: job for job, row in gateway.views.jobs.rows.items()} == answered
    before = gateway.views.snapshot()
    background.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await background
    again = await build(bus, GatewaySettings())
    background = asyncio.create_task(again.background())
    await eventually_async(lambda: again.folding.caught_up)
    assert again.views.snapshot() == before
    background.cancel()
    await queue.stop()
    await asyncio.gather(background, serving, return_exceptions=True)
    await bus.close()
    await queue_bus.close()
