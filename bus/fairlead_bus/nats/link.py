"""NATS connection that hides no loss, and requests whose outcome is known; and the library's client with a short way for
messages: from the socket straight to a handler.

This module is the only place that connects; docs/reference/facts.md explains its settings. Requests go through an inbox
of their own: when the connection drops, everything in flight ends at once as "unknown" instead of waiting out a
timeout.

The library gives each message two regular expressions, a coroutine, its headers' parse, an object, a queue and a
task; reading the log spent more on that than on the log. Here a subscription may name a plain function that gets
the bytes, and `flush` is a barrier. A message that is sent waits in a list, and one call writes all that a turn of the event
loop has sent; the library wakes a task for each. The methods below override private ones of a library that is pinned by
hash; tests/bus holds what they promise.
"""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import nats.errors
import structlog
from nats.aio.client import PING_PROTO, Client, _validate_subject
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from fairlead_bus import permissions
from fairlead_bus.nats.server_checks import parse_addresses
from fairlead_bus.nkey import KeyPair
from fairlead_bus.port import BusError, NotAllowed, OutcomeUnknown, TooLarge, Unavailable
from fairlead_schemas.units.timestamps import SECOND_NS

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# -- this file is the one place that reaches into the library, and says so above


#: Start of headers without an inline status. This client never reads ordinary headers.
_PLAIN_HEADERS = b"NATS/1.0\r\n"
_STATUS = slice(9, 12)
#: A message cut by the end of a read is put together here up to this size, beyond it by the library.
CUT_MAX = 64 * 1024
#: Subjects that are remembered as valid.
SUBJECTS_CHECKED_MAX = 10_000

#: (subject, payload, reply, status): status is "" or that of an inline status line ("100", "503").
Handler = Callable[[str, bytes, str, str], None]

log = structlog.get_logger()


