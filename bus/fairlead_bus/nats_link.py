"""One NATS connection that hides no loss, and requests whose fate is known.

The only place that connects; why its settings are as they are: docs/facts.md. Requests go through an
inbox of our own: when the connection drops, everything in flight ends at once as "unknown" instead of
waiting out a timeout.
"""

import asyncio
import itertools
from collections.abc import Callable

import msgspec
import nats.errors
import structlog
from nats.aio.subscription import Subscription

from fairlead_bus.nats_client import DirectClient, Handler
from fairlead_bus.port import OutcomeUnknown, TooLarge, Unavailable

#: How long a server may take to answer before an outcome counts as unknown.
ANSWER_S = 5.0
CONNECT_S = 20.0
NOBODY_LISTENS = "503"
SEND_ERRORS = (
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.ConnectionDrainingError,
    nats.errors.StaleConnectionError,
    OSError,
)

log = structlog.get_logger()


class Link:
    """A connection that never gives up, refuses to buffer while it is down, and tells when it is back."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.client = DirectClient()
        self.closed = asyncio.Event()
        self.on_back: list[Callable[[], None]] = []
        self.on_drop: list[Callable[[], None]] = []
        self._inbox = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    async def open(self) -> None:
        """Connect. Raises Unavailable when no server answers."""
        try:
            await asyncio.wait_for(self._connect(), CONNECT_S)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise Unavailable(
                f"no NATS server answers at {self._shown()}: {str(error) or type(error).__name__}"
            ) from error
        self._inbox = self.client.new_inbox()
        await self.subscribe(f"{self._inbox}.*", self._answered)
        await self.client.flush()

    async def _connect(self) -> None:
        await self.client.connect(
            servers=[self.url],
            name=self.name,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,  # pyright: ignore[reportArgumentType] -- it takes fractions, as its sleep does
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=0,  # a writer's message must not be sent later, behind our back
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_closed,
        )

    def _shown(self) -> str:
        return self.url.rpartition("@")[2]

    async def _on_error(self, error: Exception) -> None:
        text = str(error).lower()
        if "permissions violation" in text:
            log.error("the bus refuses this client a subject", reason=str(error))
        elif not isinstance(error, OSError):
            log.debug("bus error", reason=str(error) or type(error).__name__)

    async def _on_disconnect(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown("the connection dropped before the answer"))
        for handler in self.on_drop:
            handler()

    async def _on_reconnect(self) -> None:
        for handler in self.on_back:
            handler()

    async def _on_closed(self) -> None:
        self.closed.set()

    def _answered(self, subject: str, payload: bytes, reply: str, status: str) -> None:
        answer = self._waiting.pop(subject.rpartition(".")[2], None)
        if answer is None or answer.done():
            return
        if status == NOBODY_LISTENS:
            answer.set_exception(Unavailable("nobody listens on that subject"))
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
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"{len(payload)} bytes on {subject}, over the server's max_payload") from error
        except SEND_ERRORS as error:
            raise Unavailable(f"not connected to {self._shown()}") from error

    async def ask(
        self, subject: str, payload: bytes, *, headers: dict[str, str] | None = None, timeout_s: float = ANSWER_S
    ) -> bytes:
        """Publish and wait for one answer. Raises Unavailable (not sent, or nobody listens) or OutcomeUnknown."""
        token = str(next(self._numbers))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            await self.send(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise OutcomeUnknown(f"no answer on {subject} within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(token, None)

    async def read(self, subject: str, payload: bytes = b"") -> bytes:
        """As `ask`, for calls that change nothing: an unknown outcome is as good as unavailable."""
        try:
            return await self.ask(subject, payload)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    async def close(self) -> None:
        """Close for good."""
        if not self.client.is_closed:
            await self.client.close()


class ApiError(msgspec.Struct, frozen=True):
    """An error of the JetStream API."""

    code: int = 0
    err_code: int = 0
    description: str = ""
