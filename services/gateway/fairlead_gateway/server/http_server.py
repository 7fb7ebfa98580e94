"""The gateway's web server: uvicorn, with bounds that it lacks.

Owns sockets, connections and their deadlines; knows no routes. Three things are added to uvicorn's protocol class:
a request must arrive whole within a time (a client that stops in the middle of a head would otherwise hold its
connection without end), connections are bounded and those beyond are answered 503, and a head is bounded while it
is still arriving. Deadlines are looked at by one task for all connections: a timer for each request would cost more
than the request's parsing. Start at `make_server`.

A small request to a fast route skips ASGI (`_Connection._begin_direct`): its body is read as a whole, and its answer is one
write. uvicorn writes head and body of an answer separately, each a system call that wakes the client, and makes a task, an
event and two timers for each request: half of the CPU that a submit took here.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any, NamedTuple, Self, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, HttpToolsProtocol

from fairlead_bus.environment_settings import BadSetting, seconds, whole
from fairlead_bus.tls import Certificate, TlsFiles
from fairlead_gateway.errors import HttpError, internal_error
from fairlead_gateway.routes.router import FastRoute
from fairlead_gateway.server import cors
from fairlead_gateway.server.fast_path import FastPath, Headers
from fairlead_gateway.server.handshakes import HANDSHAKES_MAX, Handshakes
from fairlead_gateway.server.request_guard import HEAD_BYTES_MAX, SETTING, TARGET, plain_name

log = structlog.get_logger()

#: Seconds that open requests (watches, followed logs) get to end after a stop was asked for.
DRAIN_S = 2
BACKLOG = 4096
#: Largest body of a request that skips ASGI: uvicorn stops reading from a connection beyond it.
DIRECT_BYTES_MAX = 64 * 1024
#: Headers that uvicorn or its proxy middleware acts upon.
_NOT_DIRECT = frozenset({b"expect", b"upgrade", b"transfer-encoding", b"x-forwarded-for", b"x-forwarded-proto"})
KEEP_ALIVE_S = 75
#: Open files that are kept for everything but clients: the bus, snapshots, pages.
FILES_KEPT = 128
#: Refused connections whose client may still read its answer; those beyond are closed at once.
LINGERING_MAX = 64
LINGER_S = 1.0
#: Seconds between two of uvicorn's own looks: it sets the date of answers anew, in seconds.
TICK_S = 1.0
#: Seconds between two log lines about refused connections.
REPORT_S = 10.0


class HttpSettings(NamedTuple):
    """Bounds of the web server (docs/reference/settings.md)."""

    #: The default is loopback; a person must choose another address.
    host: str = "127.0.0.1"
    port: int = 8080
    #: Names to which the gateway answers in addition to loopback and the bound address.
    hosts: tuple[str, ...] = ()
    #: Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; of all others they are ignored.
    proxies: tuple[str, ...] = ()
    #: Seconds for a request's head, and as many again for its body.
    request_s: float = 30.0
    connections_max: int = 4096
    #: Refused changes of one client within a minute, beyond which further ones are answered 429; 0: no bound.
    refusals_per_minute: int = 600
    #: Requests, and submitted jobs, of one caller within a minute, beyond which further ones are answered 429; 0: no bound.
    requests_per_minute: int = 0
    submits_per_minute: int = 0
    #: Origins whose pages may call the gateway from browsers.
    cors_origins: tuple[str, ...] = ()
    #: None: plain HTTP.
    tls: TlsFiles | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read FAIRLEAD_HTTP_HOST, _PORT, _HOSTS, _PROXIES, _REQUEST_S, _CONNECTIONS, _REFUSALS, _REQUESTS, _SUBMITS, FAIRLEAD_CORS_ORIGINS
        and FAIRLEAD_TLS_*. Raises BadSetting.
        """
        hosts = tuple(name.strip() for name in (env.get(SETTING) or "").split(",") if name.strip())
        for name in hosts:
            if not plain_name(name):
                raise BadSetting(f'{SETTING}: expected names or addresses separated by commas, found "{name}"')
        return cls(
            host=env.get("FAIRLEAD_HTTP_HOST") or "127.0.0.1",
            port=whole(env, "FAIRLEAD_HTTP_PORT", 8080, unit="port number", least=0, most=65535),
            hosts=hosts,
            proxies=_proxies(env.get("FAIRLEAD_HTTP_PROXIES") or ""),
            request_s=seconds(env, "FAIRLEAD_HTTP_REQUEST_S", 30.0),
            connections_max=whole(env, "FAIRLEAD_HTTP_CONNECTIONS", 4096, unit="connections", least=1, most=1_000_000),
            refusals_per_minute=whole(env, "FAIRLEAD_HTTP_REFUSALS", 600, unit="refusals", least=0, most=1_000_000),
            requests_per_minute=whole(env, "FAIRLEAD_HTTP_REQUESTS", 0, unit="requests", least=0, most=100_000_000),
            submits_per_minute=whole(env, "FAIRLEAD_HTTP_SUBMITS", 0, unit="jobs", least=0, most=100_000_000),
            cors_origins=_origins(env.get(cors.SETTING) or ""),
            tls=TlsFiles.from_environment(env),
        )


