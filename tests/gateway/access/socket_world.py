"""The world with sign-on behind a real listening socket, for attacks on what happens before a request is one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self

from fairlead.stack.nats_server import free_port
from fairlead_gateway.server.http_server import HttpSettings, listen, make_server
from tests.gateway.access.signed_world import SignedWorld


class Line:
    """One connection. `send` answers with status and head and body of the next answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of the next answer; 0 where the connection ended without one."""
        async with asyncio.timeout(60):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return 0, b"", b""
            fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:] if b": " in line)
            body = await self.reader.readexactly(int(fields.get(b"content-length", b"0")))
        return int(head.split()[1]), head, body

    async def send(self, data: bytes) -> tuple[int, bytes, bytes]:
        """Send bytes, and return the answer."""
        await self.write(data)
        return await self.answer()


class SocketWorld(SignedWorld):
    """Use `async with SocketWorld() as world`. `world.port` is the gateway's."""

    def __init__(self, *, http: HttpSettings | None = None) -> None:
        self.port = free_port()
        super().__init__(http=(http or HttpSettings())._replace(host="127.0.0.1", port=self.port))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._server = make_server(self.gateway.app, self.settings.http, lambda *_: None)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listen(self.settings.http)]))
        return self

    async def __aexit__(self, *args: object) -> None:
        self._server.stop()
        await self._serving
        await super().__aexit__(*args)

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """Open a connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Line(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
