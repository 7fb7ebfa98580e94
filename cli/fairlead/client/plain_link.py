"""Requests over HTTP/1.1 with h11 on plain sockets, one at a time, on a connection for each gateway that is kept open.

Importing httpx takes longer than a request, and a command line sends one or two; the standard library's client imports all of email. h11
does the protocol, here are only the sockets. Each stream has a connection of its own. Knows nothing of the API and sends nothing twice:
that is the transport's decision.
"""

import codecs
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

import h11

from fairlead.client.answers import Answer, Headers, LinkBroken, LinkRefused

_RECEIVED_BYTES = 65536
_PORTS = {"http": 80, "https": 443}


class PlainLink:
    """Connections to gateways, by their addresses."""

    def __init__(self) -> None:
        self._open: dict[str, _Connection] = {}

    def request(self, method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float) -> Answer:
        """Send one request and return its whole answer; redirects are not followed. `timeout_s`: of each wait for the network.

        Raises LinkBroken, and LinkRefused for an answer in an encoding that was not asked for.
        """
        origin, target = _split(url)
        try:
            with _link_errors():
                answer = self._exchange(origin, method, target, headers, body, timeout_s)
        except BaseException:
            self._drop(origin)  # the next request must not get the rest of this answer
            raise
        _require_plain(answer.headers)
        return answer

    @contextmanager
    def stream(
        self, url: str, headers: dict[str, str], timeout_s: float, read_s: float | None
    ) -> "Iterator[PlainStream]":
        """Open the answer to a GET that is read as it comes. `timeout_s`: of the connection; `read_s`: of each silence (None: any).

        Raises as `request`, also while it is read.
        """
        origin, target = _split(url)
        with _link_errors():
            connection = _Connection(urlsplit(origin), timeout_s)
        try:
            with _link_errors():
                status, found = connection.begin("GET", target, headers, None, read_s)
            _require_plain(found)
            yield PlainStream(connection, status, found)
        finally:
            connection.close()

    def _exchange(
        self, origin: str, method: str, target: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        connection = self._open.get(origin)
        if connection is None or not connection.is_idle():
            self._drop(origin)
            connection = self._open[origin] = _Connection(urlsplit(origin), timeout_s)
        answer = connection.exchange(method, target, headers, body, timeout_s)
        if not connection.is_reusable():
            self._drop(origin)
        return answer

    def _drop(self, origin: str) -> None:
        connection = self._open.pop(origin, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections."""
        for origin in [*self._open]:
            self._drop(origin)


class PlainStream:
    """Answer that is read as it comes. Its names are those of httpx's answers."""

    def __init__(self, connection: "_Connection", status_code: int, headers: "_Headers") -> None:
        self._connection = connection
        self.status_code = status_code
        self.headers = headers

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body, as it comes."""
        with _link_errors():
            yield from self._connection.pieces()

    def iter_text(self) -> Iterator[str]:
        """Yield the body as text; a byte that is no UTF-8 is replaced."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for piece in self.iter_bytes():
            yield decoder.decode(piece)
        if rest := decoder.decode(b"", final=True):
            yield rest

    def read(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.iter_bytes())


def _split(url: str) -> tuple[str, str]:
    """Return the origin and the target of a request line."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    return origin, url.removeprefix(origin) or "/"


@contextmanager
def _link_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, h11.ProtocolError, UnicodeError) as error:
        raise LinkBroken(str(error) or type(error).__name__) from error


def _require_plain(headers: Headers) -> None:
    if encoding := headers.get("Content-Encoding"):
        raise LinkRefused(f"expected an answer without encoding, found {encoding!r}")


class _Headers(dict[str, str]):
    """Headers by their names in lower case; several of one name are joined with commas."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        super().__init__()
        for name, value in pairs:
            key, text = name.decode("ascii").lower(), value.decode("latin-1")
            self[key] = f"{self[key]}, {text}" if key in self else text

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # names in any case
        return super().get(key.lower(), default)


class _Connection:
    """One connection. Each exchange needs the one before to be complete."""

    def __init__(self, origin: SplitResult, timeout_s: float) -> None:
        assert origin.hostname is not None, "an address has a host"
        self._host = origin.netloc.rpartition("@")[2].encode("idna" if not origin.netloc.isascii() else "ascii")
        self._socket = socket.create_connection((origin.hostname, origin.port or _PORTS[origin.scheme]), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = h11.Connection(h11.CLIENT)
        if origin.scheme == "https":
            try:
                self._socket = _encrypted(self._socket, origin.hostname)
            except BaseException:
                self._socket.close()
                raise

    def exchange(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        status, found = self.begin(method, target, headers, body, timeout_s)
        return Answer(status, found, b"".join(self.pieces()))

    def begin(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, timeout_s: float | None
    ) -> tuple[int, _Headers]:
        """Send a request and return status and headers of its answer, whose `pieces` follow."""
        self._socket.settimeout(timeout_s)
        pairs = [("Host", self._host), *headers.items()]
        if body is not None:
            pairs.append(("Content-Length", str(len(body))))
        send = self._protocol.send
        sent = [send(h11.Request(method=method, target=target, headers=pairs))]  # type: ignore[arg-type]  # text and bytes mixed
        if body:
            sent.append(send(h11.Data(data=body)))
        sent.append(send(h11.EndOfMessage()))
        self._socket.sendall(b"".join(part for part in sent if part))
        while not isinstance(event := self._next(), h11.Response):
            pass  # an informational answer
        return event.status_code, _Headers([*event.headers])

    def pieces(self) -> Iterator[bytes]:
        """Yield the body of the answer, as it comes."""
        while not isinstance(event := self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    def _next(self) -> object:
        """Return the next part of an answer. Raises OSError where the connection ends before it."""
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(self._socket.recv(_RECEIVED_BYTES))
        if isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("the gateway closed the connection without an answer")
        return event

    def is_reusable(self) -> bool:
        """Return True after an exchange if another one may follow, and prepare for it."""
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return True

    def is_idle(self) -> bool:
        """Return False if the gateway has closed the connection meanwhile, or sends what was not asked for."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


def _encrypted(plain: socket.socket, host: str) -> socket.socket:
    """Return the socket with TLS. Raises OSError for a certificate that is not the host's, by the authorities that httpx trusts."""
    import ssl

    import certifi

    return ssl.create_default_context(cafile=certifi.where()).wrap_socket(plain, server_hostname=host)
