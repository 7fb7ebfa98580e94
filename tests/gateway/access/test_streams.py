"""Open streams end with the right of their caller, and say why (A12)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlead_gateway.access import streams
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.open_streams import open_stream
from tests.gateway.access.signed_world import SignedWorld

type Act = Callable[[SignedWorld], Awaitable[None]]


async def _suspend(world: SignedWorld) -> None:
    await world.command(cmd.SuspendPrincipal, principal="bob")


async def _revoke_token(world: SignedWorld) -> None:
    await world.command(cmd.RevokeToken, token="bob")


async def _revoke_role(world: SignedWorld) -> None:
    await world.revoke("bob", "viewer", "queue:default")


async def _expire(world: SignedWorld) -> None:
    clock = world.gateway.callers._clock
    world.gateway.callers._clock = lambda: clock() + 2 * 3_600_000_000_000


async def _blind(world: SignedWorld) -> None:
    world.gateway.callers.blind_s = lambda: 61.0


ENDS: list[tuple[Act, str]] = [
    (_suspend, "suspended"),
    (_revoke_token, "token_revoked"),
    (_revoke_role, "right_revoked"),
    (_expire, "expired"),
    (_blind, "behind_log"),
]


@pytest.mark.parametrize("stream", ["events", "logs"])
@pytest.mark.parametrize(("act", "reason"), ENDS)
async def test_a_stream_ends_with_its_right(stream: str, act: Act, reason: str) -> None:
    """After a suspension, a revocation, an expiry, or when the gateway is blind; with the reason as its last words."""
    async with SignedWorld() as world:
        await world.person("bob", viewer="queue:default")
        job = await world.submit(queue="default")
        path = f"/v1/events?follow=1&job={job}" if stream == "events" else f"/v1/jobs/{job}/logs?follow=1"
        async with open_stream(world, path) as opened:
            assert opened.status == 200
            await act(world)
            async with asyncio.timeout(60):
                await opened.task
            last = (
                f'event: end\ndata: {{"reason":"{reason}"}}' if stream == "events" else f"this stream ended: {reason}"
            )
            assert last in opened.text.decode()


async def test_a_stream_shows_what_its_caller_may_see_at_each_moment() -> None:
    """Events of a job that the caller cannot see are not sent, and those that come after a grant are."""
    async with SignedWorld() as world:
        await world.configure(secret={})
        await world.person("bob", viewer="queue:default")
        async with open_stream(world, "/v1/events?follow=1") as opened:
            hidden = await world.submit(queue="secret", name="hidden-name")
            await world.grant("bob", "viewer", "queue:secret")
            seen = await world.submit(queue="secret", name="seen-name")
            await opened.says(f"job/{seen}".encode())
            assert f'"job/{hidden}"'.encode() not in opened.text and b"hidden-name" not in opened.text
            assert b"RoleGranted" not in opened.text, "events of access are for those who may audit"


async def test_silence_is_looked_at_often_enough() -> None:
    """A stream on which nothing happens ends within five seconds: two looks fit into them."""
    assert streams.LOOK_S * 2 < 5


async def test_what_was_made_with_earlier_rights_is_not_sent() -> None:
    """A chunk that was made before the revocation is dropped, and the inner stream is closed."""
    ended, closed = "", False

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal ended, closed
        try:
            yield b"first"
            ended = "suspended"
            yield b"second"
        finally:
            closed = True

    found = [chunk async for chunk in streams.while_allowed(chunks(), lambda: ended, lambda why: f"end {why}".encode())]
    assert (found, closed) == ([b"first", b"end suspended"], True)
