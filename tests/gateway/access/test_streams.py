"""Open streams end with the right of their caller, and say why (A12)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from fairlead_gateway.access import streams
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.signed_world import SignedWorld
from tests.kit.eventually import eventually_async

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


class Stream:
    """An open answer, read by a task: httpx's transport for ASGI gives an answer only when it is complete."""

    def __init__(self, world: SignedWorld, path: str) -> None:
        self.text, self.status, self._is_read = b"", 0, False
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer bob-token")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        self.task = asyncio.create_task(world.gateway.app(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, object]:
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.status = self.status or int(message.get("status", 0))
        self.text += message.get("body", b"")

    async def says(self, text: bytes) -> None:
        """Wait until the answer has begun and holds a text."""
        await eventually_async(lambda: bool(self.status) and text in self.text)


@contextlib.asynccontextmanager
async def _open(world: SignedWorld, path: str) -> AsyncIterator[Stream]:
    stream = Stream(world, path)
    try:
        await stream.says(b"")
        yield stream
    finally:
        stream.task.cancel()
        await asyncio.gather(stream.task, return_exceptions=True)


@pytest.mark.parametrize("stream", ["events", "logs"])
@pytest.mark.parametrize(("act", "reason"), ENDS)
async def test_a_stream_ends_with_its_right(stream: str, act: Act, reason: str) -> None:
    """After a suspension, a revocation, an expiry, or when the gateway is blind; with the reason as its last words."""
    async with SignedWorld() as world:
        await world.person("bob", viewer="queue:default")
        job = await world.submit(queue="default")
        path = f"/v1/events?follow=1&job={job}" if stream == "events" else f"/v1/jobs/{job}/logs?follow=1"
        async with _open(world, path) as opened:
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
        async with _open(world, "/v1/events?follow=1") as opened:
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
