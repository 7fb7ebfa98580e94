"""/metrics over HTTP, in the agent's own loop: one small page, a few readers at a time, nothing else.

An agent never stops for it: where the port is taken, that is logged and the node works without.
"""

import asyncio
import socket
from collections.abc import Callable

import structlog

from fairlead_agent.node.metrics.exposition import MEDIA_TYPE

#: Readers at once, seconds for a request and its answer, and bytes of a request.
READERS_MAX, PATIENCE_S, REQUEST_BYTES_MAX = 8, 5.0, 16 * 1024

_log = structlog.get_logger()


class MetricsServer:
    """Answers GET /metrics with what `page` returns."""

    def __init__(self, page: Callable[[], bytes]) -> None:
        self._page = page
        #: One for each reader that is there.
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closed = False
        #: Where it listens, once it does.
        self.address: tuple[str, int] | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen there; port 0: any free one."""
        try:
            # Bound and listening in one call: of two agents that start together, both bind, and uvloop keeps it to itself
            # when the second one cannot listen.
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            _log.warning(
                "no metrics are served here",
                address=f"{host}:{port}",
                reason=str(error),
                hint="set FAIRLEAD_METRICS to an address that is free, or to off",
            )
            return
        found: tuple[str, int] = listening.getsockname()[:2]
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=REQUEST_BYTES_MAX)
        self.address = found
        _log.info("metrics are served", url=f"http://{found[0]}:{found[1]}/metrics")

    async def close(self) -> None:
        """Stop serving. Requests in progress are cut off, and no connection is left to the event loop."""
        self._closed = True
        if self._server is None:
            return
        self._server.close()
        for task in self._serving:
            task.cancel()
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            async with asyncio.timeout(0 if self._closed else PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.partition(b"\r\n")[0].decode("latin-1")))
                writer.close()
                await writer.wait_closed()  # all of it is sent
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a reader that is slow, gone or talks too much gets no answer
        finally:
            self._serving.discard(task)
            writer.transport.abort()  # if only closed, a reader that takes nothing would keep its page open

    def _answer(self, line: str) -> bytes:
        if len(self._serving) > READERS_MAX:
            return _response("503 Service Unavailable", b"too many readers at once\n")
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != "/metrics":
            return _response("404 Not Found", b"only /metrics is here\n")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"expected GET\n")
        return _response("200 OK", self._page(), MEDIA_TYPE, body=method == "GET")


def _response(
    status: str, content: bytes, media_type: str = "text/plain; charset=utf-8", *, body: bool = True
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (content if body else b"")