def _origins(text: str) -> tuple[str, ...]:
    """Return origins separated by commas. Raise BadSetting."""
    try:
        return cors.read_origins(text)
    except ValueError as error:
        raise BadSetting(f"{cors.SETTING}: {error}") from None


def _proxies(text: str) -> tuple[str, ...]:
    """Return addresses and networks separated by commas. Raise BadSetting."""
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in found:
        try:
            ip_network(each)
        except ValueError:
            raise BadSetting(
                f'FAIRLEAD_HTTP_PROXIES: expected addresses or networks separated by commas, found "{each[:80]}"'
            ) from None
    return found


class HttpServer(uvicorn.Server):
    """uvicorn's server with a bound on connections. Signals belong to `fairlead_bus.main`."""

    def __init__(
        self, config: "_Config", *, request_s: float, connections_max: int, on_refusal: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._on_refusal = on_refusal
        self.request_s = request_s
        self.connections_max = connections_max
        self.lingering: set[_Connection] = set()
        self._unreported = 0
        self._reported_at = float("-inf")
        self.certificate = config.certificate
        self.handshakes: Handshakes | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Let `serve` end what is open and return."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Look once a second, and when `stop` is called. uvicorn looks ten times as often, which made up a third of a resting
        gateway's wake-ups."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is open. uvicorn would wait for handshakes, which it does not know."""
        if self.handshakes is not None:
            self.handshakes.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self):
        """Leave signals alone."""
        yield

    def count_refused(self) -> None:
        """Count one more connection over the bound, and log it at most every `REPORT_S`."""
        self._on_refusal("too_many_connections")
        self._unreported += 1
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_S:
            log.warning("connections refused", refused=self._unreported, connections_max=self.connections_max)
            self._unreported, self._reported_at = 0, now

    async def watch_deadlines(self) -> None:
        """Close connections whose request did not arrive in time; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self.request_s / 4, 5.0))
            now = loop.time()
            for connection in list(self.server_state.connections):
                if not isinstance(connection, _Connection):
                    continue
                if connection.is_late(now, self.request_s):
                    self._on_refusal("request_timeout")
                    connection.end_late()
                elif connection.idle_since and now - connection.idle_since > KEEP_ALIVE_S:
                    connection.transport.close()


class _AdmittedHead(NamedTuple):
    """Head of a request that may skip ASGI. Clients repeat their heads, and an equal one of the same connection needs no
    second check."""

    url: bytes
    headers: Headers
    route: FastRoute
    scope: dict[str, Any]


class _DirectRequest:
    """Request that skips ASGI, in the place of uvicorn's cycle of request and answer: these are its attributes that the
    protocol class uses."""

    #: What uvicorn's cycle sets for a task that waits for the body; here nothing waits.
    message_event = asyncio.Event()
    response_started = False
    more_body = False

    def __init__(self, head: _AdmittedHead) -> None:
        self.head = head
        self.body = b""
        self.response_complete = self.disconnected = False
        self.keep_alive = True


class _Connection(HttpToolsProtocol):
    """Connection of one client."""

    owner: HttpServer  # set on the subclass that `make_server` builds
    fast: FastPath  # likewise
    #: Head of the newest request of this connection that could skip ASGI.
    admitted: _AdmittedHead | None = None
    #: Loop time since which no request is in progress; 0.0: there is one, or uvicorn's own timer runs.
    idle_since = 0.0
    #: Loop time since which the client owes the rest of a request; 0.0 while it owes nothing.
    owes_since = 0.0
    in_head = True
    #: True from the first byte of a head to the last one of its body.
    in_message = False
    head_bytes = 0
    is_refused = False
    #: Answer to what came behind the requests in progress, which ends the connection once they are answered. None: not ending.
    last_answer: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.owner.connections_max:
            self._refuse(transport)
            return
        super().connection_made(transport)
        self.owes_since = self.loop.time()

    def _refuse(self, transport: asyncio.Transport) -> None:
        """Answer 503 and close. The client gets a moment to read: closing over unread data would reset it."""
        self.is_refused = True
        self.transport = transport
        self.owner.count_refused()
        transport.write(_OVER_BOUND)
        if len(self.owner.lingering) >= LINGERING_MAX:
            transport.close()
            if not transport.can_write_eof():  # TLS waits for the client's consent
                self.loop.call_soon(transport.abort)
            return
        self.owner.lingering.add(self)
        if transport.can_write_eof():  # not with TLS
            transport.write_eof()
        self.loop.call_later(LINGER_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_refused:
            self.owner.lingering.discard(self)
            return
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_refused or self.last_answer is not None:
            return
        self.idle_since = 0.0
        super().data_received(data)
        if self.in_head and self.last_answer is None:
            self.head_bytes += len(data)
            if self.head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self._end(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        # As uvicorn's, without the scope: it is built once the head shows that it is needed.
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.in_head, self.in_message, self.head_bytes = True, True, 0
        self.owes_since = self.loop.time()
        self.idle_since = 0.0  # a request before it in the same bytes may be answered already

    def on_headers_complete(self) -> None:
        self.in_head = False
        if not self._begin_direct():
            self._begin_scope()
            if self.url[:1] != b"/":
                self.scope[TARGET] = self.url  # type: ignore[typeddict-unknown-key]
            super().on_headers_complete()
        self.owes_since = self.loop.time()

    def _begin_scope(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the scope's own list

    def on_body(self, body: bytes) -> None:
        if isinstance(self.cycle, _DirectRequest):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.owes_since, self.in_message = 0.0, False
        direct = self.cycle
        if not isinstance(direct, _DirectRequest):
            super().on_message_complete()
            return
        task = asyncio.Task(self._answer(direct), loop=self.loop, eager_start=True)
        if not task.done():
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # -- requests that skip ASGI

    def _begin_direct(self) -> bool:
        """Return True if the request whose head is complete skips ASGI: a small POST to a fast route, with nothing about its
        head that is refused or that uvicorn acts upon, and with no request of the connection in front of it."""
        parser = self.parser
        assert parser is not None, "it calls this"
        if parser.get_method() != b"POST" or not (self.cycle is None or self.cycle.response_complete):
            return False
        admitted = self.admitted
        if admitted is None or self.url != admitted.url or self.headers != admitted.headers:
            admitted = self.admitted = self._admit()
        if admitted is None or not self.fast.still_admits(admitted.scope):
            return False
        # A client of HTTP/1.0 that asks for keep-alive would wait for the end of the connection.
        if not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            return False
        self.cycle = _DirectRequest(admitted)  # type: ignore[assignment] -- in its place
        return True

    def _admit(self) -> "_AdmittedHead | None":
        """Return the POST's head as one that may skip ASGI, or None."""
        path = self.url.decode("latin-1")
        route = self.fast.routes.get(("POST", path))
        if route is None or any(name in _NOT_DIRECT for name, _ in self.headers):
            return None
        scope = {
            "method": "POST",
            "path": path,
            "headers": self.headers,
            "server": self.server,
            "client": self.client,
        }
        if not self.fast.admits(scope, DIRECT_BYTES_MAX):
            return None
        return _AdmittedHead(self.url, self.headers, route, scope)

    async def _answer(self, direct: _DirectRequest) -> None:
        """Answer in one write."""
        try:
            response, headers = await self.fast.respond(direct.head.route, direct.head.scope, direct.body)
            if self.flow.write_paused and not direct.disconnected:
                await self.flow.drain()
            self._complete(direct, _bytes_of(response.status, headers, response.body, close=not direct.keep_alive))
        except BaseException:  # also the cancellation by a server that stops
            direct.keep_alive = False
            self._complete(direct, _FAILED)
            raise

    def _complete(self, direct: _DirectRequest, answer: bytes) -> None:
        direct.response_complete = True
        if direct.disconnected:
            return
        self.transport.write(answer)
        if not direct.keep_alive:
            self.transport.close()
        if self.pipeline or self.last_answer is not None:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.idle_since = self.loop.time()

    def is_late(self, now: float, request_s: float) -> bool:
        """Return True if the client owes the rest of a head or body for longer than `request_s`."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if not self.owes_since and is_idle and self.timeout_keep_alive_task is None and not self.idle_since:
            self.owes_since = now  # blank lines end uvicorn's own timer and begin no request
        return bool(self.owes_since) and now - self.owes_since > request_s

    def end_late(self) -> None:
        """Answer 408 where no answer has begun, and close."""
        self._end(_TOO_LATE)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. uvicorn would write this in front of the answers that are due."""
        self._end(_NOT_HTTP)

    def on_response_complete(self) -> None:
        """Go on with the request behind the one that is answered, or end."""
        waits = bool(self.pipeline)
        super().on_response_complete()
        if self.last_answer is not None and not waits:
            self._close(self.last_answer)

    def _end(self, answer: bytes) -> None:
        """Refuse what is arriving, behind the answers to all that came before it, and close. Nothing more is read."""
        if self.last_answer is not None:
            return
        self.owes_since, self.last_answer = 0.0, answer
        cycle = self.cycle
        if self.in_message and not self.in_head:  # the body of the newest request is what cannot be read
            waiting = [entry for entry in self.pipeline if entry[0] is not cycle]
            if len(waiting) == len(self.pipeline):
                self._close(b"" if cycle is not None and cycle.response_started else answer)
                return
            self.pipeline.clear()
            self.pipeline.extend(waiting)
        elif cycle is None or cycle.response_complete:
            self._close(answer)

    def _close(self, answer: bytes) -> None:
        if answer and not self.transport.is_closing():
            self.transport.write(answer)
        self.transport.close()


