"""Listening end of the app proxy: takes clients and nodes with their secrets, and passes bytes between the two ends of a tunnel.

One connection is one end: the kernel's flow control is the tunnel's, since no more is read from one end than the other has taken.
Start at `TunnelServer._take`.
"""

import asyncio
import contextlib
import functools
import ssl
import time
from collections.abc import Callable

import structlog

from fairlead_appproxy.app_server import AppServer
from fairlead_appproxy.connection import CutOff, HttpConnection, Silent
from fairlead_appproxy.head import CarriedRequest, HeadRefused, read_request
from fairlead_appproxy.service_server import ServiceServer
from fairlead_appproxy.tunnel_table import NotExpected, TunnelTable
from fairlead_bus.splice import SpliceEnd, splice
from fairlead_schemas.wire.tunnels import CLIENT_END, MEET_S, NODE_END, PATH

#: From a connection to its whole head.
HEAD_S = 10.0
#: Connections that have sent no whole head yet.
HEADS_MAX = 1000
#: A tunnel of which one direction has ended is cut when the other says nothing for so long: a client that has gone looks alike.
HALF_OPEN_S = 60.0
#: Connections that the kernel holds until they are taken.
BACKLOG = 1024
_ENDS = {CLIENT_END.encode(): True, NODE_END.encode(): False}
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 431: "Too Large", 501: "Not Implemented"}

log = structlog.get_logger()


class _Pair:
    """Both ends of a tunnel, of which the first waits for the second."""

    def __init__(self, first: HttpConnection) -> None:
        self.ends = [first]
        self.splice: tuple[SpliceEnd, SpliceEnd] | None = None
        self.done = asyncio.Event()

    @property
    def carried(self) -> int:
        """Bytes so far, in both directions."""
        return sum(end.carried for end in self.splice or ())

    def cut(self) -> None:
        """Cut both connections."""
        for end in self.ends:
            end.abort()
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._carried = 0

    @property
    def bytes_carried(self) -> int:
        """Bytes that tunnels have carried so far, in both directions."""
        return self._carried + sum(pair.carried for pair in self._pairs.values())

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port."""
        make = functools.partial(HttpConnection, self._begin)
        self._server = await asyncio.get_running_loop().create_server(make, host, port, ssl=tls, backlog=BACKLOG)
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
            self._carried += pair.carried
            pair.cut()
            log.info("tunnel ended", tunnel=tunnel, reason=reason)

    def end_overdue(self) -> None:
        """End the tunnels whose ends have not both come in time."""
        for tunnel in self._table.overdue(self._clock()):
            self.end(tunnel, f"one end has not come within {MEET_S:g} s")

    def _begin(self, connection: HttpConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._take(connection))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, connection))

    def _done(self, connection: HttpConnection, task: asyncio.Task[None]) -> None:
        """Cut a connection whose handling has failed or was stopped."""
        self._tasks.discard(task)
        if task.cancelled():
            connection.abort()
        elif (error := task.exception()) is not None:
            log.error("a connection has failed", exc_info=error)
            connection.abort()

    async def _take(self, connection: HttpConnection) -> None:
        """Handle one connection to its end."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            try:
                head = await self._head(connection)
                if self._services.takes(head):
                    await self._services.serve(head, connection)
                    connection.close()
                    return
                if self._apps.hosts.of(head.values(b"host")[0]) is not None:
                    if await self._apps.serve(head, connection):
                        return  # a WebSocket, which lives on by itself
                    connection.close()
                    return
                is_client, secret = _credentials(head)
                if not is_client and (coming := self._apps.take_node(secret)) is not None:
                    if coming.done():  # whoever waited for it has gone
                        connection.abort()
                        return
                    connection.transport.write(_upgraded(NODE_END))
                    coming.set_result(connection)
                    return
                tunnel = self._table.arrive(secret, self._clock(), is_client=is_client)
            except (HeadRefused, NotExpected) as refused:
                await _refuse(connection, refused)
            except Silent:
                pass  # neither end sends so little, or so slowly
            else:
                await self._join(tunnel.id, connection, CLIENT_END if is_client else NODE_END)
        connection.abort()

    async def _head(self, connection: HttpConnection) -> CarriedRequest:
        if self._heads >= HEADS_MAX:
            raise HeadRefused(403, "too many connections at once")
        self._heads += 1
        try:
            data = await connection.head(HEAD_S, HEAD_S)
        finally:
            self._heads -= 1
        if not data:
            raise CutOff
        return read_request(data)

    async def _join(self, tunnel: str, end: HttpConnection, name: str) -> None:
        """Wait for the other end, or carry for both where this one is the second."""
        end.transport.write(_upgraded(name))
        pair = self._pairs.get(tunnel)
        if pair is None:
            pair = self._pairs[tunnel] = _Pair(end)
            await pair.done.wait()
            return
        pair.ends.append(end)
        first, second = pair.splice = SpliceEnd(pair.ends[0]), SpliceEnd(pair.ends[1])
        try:
            await splice(first, second, half_open_s=HALF_OPEN_S)
        finally:
            self.end(tunnel, "an end has closed")


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


async def _refuse(connection: HttpConnection, refused: HeadRefused | NotExpected) -> None:
    status = refused.status if isinstance(refused, HeadRefused) else 403
    body = f"{refused}\n".encode()
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAD_S):
            await connection.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    connection.close()
