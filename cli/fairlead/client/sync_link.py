"""Link of the synchronous client: requests and streams on plain sockets, or by httpx where a test replaces the network.

The asynchronous twin is `async_link.py`; both define the names that the transport uses.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from fairlead.client.answers import TIMEOUT_S, Answer, LinkBroken, LinkRefused
from fairlead.client.plain_link import PlainLink

if TYPE_CHECKING:
    import httpx


class GatewayLink:
    """Connections to gateways. `transport` replaces the network, for tests."""

    def __init__(self, urls: Iterable[str], transport: "httpx.BaseTransport | None" = None) -> None:
        self._transport = transport
        # Reading the certificates takes longer than a request, and plain HTTP has none.
        self._verify = any(url.startswith("https:") for url in urls)
        self._plain = PlainLink()
        self._http: httpx.Client | None = None

    def request(self, method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float) -> Answer:
        """Send one request and return its whole answer. Raises LinkBroken or LinkRefused."""
        if self._transport is None:
            return self._plain.request(method, url, headers, body, timeout_s)
        with _link_errors():
            answer = self._httpx().request(method, url, headers=headers, content=body, timeout=timeout_s)
        return Answer(answer.status_code, answer.headers, answer.content)

    @contextmanager
    def stream(self, url: str, headers: dict[str, str], read_s: float | None) -> "Iterator[httpx.Response]":
        """Open a stream that may be silent for `read_s` seconds (None: for any time). Raises as `request`, also while it is read."""
        if self._transport is None:
            with self._plain.stream(url, headers, TIMEOUT_S, read_s) as plain:
                yield cast("httpx.Response", plain)  # its part that the transport uses
            return
        from fairlead.http_library import httpx

        timeout = httpx.Timeout(TIMEOUT_S, read=read_s)
        with _link_errors(), self._httpx().stream("GET", url, headers=headers, timeout=timeout) as answer:
            yield answer

    def close(self) -> None:
        """Close the connections."""
        self._plain.close()
        if self._http is not None:
            self._http.close()

    def _httpx(self) -> "httpx.Client":
        if self._http is None:
            from fairlead.http_library import httpx

            self._http = httpx.Client(transport=self._transport, trust_env=False, verify=self._verify)
        return self._http


@contextmanager
def _link_errors() -> Iterator[None]:
    from fairlead.http_library import httpx

    try:
        yield
    except httpx.TransportError as error:
        raise LinkBroken(str(error)) from error
    except httpx.RequestError as error:
        raise LinkRefused(str(error)) from error


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def in_thread[T](function: Callable[[], T]) -> T:
    """Call a function that may wait for the network or for a file's lock."""
    return function()
