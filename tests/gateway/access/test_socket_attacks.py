"""Attacks on a real socket with sign-on: names of others, forged heads, and rights that end on connections that stay open (A1, A2, A12, A16)."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from fairlead_gateway.access import streams
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.socket_world import Line, SocketWorld

BODY = b'{"command":["true"]}'


def submit(
    *fields: bytes,
    token: bytes = b"bob-token",
    host: bytes = b"localhost",
    target: bytes = b"/v1/jobs",
    body: bytes = BODY,
) -> bytes:
    """Bytes of a submit on the path past ASGI."""
    head = [b"POST %b HTTP/1.1" % target, b"host: " + host, b"content-type: application/json"]
    head += [b"content-length: %d" % len(body), *fields]
    if token:
        head.append(b"authorization: Bearer " + token)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def _suspend(world: SocketWorld) -> None:
    await world.command(cmd.SuspendPrincipal, principal="bob")


async def _revoke(world: SocketWorld) -> None:
    await world.command(cmd.RevokeToken, token="bob")


async def _end(world: SocketWorld) -> None:
    await world.command(cmd.EndSession, session="i1")


async def _expire(world: SocketWorld) -> None:
    clock = world.gateway.callers._clock
    world.gateway.callers._clock = lambda: clock() + 2 * 3_600_000_000_000


async def _take_role(world: SocketWorld) -> None:
    await world.revoke("bob", "member", "queue:default")


ENDS: list[tuple[Callable[[SocketWorld], Awaitable[None]], bytes, int]] = [
    (_suspend, b"bob-token", 401),
    (_suspend, b"i1-cookie", 401),
    (_revoke, b"bob-token", 401),
    (_end, b"i1-cookie", 401),
    (_expire, b"bob-token", 401),
    (_take_role, b"bob-token", 422),
]


async def _prepared(world: SocketWorld) -> None:
    await world.person("bob", member="queue:default")
    await world.session("i1", "bob")


@pytest.mark.parametrize(("act", "token", "status"), ENDS)
async def test_the_next_request_of_a_connection_is_refused(
    act: Callable[[SocketWorld], Awaitable[None]], token: bytes, status: int
) -> None:
    """The head is the same, byte for byte, and the connection remembers that it was admitted."""
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        for _ in range(2):
            assert (await line.send(submit(token=token)))[0] == 201
        await act(world)
        for _ in range(2):
            answer = await line.send(submit(token=token))
            assert answer[0] == status, answer
        assert len(world.gateway.views.jobs.rows) == 2


@pytest.mark.parametrize(("act", "token", "status"), [each for each in ENDS if each[0] is not _expire])
async def test_a_body_that_comes_after_the_right_is_gone_changes_nothing(
    act: Callable[[SocketWorld], Awaitable[None]], token: bytes, status: int
) -> None:
    """The head is let through, then the right ends, then the body arrives. (An expiry is in the log within a second, as its own event.)"""
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        assert (await line.send(submit(token=token)))[0] == 201
        whole = submit(token=token)
        await line.write(whole[: -len(BODY)])
        await asyncio.sleep(0)
        async with world.line() as other:  # answered after the head was read
            await other.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await act(world)
        answer = await line.send(BODY)
        assert answer[0] >= 400, answer
        assert len(world.gateway.views.jobs.rows) == 1


async def test_without_the_look_at_the_log_the_connection_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above notice it."""
    monkeypatch.setattr(Caller, "ended", lambda *_: "")
    monkeypatch.setattr(Caller, "may", lambda *_: True)
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        assert (await line.send(submit()))[0] == 201
        await _revoke(world)
        assert (await line.send(submit()))[0] == 201


FOREIGN = [
    (submit(host=b"evil.example:8080"), 421),
    (submit(b"origin: http://evil.example:8080", b"sec-fetch-site: same-origin", host=b"evil.example:8080"), 421),
    (submit(target=b"http://evil.example/v1/jobs"), 421),
    (submit(b"host: localhost"), 400),
    (submit(b"origin: null"), 403),
    (submit(b"origin: http://evil.example"), 403),
    (submit(b"sec-fetch-site: cross-site"), 403),
    (submit(b"sec-fetch-site: same-site"), 403),
    (b"GET /v1/jobs HTTP/1.1\r\nhost: evil.example\r\nauthorization: Bearer bob-token\r\n\r\n", 421),
    (b"GET /v1/jobs HTTP/1.1\r\nauthorization: Bearer bob-token\r\n\r\n", 400),
    (
        b"GET /v1/events?follow=1 HTTP/1.1\r\nhost: evil.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        421,
    ),
]


@pytest.mark.parametrize(("request_bytes", "status"), FOREIGN)
async def test_a_foreign_name_or_page_is_refused_before_the_credential_is_read(
    request_bytes: bytes, status: int
) -> None:
    """Also with a good token; nothing is looked up, and nothing changes (A1, A2)."""
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        looked: list[object] = []
        world.gateway.callers._known.clear()
        world.gateway.callers.of = lambda scope: looked.append(scope)  # type: ignore[method-assign,assignment]
        assert (await line.send(request_bytes))[0] == status
        assert not looked and not world.gateway.views.jobs.rows


