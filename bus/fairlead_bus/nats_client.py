"""The library's client with a short way for messages: from the parser straight to a handler.

The library gives each message its headers' parse, an object, a queue and a task; reading the log spent more on
that than on the log. Here a subscription may name a plain function that gets the bytes, and `flush` is a barrier.
The methods below override private ones of a library that is pinned by hash; tests/bus holds what they promise.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# -- this file is the one place that reaches into the library, and says so above

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.client import PING_PROTO, Client
from nats.aio.subscription import Subscription

#: Headers without an inline status begin so; nobody here reads ordinary headers.
_PLAIN_HEADERS = b"NATS/1.0\r\n"
_STATUS = slice(9, 12)

#: (subject, payload, reply, status): status is "" or that of an inline status line ("100", "503").
Handler = Callable[[str, bytes, str, str], None]

log = structlog.get_logger()


class DirectClient(Client):
    """`nats.aio.client.Client` plus `subscribe_direct`, and a `flush` after which everything before it has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self._direct: dict[int, Handler] = {}

    async def subscribe_direct(self, subject: str, handler: Handler) -> Subscription:
        """Call `handler` in the read loop for each message, in order. It must not block; what it raises is logged."""
        subscription = await self.subscribe(subject, pending_msgs_limit=0, pending_bytes_limit=0)
        self._direct[subscription._id] = handler
        while not subscription._pending_queue.empty():  # came before the handler was there
            message = subscription._pending_queue.get_nowait()
            _call(handler, message.subject, message.data, message.reply, (message.headers or {}).get("Status", ""))
        return subscription

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
        status = headers[_STATUS].decode() if headers and not headers.startswith(_PLAIN_HEADERS) else ""
        _call(handler, subject.decode(), data, reply.decode(), status)


def _call(handler: Handler, subject: str, payload: bytes, reply: str, status: str) -> None:
    try:
        handler(subject, payload, reply, status)
    except Exception:
        # Raised further, it would end the read loop of the whole connection.
        log.exception("a message's handler failed", subject=subject)
