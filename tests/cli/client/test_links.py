"""One contract for what carries requests: plain sockets, httpx, and httpx for coroutines."""

import asyncio
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.client.answers import Answer, LinkBroken, LinkRefused
from fairlead.client.async_link import AsyncGatewayLink
from fairlead.client.sync_link import GatewayLink

pytestmark = pytest.mark.connected

type Send = Callable[[str], Answer]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Fairlead-Sequence: 7\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


class RawServer:
    """Server that answers each request with the next of these bytes, and closes the connection after an empty one."""

    def __init__(self, answers: list[bytes], tls: ssl.SSLContext | None = None) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listening.accept()[0]
            except OSError:
                return
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                self.connections += 1
                self._answer(connection)
            except OSError:
                pass  # the client has gone
            finally:
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        while (request := connection.recv(65536)) and self.answers:
            self.requests.append(request)
            answer = self.answers.pop(0)
            connection.sendall(answer)
            if not answer.endswith((b"ok", b"\r\n\r\n")):
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    """Start servers; all are closed at the end."""
    servers: list[RawServer] = []

    def start(answers: list[bytes], tls: ssl.SSLContext | None = None) -> RawServer:
        servers.append(RawServer(answers, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(params=["plain", "httpx", "async"])
def send(request: pytest.FixtureRequest) -> Iterator[Send]:
    """Send a GET by one of the links, on which connections are kept."""
    headers = {"X-Fairlead-User": "ada"}
    if request.param == "async":
        loop = asyncio.new_event_loop()
        asynchronous = AsyncGatewayLink(["https://x"])
        yield lambda url: loop.run_until_complete(asynchronous.request("GET", url, headers, None, 60.0))
        loop.run_until_complete(asynchronous.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        return
    # A transport that is httpx's own makes the link use it as it would use a stub.
    link = GatewayLink(["https://x"], httpx.HTTPTransport() if request.param == "httpx" else None)
    yield lambda url: link.request("GET", url, headers, None, 60.0)
    link.close()


@pytest.mark.parametrize("answer", [OK, CHUNKED])
def test_an_answer_has_status_headers_and_body(serve: Callable[..., RawServer], send: Send, answer: bytes) -> None:
    """Headers are found in any case of their names, and the request has path, query, host and headers as given."""
    server = serve([answer])
    found = send(f"http://127.0.0.1:{server.port}/v1/jobs?limit=1")
    assert (found.status, found.content) == (200, b"ok")
    assert found.headers.get("x-FAIRLEAD-sequence") == ("7" if answer is OK else None)
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /v1/jobs?limit=1 HTTP/1.1"
    assert f"host: 127.0.0.1:{server.port}" in [line.lower() for line in lines]
    assert "x-fairlead-user: ada" in [line.lower() for line in lines]


def test_a_connection_is_kept(serve: Callable[..., RawServer], send: Send) -> None:
    """The second request needs no handshake."""
    server = serve([OK, OK])
    url = f"http://127.0.0.1:{server.port}/"
    assert [send(url).content, send(url).content] == [b"ok", b"ok"]
    assert server.connections == 1


@pytest.fixture(params=["plain", "httpx"])
def link(request: pytest.FixtureRequest) -> Iterator[GatewayLink]:
    """A link whose streams are read."""
    found = GatewayLink([], httpx.HTTPTransport() if request.param == "httpx" else None)
    yield found
    found.close()


def test_a_stream_has_status_headers_and_pieces(serve: Callable[..., RawServer], link: GatewayLink) -> None:
    """As bytes and as text, whose characters may end in another piece."""
    chunks = "".join(f"{len(each):x}\r\n{each}\r\n" for each in ("caf", "\xc3", "\xa9")).encode("latin-1")
    answer = b"HTTP/1.1 404 Not Found\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunks
    server = serve([answer, answer, answer])
    url = f"http://127.0.0.1:{server.port}/v1/events?follow=true"
    with link.stream(url, {"Accept": "text/event-stream"}, None) as found:
        assert (found.status_code, found.headers.get("x-a"), found.read()) == (404, "b", "caf\xe9".encode())
    with link.stream(url, {}, None) as found:
        assert "".join(found.iter_text()) == "caf\xe9"
    with link.stream(url, {}, None) as found:
        assert b"".join(found.iter_bytes()) == "caf\xe9".encode()
    lines = server.requests[0].decode().lower().split("\r\n")
    assert lines[0] == "get /v1/events?follow=true http/1.1" and "accept: text/event-stream" in lines


def test_a_stream_that_breaks_off_is_a_broken_link(serve: Callable[..., RawServer], link: GatewayLink) -> None:
    """What came before is given out."""
    half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
    url = f"http://127.0.0.1:{serve([half]).port}/"
    pieces: list[bytes] = []

    def read() -> None:
        with link.stream(url, {}, None) as found:
            pieces.extend(found.iter_bytes())

    with pytest.raises(LinkBroken):
        read()
    assert pieces == [b"half"]


def test_an_error_of_a_reader_of_a_stream_is_not_the_links(serve: Callable[..., RawServer], link: GatewayLink) -> None:
    """`fairlead logs | head` ends the reader, not the connection."""
    url = f"http://127.0.0.1:{serve([CHUNKED]).port}/"

    def read() -> None:
        with link.stream(url, {}, None):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        read()


def test_a_silent_stream_is_a_broken_link(serve: Callable[..., RawServer], link: GatewayLink) -> None:
    """After as long as the caller allows."""
    server = serve([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])
    url = f"http://127.0.0.1:{server.port}/"
    with pytest.raises(LinkBroken), link.stream(url, {}, 0.01) as found:
        found.read()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf",
        b"SSH-2.0-x\r\n",
        b"",
    ],
)
def test_a_broken_answer_is_a_broken_link_and_the_next_request_is_whole(
    serve: Callable[..., RawServer], send: Send, answer: bytes
) -> None:
    """The transport sends again, on a new connection."""
    server = serve([answer, OK])
    url = f"http://127.0.0.1:{server.port}/"
    with pytest.raises(LinkBroken):
        send(url)
    assert send(url).content == b"ok"
    assert server.connections == 2


def test_a_connection_that_the_gateway_closed_is_opened_again(serve: Callable[..., RawServer], send: Send) -> None:
    """A gateway may close a connection that is kept, at any time."""
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend"
    server = serve([closing, OK])
    url = f"http://127.0.0.1:{server.port}/"
    assert send(url).content == b"end"
    assert send(url).content == b"ok"


def test_an_encoding_that_cannot_be_read_is_refused(serve: Callable[..., RawServer], send: Send) -> None:
    """Sending again would not mend it."""
    server = serve([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"])
    with pytest.raises(LinkRefused):
        send(f"http://127.0.0.1:{server.port}/")


def test_nothing_that_listens_is_a_broken_link(send: Send) -> None:
    """The port was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(LinkBroken):
        send(f"http://127.0.0.1:{port}/")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that has signed itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


def test_an_unknown_certificate_is_refused(serve: Callable[..., RawServer], send: Send, certificate: Path) -> None:
    """Nothing is sent: the token must not reach another server."""
    server = serve([OK], _tls(certificate))
    with pytest.raises(LinkBroken, match=r"(?i)certificate verify failed"):
        send(f"https://localhost:{server.port}/")
    assert server.requests == []


def test_a_trusted_certificate_counts_for_its_name_only(
    serve: Callable[..., RawServer], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain link does TLS itself, so it checks names itself."""
    monkeypatch.setattr("certifi.where", lambda: str(certificate))
    server = serve([OK], _tls(certificate))
    link = GatewayLink(["https://localhost"])
    assert link.request("GET", f"https://localhost:{server.port}/", {}, None, 60.0).content == b"ok"
    link.close()
    other = serve([OK], _tls(certificate))
    with pytest.raises(LinkBroken, match="mismatch"):
        GatewayLink(["https://x"]).request("GET", f"https://127.0.0.1:{other.port}/", {}, None, 60.0)
    assert other.requests == []