async def test_every_method_with_a_cookie_needs_our_own_page() -> None:
    """Whatever a page of others can send: methods, origins, Sec-Fetch-*, and types of content that need no preflight (A2)."""
    types = (
        b"application/json",
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"",
    )
    pages = (
        (),
        (b"origin: null",),
        (b"origin: http://sub.localhost",),
        (b"origin: http://localhost.evil.example",),
        (b"origin: http://localhost", b"origin: http://evil.example"),
        (b"origin: http://evil.example", b"sec-fetch-site: same-origin"),
        (b"sec-fetch-site: none",),
        (b"sec-fetch-mode: no-cors", b"sec-fetch-dest: image"),
        (b"sec-fetch-site: same-origin", b"sec-fetch-site: cross-site"),
    )
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        sequence = world.gateway.views.sequence
        for method, path in (
            (b"POST", b"/v1/jobs"),
            (b"PUT", b"/v1/queues/x"),
            (b"DELETE", b"/v1/queues/x"),
            (b"PATCH", b"/v1/jobs"),
        ):
            for page in pages:
                for kind in types:
                    fields = [
                        b"%b %b HTTP/1.1" % (method, path),
                        b"host: localhost",
                        b"content-length: %d" % len(BODY),
                        *page,
                    ]
                    fields += [b"cookie: fairlead=i1-cookie"] + ([b"content-type: " + kind] if kind else [])
                    answer = await line.send(b"\r\n".join(fields) + b"\r\n\r\n" + BODY)
                    assert answer[0] == 403, (method, page, kind, answer)
        assert world.gateway.views.sequence == sequence
        good = submit(b"origin: http://localhost", b"cookie: fairlead=i1-cookie", token=b"")
        assert (await line.send(good))[0] == 201


async def test_with_the_page_unchecked_a_foreign_page_changes_things(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above notices it."""
    monkeypatch.setattr("fairlead_gateway.access.callers.check_page", lambda *_: None)
    async with SocketWorld() as world, world.line() as line:
        await _prepared(world)
        assert (await line.send(submit(b"cookie: fairlead=i1-cookie", token=b"")))[0] == 201


FORGED = (
    b"x-forwarded-for: 10.9.8.7",
    b"x-forwarded-user: owner",
    b"x-forwarded-email: owner@corp.example",
    b"x-remote-user: owner",
    b"remote-user: owner",
    b"x-auth-request-user: owner",
    b"x-original-uri: /healthz",
    b"x-original-url: /healthz",
    b"x-rewrite-url: /healthz",
    b"x-forwarded-uri: /healthz",
    b"x-http-method-override: GET",
    b"forwarded: for=10.9.8.7;host=evil.example;proto=https",
    b"x-forwarded-host: evil.example",
)


async def test_a_forged_header_changes_nothing() -> None:
    """Neither the person, the path nor the address comes from it (A16); with a token the person is the token's."""
    async with SocketWorld() as world:
        await _prepared(world)
        seen: list[str] = []
        count = Callers._count
        world.gateway.callers._count = lambda address: (seen.append(address), count(world.gateway.callers, address))[1]  # type: ignore[method-assign]
        for number, field in enumerate(FORGED, 1):
            async with world.line() as line:
                assert (await line.send(submit(field, token=b"")))[0] == 401, field
                assert (await line.send(submit(field)))[0] == 201, field
                users = [row.user for row in world.gateway.views.jobs.rows.values()]
                assert users == ["bob"] * number, field
                seen.clear()
                assert (await line.send(submit(field, token=b"nosuch")))[0] == 401, field
                assert seen == ["127.0.0.1"], field


async def test_a_stated_user_is_refused_on_every_path() -> None:
    """On the path past ASGI, too, after it was admitted without (A16)."""
    async with SocketWorld() as world:
        await _prepared(world)
        for number, form in enumerate((b"x-fairlead-user: owner", b"X-Fairlead-User: owner", b"x-fairlead-user: "), 1):
            async with world.line() as line:
                assert (await line.send(submit()))[0] == 201, form
                for token in (b"bob-token", b""):
                    assert (await line.send(submit(form, token=token)))[0] == 400, form
                assert len(world.gateway.views.jobs.rows) == number, form


async def _opened(world: SocketWorld, line: Line, path: bytes) -> None:
    await line.write(b"GET %b HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer bob-token\r\n\r\n" % path)
    assert b" 200 " in await line.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("act", [_suspend, _revoke, _take_role])
async def test_open_streams_end_and_none_reopens(
    act: Callable[[SocketWorld], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Events and logs end with a reason on a real connection, and the same request again is refused (A12)."""
    async with SocketWorld() as world, world.line() as one, world.line() as two:
        await _prepared(world)
        job = (await world.submit(queue="default")).encode()
        await _opened(world, one, b"/v1/events?follow=1&job=" + job)
        await _opened(world, two, b"/v1/jobs/%b/logs?follow=1" % job)
        await act(world)
        began = time.monotonic()
        async with asyncio.timeout(60):
            for line in (one, two):
                await line.reader.readuntil(b"\r\n0\r\n\r\n")
        with capsys.disabled():
            print(f"\nstreams ended {time.monotonic() - began:.2f} s after {act.__name__} was answered")
        async with world.line() as again:
            path = b"/v1/jobs/%b/logs?follow=1" % job
            head = b"GET %b HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer bob-token\r\n\r\n" % path
            assert (await again.send(head))[0] in (401, 404)
        assert streams.LOOK_S * 2 < 5
