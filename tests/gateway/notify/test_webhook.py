"""One webhook: its signature, its headers, and what counts as delivered."""

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlead_gateway.notify import webhook
from fairlead_gateway.notify.allowed_hosts import AllowedHosts
from fairlead_gateway.notify.webhook import SendFailed, WebhookSender, new_secret, signature
from tests.gateway.notify.notify_world import Receiver
from tests.kit.certificates import Authority

LOOPBACK = AllowedHosts(networks=("127.0.0.0/8",))
SECRET = new_secret()


@pytest.fixture
def threads() -> Any:
    """Threads for look-ups."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_the_signature_is_that_of_the_convention() -> None:
    """The example of the libraries of Standard Webhooks."""
    found = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_receiver_can_verify_what_it_gets(threads: Any) -> None:
    """By the headers and the body alone; two messages come over one connection."""
    async with Receiver() as receiver:
        sender = WebhookSender(receiver.url, SECRET, LOOPBACK, threads, lambda: 1_700_000_000)
        await sender.send("evt_1_0", b'{"id":"1.0"}', 5)
        await sender.send("evt_2_0", b'{"id":"2.0"}', 5)
        await sender.close()
        (first, _), headers = receiver.posts, receiver.posts[0].headers
        assert receiver.ids == ["1.0", "2.0"]
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        assert len(key) == 32
        digest = hmac.digest(key, b"evt_1_0.1700000000." + first.body, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("evt_1_0", "1700000000")
        assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize(
    ("answer", "gone", "words"),
    [
        ("500 Internal Server Error", False, "answered 500"),
        ("302 Found", False, "redirects are not followed"),
        ("307 Temporary Redirect", False, "redirects are not followed"),
        ("410 Gone", True, "answered 410"),
        ("404 Not Found", False, "answered 404"),
    ],
)
async def test_only_a_2xx_is_delivered(threads: Any, answer: str, gone: bool, words: str) -> None:
    """A redirect to this machine is not followed."""
    async with Receiver() as inner, Receiver(answer, f"location: {inner.url}\r\n") as receiver:
        sender = WebhookSender(receiver.url, SECRET, LOOPBACK, threads)
        with pytest.raises(SendFailed, match=words) as failed:
            await sender.send("evt_1_0", b"{}", 5)
        await sender.close()
        assert failed.value.gone is gone
        assert (len(receiver.posts), inner.posts) == (1, [])


async def test_a_receiver_that_hangs_or_is_away_has_failed(threads: Any) -> None:
    """Within the limit of an attempt; the words name no address."""
    async with Receiver("") as receiver:
        sender = WebhookSender(receiver.url, SECRET, LOOPBACK, threads)
        with pytest.raises(SendFailed, match=r"no answer within 0\.05 s"):
            await sender.send("evt_1_0", b"{}", 0.05)
        await receiver.stop()
        with pytest.raises(SendFailed, match=r"^the receiver cannot be connected to$"):
            await sender.send("evt_1_0", b"{}", 5)
        await sender.close()


async def test_a_name_that_leads_inside_is_refused_at_each_attempt(
    threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that had a public address before, and one of whose addresses one alone is inside. Nothing is connected to."""
    answers: list[list[str]] = [["93.184.215.14", "127.0.0.1"], ["127.0.0.1"], ["::ffff:169.254.169.254"], ["10.0.0.8"]]
    asked: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", (address, port)) for address in answers[len(asked) - 1]]

    monkeypatch.setattr(webhook.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(webhook, "_connect", None)
    sender = WebhookSender("https://hooks.example.org/x", SECRET, AllowedHosts(), threads)
    for _ in answers:
        with pytest.raises(SendFailed, match="not public"):
            await sender.send("evt_1_0", b"{}", 5)
    assert asked == ["hooks.example.org"] * len(answers)


async def test_the_connection_goes_to_the_judged_address(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up once for each connection, so that a second answer cannot differ from the judged one."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, *more: Any, **words: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if host == "hooks.internal" else host, *more, **words)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with Receiver() as receiver:
        url = receiver.url.replace("127.0.0.1", "hooks.internal")
        sender = WebhookSender(url, SECRET, LOOPBACK, threads)
        await sender.send("evt_1_0", b'{"id":"1.0"}', 5)
        await sender.close()
        assert receiver.posts[0].headers["host"] == f"hooks.internal:{receiver.port}"
    assert asked.count("hooks.internal") == 1 and set(asked) <= {"hooks.internal", "127.0.0.1"}


async def test_a_name_server_that_hangs_costs_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt ends in time though its thread does not."""
    release = threading.Event()
    monkeypatch.setattr(webhook.socket, "getaddrinfo", lambda *_, **__: release.wait(60))
    with ThreadPoolExecutor(1) as pool:
        sender = WebhookSender("https://hooks.example.org/x", SECRET, AllowedHosts(), pool)
        with pytest.raises(SendFailed, match="no answer"):
            await sender.send("evt_1_0", b"{}", 0.02)
        release.set()


async def test_a_long_answer_is_not_read_to_its_end(threads: Any) -> None:
    """It counts by its status, and costs the connection alone."""
    async with Receiver() as receiver:
        receiver.answer_body = b"x" * 50_000_000
        sender = WebhookSender(receiver.url, SECRET, LOOPBACK, threads)
        for number in range(2):
            await sender.send("evt_1_0", b'{"id":"%d.0"}' % number, 5)
        await sender.close()
        assert receiver.ids == ["0.0", "1.0"] and receiver.connections == 2


async def test_what_is_no_http_has_failed(threads: Any) -> None:
    """Another service's greeting, a header without an end, and a connection that just ends."""
    greetings = [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, b""]

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(greetings[0])
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        while greetings:
            sender = WebhookSender(url, SECRET, LOOPBACK, threads)
            with pytest.raises(SendFailed, match=r"as HTTP has it|connection to the receiver failed"):
                await sender.send("evt_1_0", b"{}", 5)
            greetings.pop(0)


async def test_a_kept_connection_that_has_ended_costs_no_failure(threads: Any) -> None:
    """Receivers close connections that rest."""
    async with Receiver() as receiver:
        sender = WebhookSender(receiver.url, SECRET, LOOPBACK, threads)
        await sender.send("evt_1_0", b'{"id":"1.0"}', 5)
        await receiver.stop()
        await receiver.start()
        await sender.send("evt_2_0", b'{"id":"2.0"}', 5)
        await sender.close()
        assert receiver.ids == ["1.0", "2.0"] and receiver.connections == 2


@pytest.mark.parametrize(
    ("host", "trusted", "words"),
    [("localhost", True, ""), ("localhost", False, "certificate"), ("other.internal", True, "certificate")],
)
async def test_a_certificate_must_be_that_of_the_name(
    threads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, trusted: bool, words: str
) -> None:
    """With TLS a receiver that nobody has vouched for gets nothing, though the connection goes to an address."""
    authority, context = Authority(tmp_path), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.write(tmp_path / "cert.pem", tmp_path / "key.pem", "x")
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trust = ssl.create_default_context(cafile=str(authority.ca) if trusted else None)
    monkeypatch.setattr(webhook, "_tls", lambda: trust)
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **how: real("127.0.0.1", *more, **how))
    async with Receiver() as receiver:
        await receiver.stop()
        await receiver.start(context)
        url = f"https://{host}:{receiver.port}/"
        sender = WebhookSender(url, SECRET, LOOPBACK, threads)
        if words:
            with pytest.raises(SendFailed, match=words):
                await sender.send("evt_1_0", b'{"id":"1.0"}', 5)
        else:
            await sender.send("evt_1_0", b'{"id":"1.0"}', 5)
        await sender.close()
        assert receiver.ids == ([] if words else ["1.0"])
