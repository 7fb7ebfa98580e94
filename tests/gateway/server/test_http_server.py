"""The web server over raw sockets: deadlines, bounds, hosts. Clients here write bytes that no library would."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.server import http_server
from fairlead_gateway.server.http_server import (
    FILES_KEPT,
    HttpServer,
    HttpSettings,
    listen,
    make_server,
    raise_file_limit,
)
from fairlead_gateway.server.request_guard import HEAD_BYTES_MAX
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async

SHORT_S = 0.4
#: For a server that is never run.
NO_APP: Any = None
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """One connection that writes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Write bytes; a server that has closed by then is no error here."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """Read one answer: status and its JSON."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            body = await self.reader.readexactly(length)
        try:
            return int(head.split()[1]), json.loads(body)
        except json.JSONDecodeError:
            return int(head.split()[1]), {}

    async def until_closed(self) -> bytes:
        """Read what still comes until the server closes."""
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


class Served:
    """A gateway behind the real server on a free port."""

    def __init__(self, world: GatewayWorld, server: HttpServer, port: int) -> None:
        self.world, self.server, self.port = world, server, port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        """Open a connection."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    def refusals(self, reason: str) -> float:
        """Count of refused requests as `/metrics` has it."""
        found = self.world.gateway.metrics.registry.get_sample_value(
            "fairlead_gateway_refusals_total", {"reason": reason}
        )
        return found or 0.0


@contextlib.asynccontextmanager
async def serving(**bounds: Any) -> AsyncIterator[Served]:
    """Serve a world's gateway until the block ends."""
    settings = HttpSettings(port=0, **bounds)
    async with GatewayWorld(http=settings) as world:
        server = make_server(world.gateway.app, settings, world.gateway.metrics.count_refusal)
        door = listen(settings)
        tasks = [asyncio.create_task(server.serve(sockets=[door])), asyncio.create_task(server.watch_deadlines())]
        found = Served(world, server, door.getsockname()[1])
        try:
            yield found
        finally:
            for client in found.clients:
                client.writer.close()
            server.stop()
            await tasks[0]
            tasks[1].cancel()


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"GET",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"POST /v1/jobs/1:cancel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        GET + b"GET /he",
    ],
    ids=["nothing", "method", "half-head", "half-body", "half-chunk", "no-body", "second-half-head"],
)
async def test_an_incomplete_request_is_answered_408_and_closed(part: bytes) -> None:
    """At any point where the client stops, the connection ends; nothing is submitted."""
    async with serving(request_s=SHORT_S) as served:
        before = served.world.commands_stored()
        client = await served.connect()
        await client.send(part)
        rest = await client.until_closed()
        assert b"408" in rest and b"request_timeout" in rest
        assert served.refusals("request_timeout") == 1
        assert served.world.commands_stored() == before


async def test_blank_lines_after_an_answer_are_no_request() -> None:
    """They end the server's own timer for idle connections, and must not keep one open permanently."""
    async with serving(request_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.answer())[0] == 200
        await client.send(b"\r\n")
        assert b"408" in await client.until_closed()