class DirectClient(Client):
    """`nats.aio.client.Client` plus `subscribe_direct`, and a `flush` after which everything before it has arrived."""

    def __init__(self, key: KeyPair | None = None) -> None:
        super().__init__()
        self._key = key
        self._direct: dict[int, Handler] = {}
        self._checked_subjects: set[str] = set()
        self._is_write_due = False
        self._ps = self._burst_parser = BurstParser(self._direct, self)

    async def subscribe_direct(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Call `handler` in the read loop for each message, in order. It must not block; what it raises is logged."""
        subscription = await self.subscribe(subject, queue=group, pending_msgs_limit=0, pending_bytes_limit=0)
        self._direct[subscription._id] = handler
        while not subscription._pending_queue.empty():  # came before the handler was there
            message = subscription._pending_queue.get_nowait()
            _call(handler, message.subject, message.data, message.reply, (message.headers or {}).get("Status", ""))
        return subscription

    def publish_direct(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Send one message with the others of this turn of the event loop. Raises as `publish` does, on a connection that keeps
        nothing for later, and ValueError for a header of more than one line."""
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        head = _header_bytes(headers) if headers is not None else b""
        if (
            len(head) + len(payload) > self._max_payload
        ):  # the server would end the connection, and with it the whole batch
            raise nats.errors.MaxPayloadError
        if subject not in self._checked_subjects:
            self._check_subject(subject)
        if headers is None:
            message = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
        else:
            sizes = len(head), len(head) + len(payload)
            message = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply.encode(), *sizes, head, payload)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        self._pending.append(message)
        self._pending_data_size += len(message)
        if not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def _check_subject(self, subject: str) -> None:
        _validate_subject(subject)
        if len(self._checked_subjects) >= SUBJECTS_CHECKED_MAX:
            self._checked_subjects.clear()
        self._checked_subjects.add(subject)

    def _write_pending(self) -> None:
        self._is_write_due = False
        if not self._pending or not self.is_connected or self._transport is None:
            return  # the library's flusher leaves it, too
        try:
            self._transport.write(b"".join(self._pending))
        except (OSError, RuntimeError, AttributeError) as error:  # the connection has just ended; its reader notices
            log.debug("messages not written", reason=str(error) or type(error).__name__)
            return
        self._pending = []
        self._pending_data_size = 0

    def forget_unwritten(self) -> None:
        """Drop what waits to be written, on a connection that has ended: the library would send it on the next one."""
        self._pending = []
        self._pending_data_size = 0

    async def _read_loop(self) -> None:
        reader = getattr(self._transport, "_io_reader", None)
        if isinstance(reader, asyncio.StreamReader):  # a transport of another kind has none
            reader.feed_data = _ShortWay(reader, self._burst_parser).feed  # type: ignore[method-assign]
        await super()._read_loop()
        task = asyncio.current_task()
        # The library ends its loop upon what it did not expect, and then reads nothing more and never reconnects. It also ends the
        # loop where the task was cancelled: the process is on its way out.
        if self.is_connected and task is not None and not task.cancelling():
            await self._process_op_err(nats.errors.ProtocolError())

    def _setup_nkeys_seed_connect(self) -> None:
        # As the library's, without the package that it would take for it (why: nkey.py).
        assert self._key is not None, "a seed is only named to the library where there is a key"
        key = self._key
        self._public_nkey = key.public
        self._signature_cb = lambda nonce: base64.b64encode(key.sign(nonce.encode()))

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        # The library writes PING past the commands that still wait to be written, so that the answer to a flush
        # says nothing about them. Behind them, it does.
        self._pongs.append(future if future is not None else asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._direct.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._direct.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        _call(handler, _text(subject), data, _text(reply), _status(headers or b""))


class _ShortWay:
    """Way of bytes from the socket into the parser's whole messages, within the call that delivers the bytes.

    The library's way is a stream reader: the bytes are copied, a future wakes the reading task, and the task copies them again and
    parses them. It stays the way of whatever is not a whole message for a handler.
    """

    def __init__(self, reader: asyncio.StreamReader, parser: "BurstParser") -> None:
        self._reader, self._parser = reader, parser
        self._feed_reader = reader.feed_data

    def feed(self, data: bytes) -> None:
        """Handle the whole messages at the front of the bytes, and leave the rest to the reading task."""
        reader: Any = self._reader  # its private attributes have no types
        # The task waits for bytes, and nothing that came earlier is left to be parsed: order is kept.
        if reader._waiter is not None and not reader._waiter.done() and not reader._buffer and self._parser.is_idle:
            taken, _ = self._parser.burst(bytes(data))
            data = data[taken:]
        if data:
            self._feed_reader(data)


class BurstParser(Parser):
    """The library's parser, which sees only what is not a whole message for a handler."""

    def __init__(self, handlers: dict[int, Handler], client: Client) -> None:
        super().__init__(client)
        self._handlers = handlers

    async def parse(self, data: bytes = b"") -> None:
        """Parse bytes from the socket: whole messages for a handler go straight to it, the library parses the rest."""
        if self.state == AWAITING_CONTROL_LINE:
            if self.buf:
                data = bytes(self.buf) + data
                self.buf.clear()
            taken, cut = self.burst(data)
            data = data[taken:]
            if cut:  # the rest comes with the next bytes; the library would also consume all of those
                self.buf.extend(data)
                return
        if data:
            await super().parse(data)

    @property
    def is_idle(self) -> bool:
        """True while no beginning of a message waits for the rest."""
        return self.state == AWAITING_CONTROL_LINE and not self.buf

    def burst(self, data: bytes) -> tuple[int, bool]:
        """Hand over the whole messages at the front that have a handler; how many bytes they took, and whether what
        follows is the beginning of one more (a short one: to wait for a long one here would copy it over and over)."""
        at = 0
        while (end := data.find(b"\r\n", at)) > 0:
            # MSG subject sid [reply] bytes, or HMSG subject sid [reply] header-bytes bytes
            line = data[at:end].split(b" ")  # no other blank: a subject may hold those
            with_headers = line[0] == b"HMSG"
            if not with_headers and line[0] != b"MSG":
                break
            handler = self._handlers.get(int(line[2]))
            if handler is None:
                break
            start = end + 2
            stop = start + int(line[-1])
            if stop + 2 > len(data):
                return at, stop - start <= CUT_MAX
            status = ""
            if with_headers:
                headers = start + int(line[-2])
                status = _status(data[start:headers])
                start = headers
            reply = _text(line[3]) if len(line) == 5 + with_headers else ""
            _call(handler, _text(line[1]), data[start:stop], reply, status)
            at = stop + 2
        return at, False


def _header_bytes(headers: dict[str, str]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError(f"headers {', '.join(headers)}: expected one line each")
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def _text(name: bytes) -> str:
    """Decode a subject or status. The server passes on any bytes that a client sends, and those of one client must not end the connection of another."""
    return name.decode(errors="replace")


def _status(headers: bytes) -> str:
    """Return the status of an inline status line, "" without one."""
    return _text(headers[_STATUS]) if headers and not headers.startswith(_PLAIN_HEADERS) else ""


def _call(handler: Handler, subject: str, payload: bytes, reply: str, status: str) -> None:
    try:
        handler(subject, payload, reply, status)
    except Exception:
        # Raised further, it would end the read loop of the whole connection.
        log.exception("a message's handler failed", subject=subject)


#: How long a server may take to answer before an outcome counts as unknown.
ANSWER_S = 5.0
#: As ANSWER_S for calls that change nothing, which are simply repeated: one that went to a stream without a leader is
#: never answered, and the next one may find a leader.
READ_S = 2.0
CONNECT_S = 20.0
#: One alone may be a server that is only just reading its list of users.
DENIALS_MAX = 5
#: Maximum number of refused subjects that are reported.
REFUSALS_MAX = 100
NO_RESPONDERS = "503"
NO_SUCH_MESSAGE = "404"
SEND_ERRORS = (
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.ConnectionDrainingError,
    nats.errors.StaleConnectionError,
    OSError,
)


def _expire(answer: asyncio.Future[bytes], message: str) -> None:
    if not answer.done():
        answer.set_exception(OutcomeUnknown(message))


class CredentialsRefused(Unavailable):
    """No server knows the key or token. Trying again needs another one, or a server with another list of users."""


class NoSuchMessage(BusError):
    """The stream has no message under the subject that was asked for."""


class Link:
    """A connection that never gives up, refuses to buffer while it is down, and tells when it is back.

    `url`: one server or several of one cluster (server_checks.py); a lost connection is made again to any of them.
    `key`: whose permissions it has; without one, those of the address's token. Raises BadSetting.
    """

    def __init__(self, url: str, name: str, key: KeyPair | None = None) -> None:
        self.addresses, self.name, self.key = parse_addresses(url), name, key
        self.client = DirectClient(key)
        #: The connection is over for good: closed by us, or after so many denials of a server that has known us.
        self.closed = asyncio.Event()
        self._closing = False
        self._refusals: set[str] = set()
        self._denied = asyncio.Event()
        self._denials = 0
        self.on_back: list[Callable[[], None]] = []
        self.on_drop: list[Callable[[], None]] = []
        #: Called with each cause, once, for which `open` has no connection yet: the server and what is wrong with it.
        self.on_waiting: Callable[[str, str], None] | None = None
        self._causes: set[tuple[str, str]] = set()
        self._inbox = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        #: {token of a question that waits: its subject}, where there is a key that may not allow it.
        self._subjects: dict[str, str] = {}

    async def open(self) -> None:
        """Connect. Raises Unavailable when no server answers."""
        try:
            await asyncio.wait_for(self._connected_or_denied(), CONNECT_S)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise Unavailable(
                f"no NATS server answers at {self._shown()}: {str(error) or type(error).__name__}"
            ) from error
        self._inbox = self.client.new_inbox()
        await self.subscribe(f"{self._inbox}.*", self._answered)
        await self.client.flush()

    async def _connected_or_denied(self) -> None:
        """Connect, or raise Unavailable if the server denies the credentials. The library alone would retry without end."""
        connecting, denied = asyncio.ensure_future(self._connect()), asyncio.ensure_future(self._denied.wait())
        try:
            await asyncio.wait({connecting, denied}, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                await self.close()
                raise CredentialsRefused(f"{self._shown()} does not know {self._credentials()}")
            await connecting
        finally:
            for task in (connecting, denied):
                task.cancel()

    async def _connect(self) -> None:
        addresses = self.addresses
        # As options: the library uses a URL's own credentials for that URL alone, and not for servers that it learns of.
        token, user, password = (
            (addresses.token, addresses.user, addresses.password) if self.key is None else ("", "", "")
        )
        await self.client.connect(
            servers=list(addresses.urls),
            token=token or None,
            user=user or None,
            password=password or None,
            name=self.name,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,  # pyright: ignore[reportArgumentType] -- it takes fractions, as its sleep does
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=0,  # a writer's message must not be sent later, behind our back
            nkeys_seed_str=self.key.seed if self.key else None,
            inbox_prefix=permissions.inbox(self.key.public) if self.key else "_INBOX",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_closed,
        )

    def _shown(self) -> str:
        return self.addresses.shown

    def _credentials(self) -> str:
        return f"the key {self.key.public}: was it revoked, or never added?" if self.key else "the token of the address"

    async def _on_error(self, error: Exception) -> None:
        text = str(error).lower()
        if not self._inbox:
            self._tell_cause(str(error) or type(error).__name__)
        if "authorization violation" in text:
            self._denials += 1
            if self._denials >= len(self.addresses.urls):  # one of several may have an old list of users
                self._denied.set()
            if self._denials >= max(DENIALS_MAX, len(self.client.servers)) and not self._closing:
                self._closing = True
                log.error("NATS closed the connection: credentials rejected", credentials=self._credentials())
                await self.client.close()
        elif "permissions violation" in text:
            if text not in self._refusals and len(self._refusals) < REFUSALS_MAX:  # a repeated attempt is logged once
                self._refusals.add(text)
                log.error("the bus refuses this client a subject", reason=str(error))
            self._refused(text)
        elif not isinstance(error, OSError):
            log.debug("bus error", reason=str(error) or type(error).__name__)

    def _tell_cause(self, text: str) -> None:
        pool = self.client._server_pool  # the server that was tried last is its end
        cause = (pool[-1].uri.netloc if pool else self._shown(), text)
        if self.on_waiting is not None and cause not in self._causes:
            self._causes.add(cause)
            self.on_waiting(*cause)

    async def _on_disconnect(self) -> None:
        self.client.forget_unwritten()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown("the connection dropped before the answer"))
        for handler in self.on_drop:
            handler()

    async def _on_reconnect(self) -> None:
        self._denials = 0
        for handler in self.on_back:
            handler()

    async def _on_closed(self) -> None:
        self.closed.set()

    def _refused(self, text: str) -> None:
        """The server names the subject, the library in lower case: no need to wait for an answer on it."""
        for token, subject in list(self._subjects.items()):
            answer = self._waiting.get(token)
            if f'"{subject.lower()}"' in text and answer is not None and not answer.done():
                answer.set_exception(NotAllowed(f"this client's bus key does not allow {subject}"))

    def _answered(self, subject: str, payload: bytes, reply: str, status: str) -> None:
        answer = self._waiting.pop(subject.rpartition(".")[2], None)
        if answer is None or answer.done():
            return
        if status == NO_RESPONDERS:
            answer.set_exception(Unavailable("no listener on that subject"))
        elif status == NO_SUCH_MESSAGE:
            answer.set_exception(NoSuchMessage("there is no message"))
        elif status:
            answer.set_exception(Unavailable(f"the server refuses the question with status {status}"))
        else:
            answer.set_result(payload)

    async def subscribe(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Call `handler` for each message, in order; nothing is dropped on the way. In a group, one member gets each."""
        return await self.client.subscribe_direct(subject, handler, group)

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish. Raises Unavailable when the connection is down and TooLarge; nothing was sent then."""
        try:
            self.client.publish_direct(subject, payload, reply, headers)
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"{len(payload)} bytes on {subject}, over the server's max_payload") from error
        except SEND_ERRORS as error:
            raise Unavailable(f"not connected to {self._shown()}") from error

    async def ask(
        self, subject: str, payload: bytes, *, headers: dict[str, str] | None = None, timeout_s: float = ANSWER_S
    ) -> bytes:
        """Publish and wait for one answer. Raises Unavailable (not sent, or no listener) or OutcomeUnknown."""
        token, loop = str(next(self._numbers)), asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting[token] = answer
        if self.key is not None:
            self._subjects[token] = subject
        timer = None
        try:
            await self.send(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
            timer = loop.call_later(timeout_s, _expire, answer, f"no answer on {subject} within {timeout_s:g} s")
            return await answer
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(token, None)
            self._subjects.pop(token, None)

    async def read(self, subject: str, payload: bytes = b"") -> bytes:
        """Request like `ask`, for calls that change nothing: an unknown outcome is raised as Unavailable."""
        try:
            return await self.ask(subject, payload, timeout_s=READ_S)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    async def close(self) -> None:
        """Close for good. A connection that breaks while its last bytes are written is closed as well."""
        self._closing = True
        if not self.client.is_closed:
            with contextlib.suppress(OSError, nats.errors.Error):
                await self.client.close()


class ApiError(msgspec.Struct, frozen=True):
    """An error of the JetStream API."""

    code: int = 0
    err_code: int = 0
    description: str = ""


#: A leader that has heard from most copies within this time is the only one: NATS elects no other within 4 s.
HEARD_NS = 3 * SECOND_NS


class Copy(msgspec.Struct, frozen=True):
    """Another copy of a stream, as its leader knows it. `active`: ns since it was heard; 0: never, by this leader."""

    name: str = ""
    current: bool = False
    offline: bool = False
    lag: int = 0
    active: int = 0


class Copies(msgspec.Struct, frozen=True):
    """The server that leads a stream, and the other copies as it knows them; none of a stream with one copy."""

    leader: str = ""
    replicas: list[Copy] = []

    @property
    def count(self) -> int:
        """All copies, the leader's own included."""
        return 1 + len(self.replicas)

    def check_leader(self, stream: str) -> None:
        """Raises Unavailable where the leader may have been deposed without knowing it.

        A server whose cable was cut still answers as the leader for some seconds, and also just after it is back: from what it had
        then. The stream seems to have gone back.
        """
        heard = 1 + sum(0 < each.active <= HEARD_NS for each in self.replicas)
        if 2 * heard <= self.count:
            raise Unavailable(f"stream {stream}: its leader has heard from {heard} of {self.count} copies lately")
