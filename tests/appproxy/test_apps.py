"""Applications through a real proxy: entering, requests, sockets, back pressure, ends."""

import asyncio
import gc

import pytest

from fairlead_appproxy import app_runs, app_server, presence
from fairlead_appproxy.connection import HttpConnection
from fairlead_schemas.wire.app_sessions import AppEntry, ConnectApp, EntriesEnded, FindEntry, RenewEntries
from fairlead_schemas.wire.tunnels import digest
from tests.appproxy.app_world import LABEL, AppWorld, frame, read_answer
from tests.kit.eventually import eventually_async


async def test_a_code_admits_and_requests_reach_the_app() -> None:
    """Over one connection to the app, which several connections of a browser use one after the other."""
    async with AppWorld() as world:
        cookie = await world.enter()
        reader, writer = await world.connect()
        for number in range(3):
            request = f"GET /page{number} HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n\r\n"
            writer.write(request.encode())
            answer = await read_answer(reader)
            assert answer.status == 200 and answer.body.startswith(f"GET /page{number} HTTP/1.1\r\n".encode())
        body = "x" * 200_000
        sent = f"POST /save HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n"
        sent += f"Origin: http://{world.host}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        assert (await world.send(sent.encode())).status == 200
        assert world.app.bodies == 200_000 and world.app.connections == 1


async def test_a_socket_carries_both_ways() -> None:
    """From the first frame, which comes with the head; and ends when the app or the browser ends it."""
    async with AppWorld() as world:
        cookie = await world.enter()
        reader, writer, status = await world.socket(cookie)
        assert status == 101
        for size in (0, 1, 125):
            writer.write(sent := frame(b"x" * size))
            assert await reader.readexactly(len(sent)) == sent
        [app] = world.app.open
        app.transport.abort()
        assert await reader.read() == b""
        assert not world.proxy.apps.table.runs[LABEL].open


async def test_a_socket_leaves_nothing_behind() -> None:
    """No timer of its handshake holds its two connections for the hour that an app may take to answer."""
    async with AppWorld() as world:
        cookie = await world.enter()
        known = {id(each) for each in gc.get_objects() if isinstance(each, HttpConnection)}
        _, writer, status = await world.socket(cookie)
        assert status == 101
        writer.transport.abort()

        def left() -> int:
            gc.collect()
            return sum(isinstance(each, HttpConnection) and id(each) not in known for each in gc.get_objects())

        await eventually_async(lambda: not left())


async def test_a_connection_that_fails_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the proxy itself ends the connection at which it happened, and nothing else."""

    async def fails(*_: object) -> bool:
        raise RuntimeError("planted")

    async with AppWorld() as world:
        cookie = await world.enter()
        with monkeypatch.context() as planted:
            planted.setattr(world.proxy.apps, "serve", fails)
            reader, writer = await world.connect()
            writer.write(f"GET / HTTP/1.1\r\nHost: {world.host}\r\n\r\n".encode())
            assert await _is_cut(reader)
        assert (await world.ask(cookie=cookie)).status == 200


async def test_a_socket_with_another_protocol_is_cut() -> None:
    """Bytes that the app could read otherwise than the proxy: an unmasked frame, a reserved opcode."""
    async with AppWorld() as world:
        cookie = await world.enter()
        for wrong in (b"\x81\x01x", frame(b"x", opcode=3)):
            reader, writer, _ = await world.socket(cookie)
            writer.write(wrong)
            assert await _is_cut(reader)


async def test_a_closed_spare_connection_is_replaced() -> None:
    """It may close a free connection at any time, also when the next request is on its way."""
    async with AppWorld() as world:
        cookie = await world.enter()
        assert (await world.ask(cookie=cookie)).status == 200
        [free] = world.app.open
        free.transport.abort()
        assert (await world.ask(cookie=cookie)).status == 200
        assert world.app.connections == 2


@pytest.mark.parametrize(
    ("target", "own", "status"),
    [
        ("/close", b"", 502),
        ("/own", b"nonsense\r\n\r\n", 502),
        ("/own", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 502),
        ("/own", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502),
        ("/own", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 100),
    ],
)
async def test_bad_answers_of_an_app_become_502(target: str, own: bytes, status: int) -> None:
    """The browser gets words in place of what cannot be passed on; an interim answer is passed on."""
    async with AppWorld() as world:
        cookie = await world.enter()
        world.app.own = own
        assert (await world.ask(target, cookie=cookie)).status == status


async def test_a_truncated_answer_looks_truncated() -> None:
    """A browser must not take half of a file for the whole."""
    async with AppWorld() as world:
        cookie = await world.enter()
        world.app.own = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"
        reader, writer = await world.connect()
        writer.write(f"GET /own HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n\r\n".encode())
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readuntil(b"0\r\n\r\n")


async def test_a_starting_app_is_reported_as_starting() -> None:
    """A page for people, which asks again by itself; a line for programs."""
    async with AppWorld() as world:
        cookie = await world.enter()
        world.no_connection = "the application <is> starting"
        page = await world.ask("/", "Sec-Fetch-Mode: navigate", cookie=cookie)
        assert page.status == 503 and b"the application &lt;is&gt; starting" in page.body and b"refresh" in page.body
        plain = await world.ask("/api", cookie=cookie)
        assert plain.body == b"the application <is> starting\n" and "Retry-After: 2" in plain.head
        world.no_connection = ""
        assert (await world.ask("/", cookie=cookie)).status == 200


async def test_a_stalled_reader_slows_no_other_client() -> None:
    """An endless answer that nobody takes is held at a bounded length, and others of the same app are served meanwhile."""
    async with AppWorld() as world:
        cookie = await world.enter()
        reader, writer = await world.connect()
        writer.write(f"GET /endless HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        for _ in range(20):
            async with asyncio.timeout(1):
                assert (await world.ask(cookie=cookie)).status == 200
        [waiting] = list(world.proxy.apps._waiting)
        held = waiting[0].transport.get_write_buffer_size()
        assert held <= 256 * 1024
        writer.transport.abort()
        await eventually_async(lambda: not world.proxy.apps._waiting)


async def test_a_request_is_aborted_after_its_client() -> None:
    """The app is cut, so that it does no useless work; looked at every two seconds."""
    async with AppWorld() as world:
        cookie = await world.enter()
        _, writer = await world.connect()
        writer.write(f"GET /silent HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n\r\n".encode())
        await eventually_async(lambda: world.app.open)
        writer.close()
        await eventually_async(lambda: not world.app.open)


async def test_a_restarted_proxy_finds_entries() -> None:
    """It keeps nothing: the next request with the cookie is found at a gateway, and continues."""
    async with AppWorld() as world:
        cookie = await world.enter()
        await world.restart()
        assert (await world.ask(cookie=cookie)).status == 200
        assert any(isinstance(each, FindEntry) and each.cookie == digest(cookie) for each in world.asked)


async def test_an_entry_ends_with_its_right() -> None:
    """Within seconds: open sockets are cut, requests refused, and the words say why; others stay."""
    async with AppWorld() as world:
        cookie, other = await world.enter(), await world.enter()
        reader, _, _ = await world.socket(cookie)
        kept, kept_writer, _ = await world.socket(other)
        world.ended = EntriesEnded(ended={digest(cookie): (403, "the right to it has ended")})
        del world.entries[digest(cookie)]
        assert await _is_cut(reader)
        answer = await world.ask(cookie=cookie)
        assert answer.status == 403 and answer.body == b"the right to it has ended\n"
        kept_writer.write(sent := frame(b"x"))
        assert await kept.readexactly(len(sent)) == sent


async def test_entries_end_without_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that cannot see the end of a right lets no user stay for long."""
    monkeypatch.setattr("fairlead_appproxy.service.BLIND_S", 3.0)
    async with AppWorld() as world:
        reader, _, _ = await world.socket(await world.enter())
        world.ended = EntriesEnded(behind=True)
        assert await _is_cut(reader)