class _Config(uvicorn.Config):
    """uvicorn's settings without its TLS, which would bound no handshakes and take no new certificates."""

    certificate: Certificate | None = None


def make_server(app: FastPath, settings: HttpSettings, on_refusal: Callable[[str], None]) -> HttpServer:
    """Build the server around the first ASGI callable; `on_refusal` gets the problem code of what no route sees. The bound on connections stays below the limit of open files. Raises BadSetting for a certificate that cannot be used."""
    files = raise_file_limit()
    handshakes_max = max(1, min(HANDSHAKES_MAX, (files - FILES_KEPT) // 4)) if settings.tls is not None else 0
    connections_max = max(1, min(settings.connections_max, files - FILES_KEPT - handshakes_max))
    if connections_max < settings.connections_max:
        log.info("connections bounded by open files", connections_max=connections_max, open_files_max=files)
    # uvicorn makes a protocol object per connection and gives it no way to reach its server, hence a class of its own.
    protocol = cast(type[_Connection], type("Connection", (_Connection,), {}))
    config = _Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="none",
        http=protocol,
        ws="none",
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=DRAIN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
    )
    if settings.tls is not None:
        config.certificate = Certificate(settings.tls)
    server = HttpServer(config, request_s=settings.request_s, connections_max=connections_max, on_refusal=on_refusal)
    protocol.owner, protocol.fast = server, app
    if config.certificate is not None:
        server.handshakes = handshakes = Handshakes(config.certificate.context, handshakes_max)

        def accepted(**uvicorns: Any) -> asyncio.Protocol:
            return handshakes.begin(lambda: protocol(**uvicorns))

        config.http = cast(type[asyncio.Protocol], accepted)
    return server


def listen(settings: HttpSettings) -> socket.socket:
    """Open the listening socket. Raises OSError with the reason; uvicorn itself would only exit."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one and return it; a usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    if soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return soft
    return most


def _bytes_of(status: int, headers: Headers, body: bytes, *, close: bool) -> bytes:
    """Return a whole answer. Raises ValueError for a header value that would end its line."""
    pieces = [STATUS_LINE[status]]
    for name, value in headers:
        if HEADER_VALUE_RE.search(value):
            raise ValueError(f"header {name.decode()}: expected one line of text")
        pieces += name, b": ", value, b"\r\n"
    pieces += (b"connection: close\r\n\r\n" if close else b"\r\n"), body
    return b"".join(pieces)


def _whole_answer(refused: HttpError) -> bytes:
    answer = refused.response("")
    fields = (
        (b"content-type", answer.media_type),
        (b"content-length", b"%d" % len(answer.body)),
        (b"connection", b"close"),
        *answer.headers,
    )
    lines = b"".join(b"%s: %s\r\n" % field for field in fields)
    return f"HTTP/1.1 {refused.status} {refused.title}\r\n".encode() + lines + b"\r\n" + answer.body


_OVER_BOUND = _whole_answer(
    HttpError(
        503,
        "too_many_connections",
        "the gateway has as many connections as it takes",
        retry_after_s=5,
        hint="close connections that are not used; FAIRLEAD_HTTP_CONNECTIONS of the gateway sets the bound",
    )
)
_FAILED = _whole_answer(internal_error())
_TOO_LATE = _whole_answer(
    HttpError(408, "request_timeout", "the rest of the request did not arrive in time", hint="send the request again")
)
_NOT_HTTP = _whole_answer(
    HttpError(400, "not_http", "expected a request of HTTP/1.1", hint="requests before this one have been answered")
)
_HEAD_TOO_LARGE = _whole_answer(HttpError(431, "head_too_large", f"expected a head of at most {HEAD_BYTES_MAX} bytes"))
