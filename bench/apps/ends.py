"""Ends of the road on which proxies are measured, each a process: `python -m bench.apps.ends app|node|proxy|splice …`; the first line it prints is its port.

app: answers `GET /`, sends 1 GiB, and echoes frames of 64 bytes. node: the agent's own end of tunnels, which carries to the app; to the proxies
beside ours it listens on a port. proxy: our app proxy, with a gateway that lets everybody in and has the node dial out. splice: passes bytes.
"""

import asyncio
import os
import socket
import sys
from typing import Any, cast

import msgspec
import structlog
import uvloop

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.run_apps import RunApp
from fairlead_agent.shell import tunnels
from fairlead_agent.shell.run_connections import RunConnections
from fairlead_appproxy.service import AppProxy, ProxySettings
from fairlead_bus.main import collect_rarely
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_bus.splice import NewConnection
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import AppAnswer, AppEntry, AppQuestion, ConnectApp, EntriesEnded, RenewEntries
from fairlead_schemas.wire.tunnels import OpenTunnel
from tests.kit.eventually import eventually_async

BODY = b"x" * 1024
GIB = 2**30
#: A client's frame with 64 bytes, and the answer.
FRAME = b"\x82\xc0\0\0\0\0" + b"y" * 64
ECHO = b"\x82\x40" + b"y" * 64
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
_SMALL = _ANSWER % len(BODY) + BODY
_UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"


class _App(asyncio.Protocol):
    """One connection of the app."""

    def __init__(self, gib: int) -> None:
        self._gib, self._got, self._is_socket = gib, b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request or frame that is whole."""
        self._got += data
        if not self._is_socket and (end := self._got.find(b"\r\n\r\n")) >= 0:
            head, self._got = self._got[:end], self._got[end + 4 :]
            if head.startswith(b"GET /gib"):
                self._transport.write(_ANSWER % GIB)
                self._sending = asyncio.ensure_future(self._send_gib())
                return
            self._is_socket = b"pgrade: websocket" in head
            self._transport.write(_UPGRADED if self._is_socket else _SMALL)
        if self._is_socket and (frames := len(self._got) // len(FRAME)):
            self._got = self._got[frames * len(FRAME) :]
            self._transport.write(ECHO * frames)

    async def _send_gib(self) -> None:
        # By the kernel alone, so that the app is never what is measured.
        own = socket.fromfd(self._transport.get_extra_info("socket").fileno(), socket.AF_INET, socket.SOCK_STREAM)
        own.setblocking(True)
        try:
            await asyncio.to_thread(_sendfile, own, self._gib)
        except OSError:
            self._transport.abort()
        finally:
            own.setblocking(False)
            own.close()


def _sendfile(target: socket.socket, file: int) -> None:
    at = 0
    while at < GIB:
        at += os.sendfile(target.fileno(), file, at, GIB - at)


class _Splice(asyncio.Protocol):
    """One side of a bare splice: all that a proxy in Python must do at least."""

    peer: asyncio.Transport | None = None

    def __init__(self, port: int = 0) -> None:
        self._port, self._early = port, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._port:
            self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        far = _Splice()
        _, _ = await asyncio.get_running_loop().create_connection(lambda: far, "127.0.0.1", self._port)
        far.peer, self.peer = self.transport, far.transport
        self.peer.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early += data
        else:
            self.peer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.close()

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and not self.peer.is_closing():
            self.peer.resume_reading()


class _ToApp:
    """Connections into the one run that is played: to the app's port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def to_app(self, key: RunKey) -> tuple[socket.socket, RunApp]:
        """Return a connection."""
        found = socket.create_connection(("127.0.0.1", self._port))
        found.setblocking(False)
        return found, RunApp("http", self._port, "", "", "")


async def _node(app_port: int) -> None:
    tunnels.TUNNELS_MAX = 20_000
    held: set[asyncio.Task[Any]] = set()

    def spawn(work: Any) -> None:
        task = asyncio.create_task(work)
        held.add(task)
        task.add_done_callback(held.discard)

    connections = _ToApp(app_port)
    node = tunnels.NodeTunnels(cast(RunConnections, connections), spawn)

    async def asked(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            spawn(node.answer(Message(subject="", payload=line)))

    async def plain(connection: NewConnection) -> None:
        inside, _ = await connections.to_app(RunKey("7", 1, 0))
        node.open += 1
        await node.carry(inside, connection)

    class _Taken(NewConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            spawn(plain(self))

    control = await asyncio.start_server(asked, "127.0.0.1", 0)
    listening = await asyncio.get_running_loop().create_server(_Taken, "127.0.0.1", 0, backlog=8192)
    print(f"{listening.sockets[0].getsockname()[1]} {control.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


async def _proxy(control_port: int) -> None:
    hub = MemoryHub()
    _, control = await asyncio.open_connection("127.0.0.1", control_port)
    entry = AppAnswer(entry=AppEntry(job="7", attempt=1, profile="http", principal="ann"))

    async def answer(message: Message) -> bytes:
        question = msgspec.json.decode(message.payload, type=AppQuestion)
        if isinstance(question, RenewEntries):
            return msgspec.json.encode(EntriesEnded())
        if isinstance(question, ConnectApp):
            asked = OpenTunnel(
                job="7", attempt=1, rank=0, port=0, app=True, address=question.address, ticket=question.ticket
            )
            control.write(msgspec.json.encode(asked) + b"\n")
            return msgspec.json.encode(AppAnswer())
        return msgspec.json.encode(entry)

    await hub.connect().serve(subjects.rpc("gateway", "apps"), answer)
    proxy = AppProxy(hub.connect(), ProxySettings(port=0))
    running = asyncio.create_task(proxy.run())
    await eventually_async(lambda: proxy.address)
    print(proxy.address.rpartition(":")[2], flush=True)
    await running


async def _serve(make: Any) -> None:
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def _main(name: str, argument: str) -> None:
    if name == "app":
        file = os.open(argument, os.O_RDONLY)
        await _serve(lambda: _App(file))
    elif name == "splice":
        await _serve(lambda: _Splice(int(argument)))
    else:
        await (_node if name == "node" else _proxy)(int(argument))


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    collect_rarely()
    uvloop.run(_main(*sys.argv[1:3]))