async def test_open_requests_of_an_app_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused in words, and fits again when another has ended."""
    monkeypatch.setattr(app_server, "OPEN_OF_APP_MAX", 2)
    async with AppWorld() as world:
        cookie = await world.enter()
        first, _ = [await world.socket(cookie) for _ in range(2)]
        refused = await world.ask(cookie=cookie)
        assert refused.status == 503 and b"2 requests and sockets" in refused.body
        first[1].transport.abort()
        await eventually_async(lambda: world.proxy.apps.table.runs[LABEL].open == 1)
        assert (await world.ask(cookie=cookie)).status == 200


async def test_remembered_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are idle are forgotten, and asked for again when they come; those with open sockets stay."""
    monkeypatch.setattr(app_runs, "ENTRIES_MAX", 10)
    async with AppWorld() as world:
        cookies = [await world.enter() for _ in range(10)]
        await world.socket(cookies[0])
        await world.enter()
        table = world.proxy.apps.table
        assert len(table.entries) == 10 and (LABEL, digest(cookies[0])) in table.entries
        assert (await world.ask(cookie=cookies[1])).status == 200


async def test_an_unknown_cookie_is_asked_for_once() -> None:
    """A flood of requests with one costs the gateways one question in some seconds."""
    async with AppWorld() as world:
        for _ in range(20):
            assert (await world.ask(cookie="forged")).status == 403
        assert len(world.asked) == 1


async def test_presence_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of data, and changes; neither the opening of a page nor a page's own polls."""
    monkeypatch.setattr(presence, "SETTLE_S", 0.0)
    async with AppWorld() as world:
        world.entry = AppEntry(job="7", attempt=1, profile="jupyterlab")
        cookie = await world.enter()

        def told() -> list[int]:
            return [
                each.active[LABEL] for each in world.asked if isinstance(each, RenewEntries) and LABEL in each.active
            ]

        await world.ask("/lab", "Sec-Fetch-Mode: navigate", cookie=cookie)
        await world.ask("/api/kernels", cookie=cookie)
        _, writer, _ = await world.socket(cookie)
        writer.write(frame(b"", opcode=9))
        await eventually_async(lambda: any(isinstance(each, RenewEntries) for each in world.asked))
        assert not told()
        writer.write(frame(b"x"))
        await eventually_async(told)


async def test_the_secret_of_an_app_is_added() -> None:
    """In place of what the browser sends: an app that is reached past the proxy is worth nothing."""
    async with AppWorld() as world:
        world.entry = AppEntry(job="7", attempt=1, profile="jupyterlab")
        cookie = await world.enter()
        got = (await world.ask("/", "Authorization: Basic abc", cookie=cookie)).body
        assert b"authorization: token s3cret\r\n" in got and b"Basic" not in got
        assert [type(each) for each in world.asked if not isinstance(each, RenewEntries)][-1] is ConnectApp


async def _is_cut(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(8):
            while await reader.read(65536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
