"""TLS of the gateway over real sockets: certificates from files, new ones without a restart, pairs that do not fit."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop

from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.tls import Certificate, TlsFiles
from fairlead_gateway.server import handshakes
from fairlead_gateway.server.http_server import HttpServer, HttpSettings, listen, make_server
from tests.gateway.world import GatewayWorld
from tests.kit.certificates import Authority
from tests.kit.eventually import eventually_async

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SUBMIT = b'{"name":"a","command":["true"]}'
POST = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (
        len(SUBMIT),
        SUBMIT,
    )
)


class Pair(NamedTuple):
    """Files of a certificate, and who signs new ones."""

    authority: Authority
    files: TlsFiles

    def renew(self, name: str) -> None:
        """Write a new pair with this common name."""
        self.authority.write(*self.files, name)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A pair called "first"."""
    made = Pair(Authority(tmp_path), TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem"))
    made.renew("first")
    return made


@contextlib.asynccontextmanager
async def serving(pair: Pair, *, connections_max: int = 64) -> AsyncIterator[tuple[HttpServer, int]]:
    """Serve with TLS until the block ends; yields the server and its port."""
    settings = HttpSettings(port=0, tls=pair.files, connections_max=connections_max)
    async with GatewayWorld(http=settings) as world:
        server = make_server(world.gateway.app, settings, world.gateway.metrics.count_refusal)
        door = listen(settings)
        task = asyncio.create_task(server.serve(sockets=[door]))
        try:
            yield server, door.getsockname()[1]
        finally:
            server.stop()
            await task


@contextlib.asynccontextmanager
async def connected(
    pair: Pair, port: int, host: str = "localhost"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, str]]:
    """A verified connection, and the common name of the certificate that it was shown."""
    context = ssl.create_default_context(cafile=str(pair.authority.ca))
    reader, writer = await asyncio.open_connection(host, port, ssl=context, family=2)
    shown = dict(entry[0] for entry in writer.get_extra_info("peercert")["subject"])
    try:
        yield reader, writer, shown["commonName"]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send a request; the status line of its answer, whose body is read."""
    writer.write(request)
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return head.partition(b"\r\n")[0]


async def test_a_new_certificate_is_taken_and_open_connections_go_on(pair: Pair) -> None:
    """Ordinary and fast routes answer over TLS; a renewal shows in the next handshake."""
    async with serving(pair) as (server, port), connected(pair, port) as (reader, writer, name):
        assert server.certificate is not None
        assert name == "first"
        assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"
        assert (await ask(reader, writer, POST)).startswith(b"HTTP/1.1 20")
        pair.renew("second")
        assert server.certificate.reload()
        assert not server.certificate.reload(), "nothing new"
        assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"
        async with connected(pair, port) as (later_reader, later_writer, later):
            assert later == "second"
            assert await ask(later_reader, later_writer, GET) == b"HTTP/1.1 200 OK"


async def test_a_renewal_with_another_kind_of_key_replaces_the_old_one(pair: Pair) -> None:
    """By name and by address. The library keeps a pair for each kind of key, and clients prefer one kind."""
    async with serving(pair) as (server, port):
        assert server.certificate is not None
        for name, is_rsa in (("second", True), ("third", False), ("fourth", True)):
            pair.authority.write(*pair.files, name, is_rsa=is_rsa)
            assert server.certificate.reload()
            for host in ("localhost", "127.0.0.1"):
                async with connected(pair, port, host) as (reader, writer, shown):
                    assert shown == name
                    assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"


async def test_half_a_renewal_leaves_the_old_pair_in_use(pair: Pair) -> None:
    """A certificate without its key yet, an empty file, no file: each is tried again, and the whole pair is taken."""
    async with serving(pair) as (server, port):
        assert server.certificate is not None
        old_key = pair.files.key.read_bytes()
        pair.renew("second")
        new_key = pair.files.key.read_bytes()
        for broken in (old_key, b"", None):
            if broken is None:
                pair.files.key.unlink()
            else:
                pair.files.key.write_bytes(broken)
            assert not server.certificate.reload()
            async with connected(pair, port) as (reader, writer, name):
                assert name == "first"
                assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"
        pair.files.key.write_bytes(new_key)
        assert server.certificate.reload()
        async with connected(pair, port) as (*_, name):
            assert name == "second"


@pytest.mark.parametrize(("days", "words"), [(20, ""), (13, "in 13.0 days"), (-1, "expired at")])
def test_a_pair_that_ends_soon_or_has_ended_is_warned_of(
    pair: Pair, days: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is taken: the gateway says in its log and in `/readyz` what clients will say. The log has the end of every pair."""
    pair.authority.write(*pair.files, "short", life=timedelta(days=days, minutes=1))
    found = Certificate(pair.files).condition()
    assert (found.code, words in found.message) == ("certificate_expires", True) if found else not words
    logged = capfd.readouterr()
    assert "valid_until" in logged.out + logged.err
    assert ("certificate needs a renewal" in logged.out + logged.err) == bool(words)