async def test_prompt_clients_are_not_disconnected() -> None:
    """Keep-alive connections that rest between whole requests, and slow answers, are left alone."""
    async with serving(request_s=SHORT_S) as served:
        client, watcher = await served.connect(), await served.connect()
        await watcher.send(b"GET /v1/events?follow=1&from=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(3):
            await client.send(GET)
            assert (await client.answer())[0] == 200
            await asyncio.sleep(2 * SHORT_S)
        assert (await watcher.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert not watcher.reader.at_eof()
        assert served.refusals("request_timeout") == 0


async def test_connections_over_the_bound_are_answered_503() -> None:
    """At once and with words, although they have sent nothing; one that ends makes room."""
    async with serving(connections_max=3) as served:
        idle = [await served.connect() for _ in range(3)]
        await idle[2].send(GET)
        assert (await idle[2].answer())[0] == 200  # all three are taken up now
        over = await served.connect()
        status, problem = await over.answer()
        assert (status, problem["type"].rpartition(":")[2]) == (503, "too_many_connections")
        assert await over.until_closed() == b""
        assert served.refusals("too_many_connections") == 1
        idle[0].writer.close()
        async with asyncio.timeout(60):
            status = 503
            while status != 200:
                again = await served.connect()
                await again.send(GET)
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    status, _ = await again.answer()


async def test_a_crowd_of_idle_connections_ends_by_itself() -> None:
    """Those who hold every place without sending anything lose it, and others get in again."""
    async with serving(connections_max=40, request_s=SHORT_S) as served:
        crowd = [await served.connect() for _ in range(60)]
        for client in crowd:
            await client.until_closed()
        client = await served.connect()
        await client.send(GET)
        assert (await client.answer())[0] == 200
        assert not served.server.lingering or len(served.server.lingering) <= 64


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET http://evil.example/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
        (b"GET http://localhost/v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET http://localhost:8080/healthz HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhOsT:   LOCALHOST.:80\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: [::1]evil\r\n\r\n", 400),
        (
            b"POST /v1/jobs HTTP/1.1\r\nHost: evil.example:8080\r\nOrigin: http://evil.example:8080\r\nSec-Fetch-Site: same-origin\r\n"
            b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n" + b'{"command":["true"]}',
            421,
        ),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n\r\n", 415),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: 1\r\n" * 5000 + b"\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"1" * 200_000 + b"\r\n\r\n", 431),
    ],
)
async def test_heads_that_no_browser_should_send(request_: bytes, expected: int) -> None:
    """Absolute form, two hosts, none, case, ports, IPv6: each is judged alike, before anything is stored."""
    async with serving() as served:
        before = served.world.commands_stored()
        client = await served.connect()
        await client.send(request_)
        status, _ = await client.answer()
        assert status == expected
        assert served.world.commands_stored() == before


async def test_a_head_without_end_is_disconnected() -> None:
    """A header that never ends does not fill the memory until the deadline."""
    async with serving() as served:
        client = await served.connect()
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        closed = asyncio.create_task(client.until_closed())
        for _ in range(64):
            await client.send(b"1" * HEAD_BYTES_MAX)
            await asyncio.sleep(0.01)
            if closed.done():
                break
        async with asyncio.timeout(60):
            await closed
        assert b"431" in await closed or not await closed  # a reset may overtake the answer


def test_the_bound_stays_below_the_limit_of_open_files() -> None:
    """The soft limit is raised to the hard one, and clients never take all of it."""
    files = raise_file_limit()
    server = make_server(NO_APP, HttpSettings(connections_max=1_000_000), lambda _: None)
    assert server.connections_max == min(1_000_000, files - FILES_KEPT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIRLEAD_HTTP_CONNECTIONS", "0"),
        ("FAIRLEAD_HTTP_CONNECTIONS", "many"),
        ("FAIRLEAD_HTTP_REQUEST_S", "-1"),
        ("FAIRLEAD_HTTP_HOSTS", "a b"),
    ],
)
def test_settings_are_refused_by_name(name: str, value: str) -> None:
    """With what was expected and what was found."""
    with pytest.raises(BadSetting, match=f"{name}: expected .*{value}"):
        HttpSettings.from_environment({name: value})


def test_hosts_are_read_from_the_setting() -> None:
    """Blanks and empty entries mean nothing."""
    assert HttpSettings.from_environment({"FAIRLEAD_HTTP_HOSTS": " a.example, ,b "}).hosts == ("a.example", "b")


JOB = b'{"command":["true"]}'


def submit(body: bytes = JOB, *, path: bytes = b"/v1/jobs", headers: bytes = b"") -> bytes:
    """The bytes of a submit."""
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    return head % (path, len(body), headers) + body


