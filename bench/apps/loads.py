"""Loads on a proxy of the road: small requests, one large body, live and idle WebSockets, and readers that stall."""

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple, cast

from bench import http
from bench.apps.ends import ECHO, FRAME, GIB
from bench.apps.road import Proxy

#: Sockets of one app: fewer than a proxy of ours allows.
_OF_ONE_APP = 400
_HEAD = "GET {path} HTTP/1.1\r\nHost: http-7-{app}-abcdefgh.localhost\r\nCookie: fairlead-app=abc\r\n{more}\r\n"
_UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Origin: http://http-7-{app}-abcdefgh.localhost\r\n"
)
#: Sockets that are opened at a time.
_AT_ONCE = 50


def head(path: str, app: int = 1, *, upgrade: bool = False) -> bytes:
    """Return the bytes of a GET at one of the apps."""
    more = _UPGRADE.format(app=app) if upgrade else ""
    return _HEAD.format(path=path, app=app, more=more).encode()


class Rate(NamedTuple):
    """Requests a second, and CPU of the proxy for one, in µs."""

    per_s: float
    cpu_us: float


async def small(proxy: Proxy, connections: int, seconds: float) -> Rate:
    """Send small requests over so many connections for some seconds."""
    opened = [await http.connect(proxy.port) for _ in range(connections)]
    began, cpu = time.monotonic(), proxy.cpu_s()
    until, request = began + seconds, head("/")

    def requests() -> Iterator[bytes]:
        while time.monotonic() < until:
            yield request

    statuses = await http.storm_over(opened, requests())
    took, used = time.monotonic() - began, proxy.cpu_s() - cpu
    for each in opened:
        if each.transport is not None:
            each.transport.abort()
    if {*statuses} != {200}:
        raise SystemExit(f"{proxy.name}: answers {sorted({*statuses})}")
    return Rate(len(statuses) / took, used / len(statuses) * 1e6)


def large(proxy: Proxy) -> tuple[float, float]:
    """Fetch 1 GiB; return (GB a second, CPU seconds of the proxy)."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        buffer = memoryview(bytearray(2**20))
        began, cpu, left = time.monotonic(), proxy.cpu_s(), GIB
        client.sendall(head("/gib"))
        first = b""
        while b"\r\n\r\n" not in first:
            first += client.recv(65536)
        left -= len(first.partition(b"\r\n\r\n")[2])
        while left and (taken := client.recv_into(buffer)):
            left -= taken
        took = time.monotonic() - began
    if left:
        raise SystemExit(f"{proxy.name}: {left} bytes of 1 GiB are missing")
    return GIB / took / 1e9, proxy.cpu_s() - cpu


class Socket(asyncio.Protocol):
    """WebSocket that tells how long its last frame took to come back."""

    def __init__(self, request: bytes) -> None:
        self._request, self._got = request, b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent_at = 0.0
        self.took: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self.opened.done():
            if b"\r\n\r\n" not in self._got:
                return
            status, self._got = self._got[9:12], self._got.partition(b"\r\n\r\n")[2]
            if status != b"101":
                self.opened.set_exception(ConnectionError(f"status {status.decode()}"))
            else:
                self.opened.set_result(None)
        elif self._got == ECHO:
            self.took.append(time.perf_counter() - self._sent_at)
            self._got = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("closed"))

    def send(self) -> None:
        """Send a frame."""
        self._sent_at = time.perf_counter()
        self.transport.write(FRAME)


async def open_sockets(proxy: Proxy, count: int) -> list[Socket]:
    """Open so many WebSockets, over as many apps as they need."""
    found: list[Socket] = []
    loop = asyncio.get_running_loop()
    for some in itertools.batched(range(count), _AT_ONCE):
        made = [
            await loop.create_connection(
                lambda number=number: Socket(head("/socket", 1 + number // _OF_ONE_APP, upgrade=True)),
                "127.0.0.1",
                proxy.port,
            )
            for number in some
        ]
        sockets = [protocol for _, protocol in made]
        await asyncio.gather(*(each.opened for each in sockets))
        found += sockets
    return found


async def close_sockets(sockets: list[Socket]) -> None:
    """Cut them, and let the proxy take notice."""
    for each in sockets:
        each.transport.abort()
    await asyncio.sleep(1)


async def echo(sockets: list[Socket], per_s: int, seconds: float) -> list[float]:
    """Send frames over the sockets in turn, at a fixed pace; return how long each took to come back."""
    began = time.perf_counter()
    for number in range(int(per_s * seconds)):
        due = began + number / per_s
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        sockets[number % len(sockets)].send()
    await asyncio.sleep(0.2)
    took = [each for one in sockets for each in one.took]
    if len(took) < per_s * seconds * 0.99:
        raise SystemExit(f"{len(took)} of {per_s * seconds:.0f} frames came back")
    return took


class Stalled:
    """Clients that ask for 1 GiB and take nothing of it; a context manager."""

    def __init__(self, proxy: Proxy, count: int) -> None:
        self._clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(count)]

    def __enter__(self) -> None:
        for each in self._clients:
            each.sendall(head("/gib"))
        time.sleep(1.5)  # what the kernel and the proxy hold is full then

    def __exit__(self, *_: object) -> None:
        for each in self._clients:
            each.close()
        time.sleep(0.5)
