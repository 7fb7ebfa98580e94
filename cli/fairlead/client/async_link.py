"""Link of the asynchronous client, by httpx. The synchronous twin is `sync_link.py`; both define the names that the transport uses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from fairlead.client.answers import TIMEOUT_S, Answer, LinkBroken, LinkRefused
from fairlead.http_library import httpx


class AsyncGatewayLink:
    """Connections to gateways. `transport` replaces the network, for tests."""

    def __init__(self, urls: Iterable[str], transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        # Reading the certificates takes longer than a request, and plain HTTP has none.
        self._verify = any(url.startswith("https:") for url in urls)
        self._http: httpx.AsyncClient | None = None

    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        """Send one request and return its whole answer. Raises LinkBroken or LinkRefused."""
        with _link_errors():
            answer = await self._httpx().request(method, url, headers=headers, content=body, timeout=timeout_s)
        return Answer(answer.status_code, answer.headers, answer.content)

    @asynccontextmanager
    async def stream(self, url: str, headers: dict[str, str], read_s: float | None) -> AsyncIterator[httpx.Response]:
        """Open a stream that may be silent for `read_s` seconds (None: for any time). Raises as `request`, also while it is read."""
        timeout = httpx.Timeout(TIMEOUT_S, read=read_s)
        with _link_errors():
            async with self._httpx().stream("GET", url, headers=headers, timeout=timeout) as answer:
                yield answer

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    def _httpx(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(transport=self._transport, trust_env=False, verify=self._verify)
        return self._http


@contextmanager
def _link_errors() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise LinkBroken(str(error)) from error
    except httpx.RequestError as error:
        raise LinkRefused(str(error)) from error


async def pause(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def in_thread[T](function: Callable[[], T]) -> T:
    """Call a function that may wait for the network or for a file's lock, in a thread."""
    return await asyncio.to_thread(function)
