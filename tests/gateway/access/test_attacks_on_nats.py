"""Attacks on two gateways of a real server: how soon a revoked token is refused by the other one."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.nats.adapter import connect
from fairlead_bus.service import Service
from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.service import Gateway, GatewaySettings, build
from fairlead_schemas.units.timestamps import HOUR_NS
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer

ROUNDS = 100


@contextlib.asynccontextmanager
async def _gateway(url: str) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    bus = await connect(url, name="gateway")
    gateway = await build(bus, GatewaySettings(sign_on="local", decision_wait_s=30.0))
    background = asyncio.create_task(gateway.background())
    transport = httpx.ASGITransport(gateway.app, raise_app_exceptions=False)
    try:
        await eventually_async(lambda: gateway.folding.caught_up)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as http:
            yield gateway, http
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
        await bus.close()


@contextlib.asynccontextmanager
async def _two_gateways(server: NatsServer) -> AsyncIterator[tuple[tuple[Gateway, httpx.AsyncClient], ...]]:
    first = await connect(server.url, name="set-up")
    await first.ensure()
    await first.close()
    bus = await connect(server.url, name="access")
    service = Service(bus, AccessCore, writer="access", sources=[CommandSource("access")])
    serving = asyncio.create_task(service.run())
    try:
        async with _gateway(server.url) as one, _gateway(server.url) as two:
            yield one, two
    finally:
        await service.stop()
        await asyncio.gather(serving, return_exceptions=True)
        await bus.close()


async def _status(http: httpx.AsyncClient, token: str) -> int:
    return (await http.get("/v1/whoami", headers={"authorization": f"Bearer {token}"})).status_code


@pytest.mark.nats
async def test_a_revoked_token_is_refused_by_every_gateway(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the moment at which the revocation is sent to one gateway, until another one that has the caller in memory refuses it.
    The time is printed."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", fresh_nats.monitor)
    async with _two_gateways(fresh_nats) as ((one, _), (two, http)):
        owner = await one.accounts.make_owner("owner")
        principal = await one.accounts.people.resolve("owner")
        expires_ns = time.time_ns() + HOUR_NS
        took: list[float] = []
        for number in range(ROUNDS):
            token, text = await one.accounts.issue_token(principal, "person", f"t{number}", expires_ns)
            await eventually_async(lambda token=token: token in two.views.access.tokens)
            assert await _status(http, text) == 200
            began = time.monotonic()
            revoking = asyncio.create_task(one.accounts.revoke_token(token))
            while await _status(http, text) != 401:  # noqa: ASYNC110 -- each look is a request
                await asyncio.sleep(0)
            took.append(time.monotonic() - began)
            await revoking
        with capsys.disabled():
            took.sort()
            print(
                f"\nrevoked to refused at the other gateway: p50 {took[ROUNDS // 2] * 1000:.1f} ms, p99 {took[-2] * 1000:.1f} ms"
            )
        _, session = await one.accounts.open_session(principal, SignInAt("local"))
        await eventually_async(lambda: bool(two.views.access.sessions_of.get(principal)))
        assert await _status(http, session) == 200 and await _status(http, owner) == 200
