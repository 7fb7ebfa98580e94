"""Listening end of the app proxy: takes clients and nodes with their secrets, and passes bytes between the two ends of a tunnel.

One connection is one end: the kernel's flow control is the tunnel's, since no more is read from one end than the other has taken.
Start at `TunnelServer._take`.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from fairlead_appproxy.app_server import AppServer
from fairlead_appproxy.connection import HttpConnection
from fairlead_appproxy.head import CarriedRequest, HeadRefused, end_of_head, read_request
from fairlead_appproxy.service_server import ServiceServer
from fairlead_appproxy.tunnel_table import NotExpected, TunnelTable
from fairlead_schemas.wire.tunnels import CLIENT_END, MEET_S, NODE_END, PATH

#: From a connection to its whole head.
HEAD_S = 10.0
#: Connections that have sent no whole head yet.
HEADS_MAX = 1000
#: A tunnel of which one direction has ended is cut when the other says nothing for so long: a client that has gone looks alike.
HALF_OPEN_S = 60.0
#: Read from one end at a time, and held for the other end at the most.
PIECE_BYTES = 64 * 1024
_ENDS = {CLIENT_END.encode(): True, NODE_END.encode(): False}
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 431: "Too Large", 501: "Not Implemented"}

log = structlog.get_logger()


class _End(NamedTuple):
    """One connection, and what came behind its head."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytes


class _Pair:
    """Both ends of a tunnel, of which the first waits for the second."""

    def __init__(self, first: _End) -> None:
        self.ends = [first]
        self.carried = 0
        self.done = asyncio.Event()

    def cut(self) -> None:
        """Cut both connections."""
        for end in self.ends:
            end.writer.transport.abort()
        self.done.set()


class TunnelServer:
    """Server of both ends. `open` and `close`; `end` ends one tunnel."""

    def __init__(
        self,
        table: TunnelTable,
        apps: AppServer,
        services: ServiceServer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table, self._apps, self._services, self._clock = table, apps, services, clock
        self._pairs: dict[str, _Pair] = {}
        self._heads = 0
        self._server: asyncio.Server | None = None
        self.bytes_carried = 0

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._take, host, port, ssl=tls, limit=PIECE_BYTES)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End all tunnels and listen no more."""
        if self._server is not None:
            self._server.close()
        for tunnel in [*self._pairs]:
            self.end(tunnel, "the app proxy ends")

    def end(self, tunnel: str, reason: str) -> None:
        """End a tunnel at once: both connections are cut."""
        self._table.end(tunnel)
        pair = self._pairs.pop(tunnel, None)
        if pair is not None:
            pair.cut()
            log.info("tunnel ended", tunnel=tunnel, reason=reason)

    def end_overdue(self) -> None:
        """End the tunnels whose ends have not both come in time."""
        for tunnel in self._table.overdue(self._clock()):
            self.end(tunnel, f"one end has not come within {MEET_S:g} s")

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection to its end."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            try:
                head, rest = await self._head(reader)
                if self._services.takes(head):
                    await self._services.serve(head, HttpConnection(reader, writer, rest))
                    writer.close()
                    return
                if self._apps.hosts.of(head.values(b"host")[0]) is not None:
                    if await self._apps.serve(head, HttpConnection(reader, writer, rest)):
                        return  # a WebSocket, which lives on by itself
                    writer.close()
                    return
                is_client, secret = _credentials(head)
                if not is_client and (coming := self._apps.take_node(secret)) is not None:
                    writer.write(_upgraded(NODE_END))
                    coming.set_result(HttpConnection(reader, writer, rest))
                    return
                tunnel = self._table.arrive(secret, self._clock(), is_client=is_client)
            except (HeadRefused, NotExpected) as refused:
                await _refuse(writer, refused)
            except (TimeoutError, asyncio.IncompleteReadError):
                pass  # neither end sends so little, or so slowly
            else:
                await self._join(tunnel.id, _End(reader, writer, rest), CLIENT_END if is_client else NODE_END)
        writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> tuple[CarriedRequest, bytes]:
        if self._heads >= HEADS_MAX:
            raise HeadRefused(403, "too many connections at once")
        self._heads += 1
        try:
            async with asyncio.timeout(HEAD_S):
                data = b""
                while not (end := end_of_head(data)):
                    more = await reader.read(4096)
                    if not more:
                        raise asyncio.IncompleteReadError(data, None)
                    data += more
        finally:
            self._heads -= 1
        return read_request(data[:end]), data[end:]

    async def _join(self, tunnel: str, end: _End, name: str) -> None:
        """Wait for the other end, or carry for both where this one is the second."""
        end.writer.write(_upgraded(name))
        pair = self._pairs.get(tunnel)
        if pair is None:
            pair = self._pairs[tunnel] = _Pair(end)
            await pair.done.wait()
            return
        pair.ends.append(end)
        try:
            await self._carry_both(pair)
        finally:
            self.end(tunnel, "an end has closed")

    async def _carry_both(self, pair: _Pair) -> None:
        """Carry until both directions have ended, one has failed, or one has ended and the other says nothing for long."""
        first, second = pair.ends
        carrying = {
            asyncio.create_task(self._carry(pair, first, second)),
            asyncio.create_task(self._carry(pair, second, first)),
        }
        try:
            ended, left = await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
            while left and not any(task.exception() for task in ended):
                before = pair.carried
                ended, left = await asyncio.wait(left, timeout=HALF_OPEN_S)
                if pair.carried == before:
                    break
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)

    async def _carry(self, pair: _Pair, sender: _End, receiver: _End) -> None:
        """Pass on one direction to its end. Raises ConnectionError, which ends both."""
        piece = sender.rest
        while piece or (piece := await sender.reader.read(PIECE_BYTES)):
            self.bytes_carried += len(piece)
            pair.carried += len(piece)
            receiver.writer.write(piece)
            await receiver.writer.drain()
            piece = b""
        if not receiver.writer.can_write_eof():  # TLS has no half of a connection: its sender takes nothing more
            receiver.writer.close()
            async with asyncio.timeout(HALF_OPEN_S):
                await receiver.writer.wait_closed()  # what was sent before the end is not cut with it
            raise ConnectionResetError
        receiver.writer.write_eof()


def _upgraded(name: str) -> bytes:
    return f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {name}\r\n\r\n".encode()


def _credentials(head: CarriedRequest) -> tuple[bool, str]:
    """Return (True for a client's end, its secret). Raises HeadRefused."""
    if head.target != PATH.encode() or head.method != b"GET":
        raise HeadRefused(404, "this is the road to sessions; nothing else is here")
    upgrades, credentials = head.values(b"upgrade"), head.values(b"authorization")
    if len(upgrades) != 1 or upgrades[0] not in _ENDS or not head.body.is_empty:
        raise HeadRefused(400, f"expected an upgrade to {CLIENT_END} or {NODE_END}")
    scheme, _, secret = (credentials[0] if len(credentials) == 1 else b"").partition(b" ")
    if scheme != b"Bearer" or not secret:
        raise HeadRefused(403, "expected Authorization: Bearer with a code")
    return _ENDS[upgrades[0]], secret.decode("latin-1")


async def _refuse(writer: asyncio.StreamWriter, refused: HeadRefused | NotExpected) -> None:
    status = refused.status if isinstance(refused, HeadRefused) else 403
    body = f"{refused}\n".encode()
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAD_S):
            await writer.drain()
    writer.close()
