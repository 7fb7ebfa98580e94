"""A lean HTTP/1.1 load client: keep-alive connections, one request in flight on each.

Its own cost must stay small compared with the server's, since both share two cores: it knows just enough
of HTTP to find the status and the end of an answer with Content-Length.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """Keep-alive connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0 or self.answer is None:
            return
        length = _LENGTH.search(self.buffer, 0, end)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self.buffer) >= size:
            answer, self.answer = self.answer, None
            body, status = self.buffer[end + 4 : size], int(self.buffer[9:12])
            self.buffer = self.buffer[size:]
            answer.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(exc or ConnectionError("the server closed the connection"))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send one request; return (status, body)."""
        assert self.transport is not None
        self.answer = asyncio.get_running_loop().create_future()
        answer = self.answer
        self.transport.write(request)
        return await answer


async def connect(port: int) -> Connection:
    """A connection to a loopback port."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


def post(path: str, body: Any) -> bytes:
    """The bytes of a POST with a JSON body."""
    payload = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def request(method: str, path: str, body: Any, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request with headers, and a JSON body unless it is None."""
    payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    content = f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n" if payload else ""
    named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{content}{named}\r\n".encode() + payload


def put(path: str, body: Any) -> bytes:
    """The bytes of a PUT with a JSON body."""
    return post(path, body).replace(b"POST", b"PUT", 1)


async def storm(port: int, connections: int, requests: Iterator[bytes]) -> list[int]:
    """Send every request over so many connections; the statuses."""
    return await storm_over([await connect(port) for _ in range(connections)], requests)


async def storm_over(connections: Iterable[Connection], requests: Iterator[bytes]) -> list[int]:
    """Send every request over open connections; the statuses."""
    statuses: list[int] = []

    async def drive(connection: Connection) -> None:
        for request in requests:
            status, _ = await connection.send(request)
            statuses.append(status)

    await asyncio.gather(*map(drive, connections))
    return statuses
