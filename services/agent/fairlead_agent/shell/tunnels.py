"""Node's end of tunnels: connects a port of a run, or a command inside it, and dials out to the app proxy with a ticket. No port of the node is opened.

Start at `NodeTunnels.answer`.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.run_ports import NoListener
from fairlead_agent.shell.run_connections import NotRunning, RunConnections
from fairlead_agent.shell.ssh_end import NoSsh
from fairlead_bus.port import Message
from fairlead_bus.splice import NewConnection, SpliceEnd, splice
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.wire.tunnels import NODE_END, PATH, OpenTunnel, TunnelOpened

#: Open tunnels of one node.
TUNNELS_MAX = 200
DIAL_S = 10.0
HEAD_MAX = 4096
#: A tunnel of which one direction has ended is cut when nothing moves for so long.
HALF_OPEN_S = 60.0

_decode = msgspec.json.Decoder(OpenTunnel).decode
_log = structlog.get_logger()


class TunnelRefused(Exception):
    """Tunnel that cannot be opened; the message says why."""


class NodeTunnels:
    """Tunnels of one node."""

    def __init__(self, connections: RunConnections, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._connections, self._spawn = connections, spawn
        self.open = 0

    async def answer(self, message: Message) -> bytes:
        """Open the tunnel that a gateway asks for; return its TunnelOpened."""
        try:
            opened = await self._open(_decode(message.payload))
        except msgspec.MsgspecError as error:
            return _answer(f"expected an OpenTunnel: {error}")
        except (TunnelRefused, NotRunning, NoListener, NoSsh) as refused:
            return _answer(str(refused))
        return msgspec.json.encode(opened)

    async def _open(self, asked: OpenTunnel) -> TunnelOpened:
        """Open a tunnel; return what proxy and client need to use it."""
        if self.open >= TUNNELS_MAX:
            raise TunnelRefused(f"the node has {TUNNELS_MAX} tunnels already")
        self.open += 1
        try:
            inside, opened = await self._connect(asked)
            try:
                proxy = await _dial(asked.address, asked.ticket)
            except BaseException:
                inside.close()
                raise
        except BaseException:
            self.open -= 1
            raise
        self._spawn(self.carry(inside, proxy))
        return opened

    async def _connect(self, asked: OpenTunnel) -> tuple[socket.socket, TunnelOpened]:
        key = RunKey(asked.job, asked.attempt, asked.rank)
        if not is_job_id(asked.job) or not (asked.app or asked.terminal or asked.ssh_key or 0 < asked.port < 2**16):
            raise TunnelRefused("expected a job id and a port from 1 to 65535")
        if asked.terminal:
            return self._connections.to_terminal(key, self._spawn), TunnelOpened()
        if asked.ssh_key:
            inside, credentials = self._connections.to_ssh(key, asked.ssh_key, self._spawn)
            return inside, TunnelOpened(host_key=credentials.host_key, certificate=credentials.certificate)
        try:
            if asked.app:
                inside, app = await self._connections.to_app(key)
                return inside, TunnelOpened(token=app.token)
            return await self._connections.to_port(key, asked.port), TunnelOpened()
        except OSError as error:
            what = "the application" if asked.app else f"port {asked.port}"
            raise TunnelRefused(f"{what} of the run cannot be connected to: {error.strerror or error}") from error

    async def carry(self, inside: socket.socket, proxy: NewConnection) -> None:
        """Pass bytes both ways until both sides have ended, or one fails."""
        try:
            _, run = await asyncio.get_running_loop().create_connection(NewConnection, sock=inside)
            await splice(SpliceEnd(run), SpliceEnd(proxy), half_open_s=HALF_OPEN_S)
        except OSError as error:
            _log.debug("tunnel ended", reason=str(error))
        finally:
            self.open -= 1
            proxy.transport.abort()


async def _dial(address: str, ticket: str) -> NewConnection:
    """Connect to the proxy and give the ticket. Raises TunnelRefused."""
    parts = urlsplit(address)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    proxy: NewConnection | None = None
    try:
        async with asyncio.timeout(DIAL_S):
            loop = asyncio.get_running_loop()
            _, proxy = await loop.create_connection(NewConnection, parts.hostname or "", port, ssl=tls)
            head = f"GET {PATH} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: {NODE_END}\r\n"
            proxy.transport.write(f"{head}Authorization: Bearer {ticket}\r\n\r\n".encode())
            answer = await proxy.until(b"\r\n\r\n", HEAD_MAX)
    except (TimeoutError, OSError) as error:
        if proxy is not None:
            proxy.transport.abort()
        raise TunnelRefused(
            f"the app proxy at {address} cannot be reached from the node: {error or 'no answer'}"
        ) from error
    if not answer.startswith(b"HTTP/1.1 101 "):
        proxy.transport.abort()
        raise TunnelRefused(f"the app proxy refused the node: {answer.partition(b'\r\n')[0].decode('latin-1')}")
    return proxy


def _answer(error: str) -> bytes:
    return msgspec.json.encode(TunnelOpened(error=error))
