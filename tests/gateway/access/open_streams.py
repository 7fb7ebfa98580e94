"""Open streams of a world with sign-on: answers that continue until their connection or their right ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from tests.gateway.access.signed_world import SignedWorld
from tests.kit.eventually import eventually_async


class Stream:
    """An open answer, read by a task: httpx's transport for ASGI gives an answer only when it is complete."""

    def __init__(self, world: SignedWorld, path: str, who: str = "bob") -> None:
        self.text, self.status, self._is_read = b"", 0, False
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {who}-token".encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        self.task = asyncio.create_task(world.gateway.app(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, object]:
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.status = self.status or int(message.get("status", 0))
        self.text += message.get("body", b"")

    async def says(self, text: bytes) -> None:
        """Wait until the answer has begun and holds a text."""
        await eventually_async(lambda: bool(self.status) and text in self.text)


@contextlib.asynccontextmanager
async def open_stream(world: SignedWorld, path: str, who: str = "bob") -> AsyncIterator[Stream]:
    """Open a stream as a person; it has begun."""
    stream = Stream(world, path, who)
    try:
        await stream.says(b"")
        yield stream
    finally:
        stream.task.cancel()
        await asyncio.gather(stream.task, return_exceptions=True)
