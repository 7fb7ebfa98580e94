"""A real app proxy on the in-memory bus; a gateway that knows the keys and replicas that a test wants; and replicas that stream like a model server."""

import asyncio
import contextlib
from typing import Any, Self

import msgspec

from fairlead_appproxy.head import end_of_head
from fairlead_appproxy.service import AppProxy, ProxySettings
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_schemas.units import token_text
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    AppAnswer,
    AppQuestion,
    ConnectReplica,
    EntriesEnded,
    FindService,
    RenewServices,
    ReplicaRoute,
    ServiceAnswer,
    ServiceEntry,
    ServicesRenewed,
)
from fairlead_schemas.wire.tunnels import NODE_END, PATH
from tests.kit.eventually import eventually_async

SERVICE, LABEL = "chat", "svc-chat-abcdefgh"
_CHUNK = b"data: %d\n\n"


def key_text(number: int = 1) -> str:
    """Return the text of a key."""
    return token_text.make("a", number.to_bytes(token_text.RANDOM_BYTES))


class StreamingReplica:
    """Server that streams `events` pieces, each after `step` is released, and tells all it got."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.open = 0
        #: Pieces of streams go out while it is set.
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.pieces = 3
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        """Take no connection any more."""
        self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await self._head(reader):
                self.heads.append(head)
                self.open += 1
                try:
                    await self._answer(head, reader, writer)
                finally:
                    self.open -= 1
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        head = b""
        while not end_of_head(head):
            more = await reader.read(1)
            if not more:
                return b""
            head += more
        return head

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lower = head.lower()
        if b"content-length: " in lower:
            await reader.readexactly(int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b\r\n\r\n"
        )
        for number in range(self.pieces):
            await self.goes_on.wait()
            piece = _CHUNK % number
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class ServiceWorld:
    """Use `async with ServiceWorld() as world`."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.proxy = AppProxy(self.hub.connect(), ProxySettings(port=0))
        #: {digest of a key: its entry}, without replicas; and {job: its replica}, of those that take requests.
        self.keys: dict[str, ServiceEntry] = {}
        self.replicas: dict[str, StreamingReplica] = {}
        #: Jobs to which no connection can be made.
        self.unreachable: set[str] = set()
        #: No gateway answers.
        self.is_away = False
        self.loads: list[int] = []
        self.asked: list[AppQuestion] = []
        self._all: dict[str, StreamingReplica] = {}
        self._bus = self.hub.connect()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        await self._bus.serve(subjects.rpc("gateway", "apps"), self._answer)
        self._running = asyncio.create_task(self.proxy.run())
        await eventually_async(lambda: self.proxy.address)
        return self

    async def __aexit__(self, *_: Any) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await self.proxy.stop()
        assert await self._running == 0
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for replica in self._all.values():
            replica.close()

    async def replica(self, job: str) -> StreamingReplica:
        """Add a replica that takes requests."""
        made = self.replicas[job] = self._all[job] = await StreamingReplica().start()
        return made

    def key(self, number: int = 1, **bounds: Any) -> str:
        """Add a key; return its text."""
        text = key_text(number)
        self.keys[token_text.digest(text)] = ServiceEntry(service=SERVICE, label=LABEL, key=f"k{number}", **bounds)
        return text

    def _routes(self) -> list[ReplicaRoute]:
        return [ReplicaRoute(job, 1, "http") for job in self.replicas]

    async def _answer(self, message: Message) -> bytes:
        question = msgspec.json.decode(message.payload, type=AppQuestion)
        if self.is_away:
            raise RuntimeError("a gateway that is not there")
        self.asked.append(question)
        return msgspec.json.encode(await self._answered(question))

    async def _answered(self, question: AppQuestion) -> object:
        if isinstance(question, RenewServices):
            self.loads.append(question.loads.get(SERVICE, -1))
            ended = {digest: (401, "revoked") for digest in question.keys if digest not in self.keys}
            return ServicesRenewed(replicas={SERVICE: self._routes()}, ended=ended)
        if isinstance(question, FindService):
            entry = self.keys.get(question.key)
            if entry is None or question.label not in ("", entry.label):
                return ServiceAnswer(status=401, words="no such key")
            return ServiceAnswer(entry=msgspec.structs.replace(entry, replicas=self._routes()))
        if not isinstance(question, ConnectReplica):
            return EntriesEnded()
        if question.job in self.unreachable:
            return AppAnswer(status=503, words="the node does not answer")
        self._task(self._dial(question))
        return AppAnswer(token="s3cret")

    async def _dial(self, question: ConnectReplica) -> None:
        host, _, port = question.address.partition("://")[2].rpartition(":")
        inside = await asyncio.open_connection("127.0.0.1", self._all[question.job].port)
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

    # ------------------------------------------------------------------ programs

    async def send(
        self,
        key: str = "",
        *fields: str,
        host: str = f"{LABEL}.localhost",
        target: str = "/v1/chat",
        body: bytes = b"{}",
    ) -> "Streamed":
        """Send a request over a new connection; return what comes of it."""
        address, _, port = self.proxy.address.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(address, int(port))
        self._writers.append(writer)
        lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *fields]
        lines += [f"Authorization: Bearer {key}"] if key else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return Streamed(reader)


class Streamed:
    """Answer that comes piece by piece."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.head = ""

    async def status(self) -> int:
        """Read the head; return its status."""
        self.head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        return int(self.head.split()[1])

    async def piece(self) -> bytes:
        """Return the next chunk; b"" at the end."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2]

    async def rest(self) -> bytes:
        """Return the body that its head states the length of."""
        length = self.head.lower().partition("content-length: ")[2].partition("\r\n")[0]
        return await self._reader.readexactly(int(length))

    async def all(self) -> list[bytes]:
        """Return all chunks."""
        assert await self.status() == 200, self.head
        found: list[bytes] = []
        while piece := await self.piece():
            found.append(piece)
        return found