async def test_a_renewed_pair_ends_the_condition(pair: Pair) -> None:
    """The condition names no reason to take jobs elsewhere: it blocks nothing."""
    pair.authority.write(*pair.files, "first", life=timedelta(days=3))
    async with GatewayWorld(http=HttpSettings(port=0, tls=pair.files)) as world:
        gateway = world.gateway
        server = gateway._server = make_server(gateway.app, gateway.settings.http, gateway.metrics.count_refusal)
        codes = [each.code for each in gateway.conditions() if not each.blocks]
        assert "certificate_expires" in codes
        pair.authority.write(*pair.files, "second", life=timedelta(days=90))
        assert server.certificate is not None and server.certificate.reload()
        assert "certificate_expires" not in [each.code for each in gateway.conditions()]


async def test_plain_http_and_old_versions_get_no_answer(pair: Pair) -> None:
    """Neither is redirected nor served."""
    async with serving(pair) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert b"200" not in await reader.read()
        writer.close()
        context = ssl.create_default_context(cafile=str(pair.authority.ca))
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("localhost", port, ssl=context, family=2)


async def test_a_connection_over_the_bound_is_closed(pair: Pair) -> None:
    """TLS cannot be closed in one direction, as plain connections are there."""
    async with serving(pair, connections_max=1) as (_, port), connected(pair, port), connected(pair, port) as second:
        async with asyncio.timeout(30):
            assert b"503" in await second[0].read()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_open_handshakes_block_no_other_client(pair: Pair, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """Twice as many as the bound send nothing, or half a hello: the oldest end, a client gets in, and a stop waits for none."""
    run(_crowd(pair))


async def _crowd(pair: Pair) -> None:
    async with serving(pair) as (server, port):
        assert server.handshakes is not None
        server.handshakes.count_max = 8
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        for _, writer in silent[::2]:
            writer.write(b"\x16\x03\x01\x02")
        async with asyncio.timeout(30):
            for reader, _ in silent[:8]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        assert len(server.handshakes) == 8
        async with connected(pair, port) as (reader, writer, _):
            assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"
            assert await ask(reader, writer, GET) == b"HTTP/1.1 200 OK"
        for _, writer in silent:
            writer.close()
        handshakes = server.handshakes
        await eventually_async(lambda: len(handshakes) == 0)
        await eventually_async(lambda: len(server.server_state.connections) == 0)
        last = await asyncio.open_connection("127.0.0.1", port)
        await eventually_async(lambda: len(handshakes) == 1)
    assert len(handshakes) == 0
    last[1].close()


async def test_a_handshake_that_takes_too_long_ends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed, and no longer counted."""
    monkeypatch.setattr(handshakes, "HANDSHAKE_S", 0.1)
    async with serving(pair) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert server.handshakes is not None and len(server.handshakes) == 0
        writer.close()


async def test_a_request_in_the_handshakes_last_bytes_is_answered(pair: Pair) -> None:
    """A client's end of the handshake and its request may come in one segment."""
    async with serving(pair) as (_, port):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=str(pair.authority.ca)).wrap_bio(
            incoming, outgoing, server_hostname="localhost"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(30):
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            client.write(GET)
            writer.write(outgoing.read())
            answer = b""
            while b"200 OK" not in answer:
                incoming.write(await reader.read(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    answer += client.read(65536)
        writer.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda pair: pair.files.key.unlink(), "No such file"),
        (lambda pair: pair.files.cert.write_text("no"), "no start line|PEM"),
        (lambda pair: pair.files.key.write_bytes(pair.authority.ca.read_bytes()), ""),
    ],
    ids=["no-key", "no-pem", "no-private-key"],
)
def test_a_start_with_files_that_cannot_be_used_is_refused(pair: Pair, change, told: str) -> None:
    """By the settings' names and the files."""
    change(pair)
    with pytest.raises(BadSetting, match=f"FAIRLEAD_TLS_CERT.*{pair.files.key}.*({told})"):
        Certificate(pair.files)


def test_both_settings_or_none() -> None:
    """One alone would silently serve plain HTTP."""
    assert TlsFiles.from_environment({}) is None
    with pytest.raises(BadSetting, match="FAIRLEAD_TLS_KEY: expected the path"):
        TlsFiles.from_environment({"FAIRLEAD_TLS_CERT": "a"})
    with pytest.raises(BadSetting, match="FAIRLEAD_TLS_CERT: expected the path"):
        TlsFiles.from_environment({"FAIRLEAD_TLS_KEY": "a"})


@pytest.mark.parametrize(
    ("host", "has_tls", "expected"),
    [("0.0.0.0", True, "max-age=31536000"), ("127.0.0.1", True, ""), ("0.0.0.0", False, "")],
)
async def test_browsers_come_back_by_https_alone(pair: Pair, host: str, has_tls: bool, expected: str) -> None:
    """Every answer says so where the name is the gateway's alone, refusals and the fast routes included."""
    http = HttpSettings(host=host, tls=pair.files if has_tls else None)
    async with GatewayWorld(http=http, sign_on="off") as world:
        answers = [
            await world.http.get("/healthz"),
            await world.http.get("/nothing"),
            await world.http.post("/v1/jobs", content=SUBMIT, headers={"content-type": "application/json"}),
            await world.http.get("/healthz", headers={"host": "evil.example"}),
        ]
        assert [each.status_code for each in answers] == [200, 404, 201, 421]
        assert {each.headers.get("strict-transport-security", "") for each in answers} == {expected}
