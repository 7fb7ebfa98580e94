"""The library's client with a short way for messages: from the socket straight to a handler.

The library gives each message two regular expressions, a coroutine, its headers' parse, an object, a queue and a
task; reading the log spent more on that than on the log. Here a subscription may name a plain function that gets
the bytes, and `flush` is a barrier. The methods below override private ones of a library that is pinned by hash;
tests/bus holds what they promise.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# -- this file is the one place that reaches into the library, and says so above

import asyncio
import base64
from collections.abc import Callable

import structlog
from nats.aio.client import PING_PROTO, Client
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from fairlead_bus.nkey import KeyPair

#: Start of headers without an inline status. This client never reads ordinary headers.
_PLAIN_HEADERS = b"NATS/1.0\r\n"
_STATUS = slice(9, 12)
#: A message cut by the end of a read is put together here up to this size, beyond it by the library.
CUT_MAX = 64 * 1024

#: (subject, payload, reply, status): status is "" or that of an inline status line ("100", "503").
Handler = Callable[[str, bytes, str, str], None]

log = structlog.get_logger()


class DirectClient(Client):
    """`nats.aio.client.Client` plus `subscribe_direct`, and a `flush` after which everything before it has arrived."""

    def __init__(self, key: KeyPair | None = None) -> None:
        super().__init__()
        self._key = key
        self._direct: dict[int, Handler] = {}
        self._ps = BurstParser(self._direct, self)

    async def subscribe_direct(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Call `handler` in the read loop for each message, in order. It must not block; what it raises is logged."""
        subscription = await self.subscribe(subject, queue=group, pending_msgs_limit=0, pending_bytes_limit=0)
        self._direct[subscription._id] = handler
        while not subscription._pending_queue.empty():  # came before the handler was there
            message = subscription._pending_queue.get_nowait()
            _call(handler, message.subject, message.data, message.reply, (message.headers or {}).get("Status", ""))
        return subscription

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
        _call(handler, subject.decode(), data, reply.decode(), _status(headers or b""))


class BurstParser(Parser):
    """The library's parser, which sees only what is not a whole message for a handler."""

    def __init__(self, handlers: dict[int, Handler], client: Client) -> None:
        super().__init__(client)
        self._handlers = handlers

    async def parse(self, data: bytes = b"") -> None:
        """Bytes as they came from the socket."""
        if self.state == AWAITING_CONTROL_LINE:
            if self.buf:
                data = bytes(self.buf) + data
                self.buf.clear()
            taken, cut = self._burst(data)
            data = data[taken:]
            if cut:  # the rest comes with the next bytes; the library would also consume all of those
                self.buf.extend(data)
                return
        if data:
            await super().parse(data)

    def _burst(self, data: bytes) -> tuple[int, bool]:
        """Hand over the whole messages at the front that have a handler; how many bytes they took, and whether what
        follows is the beginning of one more (a short one: to wait for a long one here would copy it over and over)."""
        at = 0
        while (end := data.find(b"\r\n", at)) > 0:
            # MSG subject sid [reply] bytes, or HMSG subject sid [reply] header-bytes bytes
            line = data[at:end].split()
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
            reply = line[3].decode() if len(line) == 5 + with_headers else ""
            _call(handler, line[1].decode(), data[start:stop], reply, status)
            at = stop + 2
        return at, False


def _status(headers: bytes) -> str:
    """Return the status of an inline status line, "" without one."""
    return headers[_STATUS].decode() if headers and not headers.startswith(_PLAIN_HEADERS) else ""


def _call(handler: Handler, subject: str, payload: bytes, reply: str, status: str) -> None:
    try:
        handler(subject, payload, reply, status)
    except Exception:
        # Raised further, it would end the read loop of the whole connection.
        log.exception("a message's handler failed", subject=subject)