async def test_submits_of_one_connection_are_answered_in_order() -> None:
    """Requests that skip ASGI and others share a connection; a request that came before the answer waits for its turn."""
    async with serving() as served:
        client = await served.connect()
        await client.send(submit() + GET + submit(b"{}") + submit(headers=b"X-Fairlead-User: Ada L\r\n") + submit())
        assert [(await client.answer())[0] for _ in range(5)] == [201, 200, 422, 422, 201]
        await client.send(submit())
        assert (await client.answer())[0] == 201


async def test_a_submit_in_pieces_is_answered() -> None:
    """A head and a body that arrive byte by byte are one request."""
    async with serving() as served:
        client = await served.connect()
        for byte in submit():
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 201


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (submit(headers=b"Origin: http://evil.example\r\n"), 403),
        (submit(path=b"/v1/jobs?x=1"), 422),
        (submit(b"[" + b",".join([JOB] * 4_000) + b"]"), 200),
        (submit().replace(b"application/json", b"text/plain"), 415),
        (submit().replace(b"Host: localhost", b"Host: evil.example"), 421),
        (submit(headers=b"Expect: 100-continue\r\n"), 201),
        (submit(headers=b"X-Forwarded-For: 10.0.0.1\r\n"), 201),
    ],
)
async def test_a_head_that_was_admitted_admits_no_other(request_: bytes, status: int) -> None:
    """Each head is checked unless it equals the one before."""
    async with serving() as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(submit())
            assert (await client.answer())[0] == 201
            await client.send(request_)
            head = await client.reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100"):
                head = await client.reader.readuntil(b"\r\n\r\n")
            assert int(head.split()[1]) == status
            await client.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))


async def test_a_client_over_its_bound_is_limited_on_a_kept_connection() -> None:
    """The bound on refusals counts for heads that were admitted earlier, too."""
    async with serving(refusals_per_minute=3) as served:
        client = await served.connect()
        statuses: list[int] = []
        for _ in range(6):
            await client.send(submit(b"{}"))
            statuses.append((await client.answer())[0])
        assert statuses[:2] == [422, 422]
        assert statuses[-1] == 429


async def test_an_unused_connection_is_closed_after_a_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose last request skipped ASGI is kept for KEEP_ALIVE_S."""
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 0.1)
    async with serving(request_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(submit())
        assert (await client.answer())[0] == 201
        assert await client.until_closed() == b""


async def test_a_long_answer_behind_a_submit_in_the_same_bytes_is_no_unused_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipelined request counts as in progress, although the submit before it has been answered."""
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 0.1)
    refused = submit(headers=b"X-Fairlead-User: Ada L\r\n")  # answered within the call that reads it
    async with serving(request_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(refused + b"GET /v1/events?follow=1&from=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.answer())[0] == 422
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * SHORT_S):
                await client.reader.read()  # until the server closes


async def test_a_submit_of_http_1_0_ends_its_connection() -> None:
    """Its client may take the end of the connection for the end of the answer, also where it asks for keep-alive."""
    async with serving() as served:
        client = await served.connect()
        await client.send(submit(headers=b"Connection: keep-alive\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await client.answer())[0] == 201
        assert await client.until_closed() == b""


async def test_a_resting_server_wakes_up_once_a_second_and_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn's own loop looks ten times a second, at rest too."""
    looks: list[float] = []
    look = HttpServer.on_tick

    async def counted(server: HttpServer, counter: int) -> bool:
        looks.append(asyncio.get_running_loop().time())
        return await look(server, counter)

    monkeypatch.setattr(HttpServer, "on_tick", counted)
    async with serving() as found:
        await eventually_async(lambda: len(looks) >= 2)
        assert looks[1] - looks[0] >= 0.9
        began = asyncio.get_running_loop().time()
        found.server.stop()
        await eventually_async(lambda: not found.server.started or len(looks) >= 3)
        assert asyncio.get_running_loop().time() - began < 0.5
