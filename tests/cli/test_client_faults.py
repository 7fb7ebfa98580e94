"""A world that does not play along: addresses, names and servers that are not what they should be."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from fairlead.client.synchronous.transport import Transport
from fairlead.errors import Unreachable
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command line's gateway is a server that says this to everybody and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("FAIRLEAD_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("url", ["foo", "ftp://h", "http://", "http://h:99999", "http://h\x01"])
@pytest.mark.parametrize("words", [("jobs",), ("logs", "1"), ("events", "--follow")])
def test_an_address_that_is_none_is_refused(gateway: GatewayStub, run: Run, url: str, words: tuple[str, ...]) -> None:
    """Exit code 2 at once: nothing will ever answer there."""
    ran = run("--url", url, *words)
    assert (ran.code, gateway.requests) == (2, [])
    assert 'error: url: expected an address such as "http://127.0.0.1:8080"' in ran.err
    assert "--url or FAIRLEAD_URL" in ran.err


@pytest.mark.parametrize("name", ["josé", "Ada", "a\nb", "日本"])
def test_an_invalid_user_name_is_refused(gateway: GatewayStub, run: Run, name: str) -> None:
    """The error gives the valid characters, whether a header could carry the name or not."""
    ran = run("--as", name, "jobs")
    assert (ran.code, gateway.requests) == (2, [])
    assert "user: expected 1 to 63 of a-z 0-9 _ -" in ran.err


def test_a_token_or_key_that_no_header_carries_is_refused(
    gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key by name; the token without saying it."""
    assert run("submit", "--key", "é", "--", "true").err == "error: key: expected printable ASCII characters only\n"
    monkeypatch.setenv("FAIRLEAD_TOKEN", "secret\u00e9")
    ran = run("jobs")
    assert (ran.code, ran.err) == (2, "error: FAIRLEAD_TOKEN: expected printable ASCII characters only\n")
    assert gateway.requests == []


def test_a_name_that_no_address_carries_is_refused(gateway: GatewayStub, run: Run) -> None:
    """Exit code 2, nothing sent."""
    ran = run("cordon", "sim\n1")
    assert (ran.code, gateway.requests) == (2, [])
    assert "cannot be part of a URL" in ran.err


@pytest.mark.parametrize(
    "server",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhalf",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nhalf",
        b"SSH-2.0-x\r\n",
    ],
    indirect=True,
)
@pytest.mark.usefixtures("server")
def test_interrupted_output_is_6(run: Run) -> None:
    """The received part is printed; the message and the exit code report that it is incomplete."""
    ran = run("logs", "812")
    assert ran.code == 6
    assert ran.out in ("", "half")
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize("content", [b"<html>hello</html>", b"", b"[]", b'"\xff"'])
@pytest.mark.parametrize("words", [("jobs",), ("nodes",), ("show", "1"), ("why", "1"), ("submit", "--", "true")])
def test_an_invalid_answer_is_6(
    gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], content: bytes
) -> None:
    """Another program listens there, or a gateway of another version: the message says what to check."""
    monkeypatch.setattr(GatewayStub, "__call__", lambda self, request: httpx.Response(200, content=content))
    ran = run(*words)
    assert (ran.code, ran.out) == (6, "")
    assert "is not the gateway that was expected" in ran.err
    assert "hint: is this the address of a gateway" in ran.err


def test_another_gateway_is_asked_where_one_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same Idempotency-Key, so it is one job; the one that answers is asked from then on."""
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.host, request.headers.get("Idempotency-Key", "")))
        if request.url.host == "down":
            raise httpx.ConnectError("connection refused")
        return httpx.Response(201, json={"id": "7", "sequence": 1})

    monkeypatch.setenv("FAIRLEAD_URL", "http://down:8080, http://up:8080/")
    with Transport(user="ada", transport=httpx.MockTransport(answer)) as wire:
        wire._post("/v1/jobs", {}, key="k1")
        wire._post("/v1/jobs", {}, key="k2")
    assert asked == [("down", "k1"), ("up", "k1"), ("up", "k2")]


def test_all_gateways_are_named_where_none_can_be_reached() -> None:
    """After the tries that one would get."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    named = pytest.raises(Unreachable, match="http://a:1, http://b:2 cannot be reached")
    with Transport("http://a:1,http://b:2", user="ada", transport=httpx.MockTransport(refuse)) as wire, named:
        wire._get("/v1/jobs")


def _chunked(*pieces: bytes, is_whole: bool) -> bytes:
    """An answer of output in chunks; one that is not whole breaks off."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + chunks + (b"0\r\n\r\n" if is_whole else b"")


@pytest.mark.parametrize("addresses", [1, 2])
def test_output_is_followed_over_the_end_of_a_gateway(
    run: Run, addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one address or at the next one: no error, and every byte once. The second gateway has more of the output."""
    answers = [_chunked(b"one\ntw", is_whole=False), _chunked(b"one\n", b"two\nth", b"ree\n", is_whole=True)]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                with listening.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("FAIRLEAD_URL", ",".join([url, url.replace("127.0.0.1", "localhost")][:addresses]))
        ran = run("logs", "-f", "812")
        thread.join()
    assert (ran.code, ran.out, ran.err) == (0, "one\ntwo\nthree\n", "")
