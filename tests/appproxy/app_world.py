"""A real app proxy on the in-memory bus; a gateway that lets in whom a test wants, and has its node dial out; and an app that tells all it got."""

import asyncio
import contextlib
from typing import Any, NamedTuple, Self

import msgspec

from fairlead_appproxy.head import end_of_head
from fairlead_appproxy.service import AppProxy, ProxySettings
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    AppAnswer,
    AppEntry,
    AppQuestion,
    ConnectApp,
    EnterApp,
    EntriesEnded,
    FindEntry,
    RenewEntries,
)
from fairlead_schemas.wire.tunnels import NODE_END, PATH, digest
from tests.kit.eventually import eventually_async

LABEL = "http-7-1-abcdefgh"


class Answered(NamedTuple):
    """Answer to a request."""

    status: int
    head: str
    body: bytes


class EchoApp:
    """App that answers with the whole head that it got, and a WebSocket that answers with the bytes that it got."""

    def __init__(self) -> None:
        #: Heads of requests, as they came.
        self.heads: list[bytes] = []
        self.bodies = 0
        #: What `/own` answers.
        self.own = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await self._head(reader):
                await self._answer(head, reader, writer)
        self.open.discard(writer)
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        head = b""
        while not end_of_head(head):
            more = await reader.read(1)
            if not more:
                return b""
            head += more
        self.heads.append(head)
        return head

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lower = head.lower()
        if b"upgrade: websocket" in lower:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            return
        if b"content-length: " in lower:
            length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while length and (piece := await reader.read(min(length, 65536))):
                length -= len(piece)
                self.bodies += len(piece)
        if head.startswith(b"GET /own"):
            writer.write(self.own)
        elif head.startswith(b"GET /close"):
            writer.close()
        elif head.startswith(b"GET /silent"):
            await reader.read(1)
        elif head.startswith(b"GET /endless"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)
        await writer.drain()


class AppWorld:
    """Use `async with AppWorld() as world`."""

    def __init__(self, apps: str = "") -> None:
        self.hub = MemoryHub()
        self.proxy = AppProxy(self.hub.connect(), ProxySettings(port=0, apps=apps))
        self.app = EchoApp()
        self.domain = apps.partition("://")[2] or "localhost"
        #: {digest of a code: label}, of codes that were not used; {digest of a cookie: label}, of entries.
        self.codes: dict[str, str] = {}
        self.entries: dict[str, str] = {}
        #: What the gateway answers about entries, and about a connection that cannot be made; labels that have ended.
        self.ended = EntriesEnded()
        self.no_connection = ""
        self.gone: set[str] = set()
        self.entry = AppEntry(job="7", attempt=1, profile="http", principal="ann")
        self.asked: list[AppQuestion] = []
        self._bus = self.hub.connect()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self.app.take, "127.0.0.1", 0)
        self.app_port: int = self._server.sockets[0].getsockname()[1]
        await self._bus.serve(subjects.rpc("gateway", "apps"), self._answer)
        self._running = asyncio.create_task(self.proxy.run())
        await eventually_async(lambda: self.proxy.address)
        return self

    async def __aexit__(self, *_: Any) -> None:
        for writer in [*self._writers, *self.app.open]:
            writer.transport.abort()
        await self.proxy.stop()
        assert await self._running == 0
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()

    @property
    def host(self) -> str:
        """Host of the app."""
        return f"{LABEL}.{self.domain}"

    async def restart(self) -> None:
        """End the proxy, and start another at the same port."""
        port = int(self.proxy.address.rpartition(":")[2])
        await self.proxy.stop()
        await self._running
        self.proxy = AppProxy(self.hub.connect(), ProxySettings(port=port))
        self._running = asyncio.create_task(self.proxy.run())
        await eventually_async(lambda: self.proxy.address)

    # ------------------------------------------------------------------ gateway and node

    async def _answer(self, message: Message) -> bytes:
        question = msgspec.json.decode(message.payload, type=AppQuestion)
        self.asked.append(question)
        return msgspec.json.encode(await self._answered(question))

    async def _answered(self, question: AppQuestion) -> AppAnswer | EntriesEnded:
        if isinstance(question, RenewEntries):
            return self.ended
        assert isinstance(question, EnterApp | FindEntry | ConnectApp)
        if question.label in self.gone:
            return AppAnswer(status=410, words="it has ended")
        if isinstance(question, EnterApp):
            if self.codes.pop(question.code, "") != question.label:
                return AppAnswer(status=403, words="used, or too old")
            self.entries[question.cookie] = question.label
        elif self.entries.get(question.cookie) != question.label:
            return AppAnswer(status=403, words="not entered")
        if not isinstance(question, ConnectApp):
            return AppAnswer(entry=self.entry)
        if self.no_connection:
            return AppAnswer(status=503, words=self.no_connection)
        self._task(self._dial(question))
        return AppAnswer(token="s3cret")

    async def _dial(self, question: ConnectApp) -> None:
        host, _, port = question.address.partition("://")[2].rpartition(":")
        inside = await asyncio.open_connection("127.0.0.1", self.app_port)
        outside = await asyncio.open_connection(host, int(port))
        head = f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: {NODE_END}\r\n"
        outside[1].write(f"{head}Authorization: Bearer {question.ticket}\r\n\r\n".encode())
        await outside[0].readuntil(b"\r\n\r\n")
        self._task(self._carry(inside[0], outside[1]))
        self._task(self._carry(outside[0], inside[1]))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()

    def _task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    # ------------------------------------------------------------------ browser

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the proxy."""
        host, _, port = self.proxy.address.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        return reader, writer

    async def send(self, request: bytes) -> Answered:
        """Send bytes over a new connection, and read the answer."""
        reader, writer = await self.connect()
        writer.write(request)
        return await read_answer(reader)

    async def ask(
        self, target: str = "/", *fields: str, method: str = "GET", host: str = "", cookie: str = ""
    ) -> Answered:
        """Send a request as a browser that has a cookie of the app."""
        cookies = [f"Cookie: {self.cookie_name}={cookie}"] if cookie else []
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host or self.host}", *cookies, *fields]
        return await self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    @property
    def cookie_name(self) -> str:
        """Name of the proxy's cookie."""
        return "fairlead-app" if self.domain == "localhost" else "__Host-fairlead-app"

    async def enter(self, label: str = LABEL) -> str:
        """Enter the app by a code; return the cookie."""
        code = f"code-{len(self.entries)}"
        self.codes[digest(code)] = label
        answer = await self.ask(f"/.fairlead/enter?code={code}", host=f"{label}.{self.domain}")
        assert answer.status == 303, answer
        return answer.head.partition(f"{self.cookie_name}=")[2].partition(";")[0]

    async def socket(
        self, cookie: str, origin: str | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        """Open a WebSocket; return its streams and the status of the answer."""
        reader, writer = await self.connect()
        lines = [
            "GET /socket HTTP/1.1",
            f"Host: {self.host}",
            f"Cookie: {self.cookie_name}={cookie}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        scheme = "http" if self.domain == "localhost" else "https"
        lines += [f"Origin: {scheme}://{self.host}" if origin is None else origin] if origin != "" else []
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return reader, writer, int(head.split()[1])


async def read_answer(reader: asyncio.StreamReader) -> Answered:
    """Read one answer that states its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    found = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
    body = await reader.readexactly(int(found[0].partition(":")[2])) if found else b""
    return Answered(int(head.split()[1]), head, body)


def frame(payload: bytes, opcode: int = 1, mask: bytes = b"\1\2\3\4") -> bytes:
    """Return a client's frame (RFC 6455)."""
    assert len(payload) < 126
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + masked
