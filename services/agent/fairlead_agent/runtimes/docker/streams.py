"""Answers of the engine that last: output, events, pulls. One connection each, and no thread.

The SDK would hold a thread for every such answer. Asked in HTTP/1.0, the engine sends its body plainly and ends it
with the connection, so reading one is reading a socket. Leaving the block ends what was asked for (a pull, too).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

#: The engine answers a head at once; until then it may look for an image, or hang.
HEAD_S = 30.0
#: The longest line of events or progress.
LINE_BYTES_MAX = 2**20
READ_BYTES = 64 * 1024


class EngineRefused(Exception):
    """The engine has answered, with an error: its status and its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@contextlib.asynccontextmanager
async def answer(
    socket: str, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.StreamReader]:
    """The body of one answer. `path` is without the API's version. Raises EngineRefused, OSError (TimeoutError)."""
    async with asyncio.timeout(HEAD_S):
        reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_BYTES_MAX)
    try:
        async with asyncio.timeout(HEAD_S):
            lines = [f"{method} {path}?{urlencode(query)} HTTP/1.0", "Host: docker"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await _head(reader)
        yield reader
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionError("the engine closed the connection without an answer") from error
    status = int(head.split(b" ", 2)[1])
    if status >= 300:
        raise EngineRefused(status, _words(await reader.read(READ_BYTES)))


def _words(body: bytes) -> str:
    with contextlib.suppress(ValueError):
        said = json.loads(body)
        if isinstance(said, dict):
            return str(said.get("message", ""))
    return body.decode(errors="replace").strip()


async def documents(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """JSON objects, a line each, until the answer ends. Raises ConnectionError for what is not one."""
    while line := await reader.readline():
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ConnectionError("the engine's answer broke off") from error
