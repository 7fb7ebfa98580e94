"""In-order reader of a JetStream stream: a pull consumer with an inbox of its own and two open requests.

The library's readers do not suffice: `fetch` costs more CPU per message, and the ordered consumer drops messages
silently when slow (docs/reference/facts.md). A lost message shows as a jump in the consumer's own numbers. After such a
jump, a reconnect or a silence, a new consumer is made behind the last message delivered. A consumer is in the memory of
one server: if one of several servers dies, the rest of the bus keeps working and only silence shows the loss.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from nats.aio.subscription import Subscription as NatsSubscription

from fairlead_bus.nats.link import ANSWER_S, NO_RESPONDERS, ApiError, Copies, Link
from fairlead_bus.port import STALE_S, LogDamaged, OutcomeUnknown, Stored, Unavailable
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects

OPEN_REQUESTS = 2
REQUEST_MESSAGES = 500
REQUEST_BYTES = 4 * 2**20
REQUEST_EXPIRES_S = 60
HEARTBEAT_S = 1
#: Without a message or a heartbeat for this long the consumer counts as lost.
SILENCE_S = 2.5
#: A loop that was busy for so long finds its heartbeats in the socket: they get this long to be read.
GRACE_S = 0.1
#: First wait for a new consumer, and growth factor of each further wait up to ANSWER_S. The cluster may place
#: a consumer on a server that has just died (for 150 s it does not know). Such a consumer never answers; the
#: next one is placed again.
CREATE_S = 0.5
CREATE_GROWTH = 1.25
#: New consumers that are made because the log seems to have a gap, before that is believed: each is on some server, and reads that
#: server's copy.
GAP_TRIES = 8
#: Messages buffered here before no further request is opened.
BUFFER_MAX = 2000
#: Seconds without a pull after which the server forgets a consumer.
INACTIVE_S = 60
RETRY_S = 0.2
#: Status line of an idle heartbeat.
HEARTBEAT = "100"

_REQUEST = {"batch": REQUEST_MESSAGES, "max_bytes": REQUEST_BYTES, "expires": REQUEST_EXPIRES_S * SECOND_NS}
_PULL = msgspec.json.encode(_REQUEST)
_PULL_WITH_HEARTBEAT = msgspec.json.encode({**_REQUEST, "idle_heartbeat": HEARTBEAT_S * SECOND_NS})
_names = itertools.count(1)
log = structlog.get_logger()


class _StreamInfo(msgspec.Struct):
    class State(msgspec.Struct):
        last_seq: int = 0

    state: State = msgspec.field(default_factory=State)
    cluster: Copies = Copies()
    error: ApiError | None = None


class _Placed(msgspec.Struct):
    leader: str = ""


class _Created(msgspec.Struct):
    cluster: _Placed = msgspec.field(default_factory=_Placed)
    error: ApiError | None = None


class ConsumerWatch:
    """Detector of a lost consumer, based on the time since its last message or heartbeat. Times are the loop's, in seconds."""

    def __init__(self) -> None:
        #: Set for each message and heartbeat, and when the first request is sent. A plain attribute: a call for each message
        #: of the log is worth avoiding.
        self.received_at = 0.0
        self._doubted = False

    def look(self, now: float, *, expecting: bool) -> tuple[bool, float]:
        """(True where the consumer counts as lost, seconds until the next look). `expecting`: a request with heartbeats is
        open."""
        silent_s = now - self.received_at
        if not expecting or silent_s < SILENCE_S:
            self._doubted = False
            return False, max(SILENCE_S - silent_s, GRACE_S)
        lost, self._doubted = self._doubted, not self._doubted
        return lost, SILENCE_S if lost else GRACE_S


class NatsTail:
    """Implements `port.Tail`."""

    def __init__(self, link: Link, stream: str, after: int, subject: str | Sequence[str]) -> None:
        self.link, self.stream, self.subject = link, stream, subject
        self.cursor = after
        self._buffer: deque[Stored] = deque()
        self._arrived = asyncio.Event()
        self._subscription: NatsSubscription | None = None
        self._consumer = self._inbox = ""
        self._delivered = 0
        #: Reply subjects of the open requests; the server serves the oldest first, which has so many still to come.
        self._requests: deque[str] = deque()
        self._left = REQUEST_MESSAGES
        #: One of them has heartbeats, which the server sends whether or not its turn has come.
        self._with_heartbeat = ""
        self._request_numbers = itertools.count(1)
        self._silence = ConsumerWatch()
        self._create_s = CREATE_S
        #: Nothing is ever deleted from the log: a sequence that is left out is missing from a server's copy, or lost.
        self._is_whole = stream == subjects.LOG and not subject
        self._gaps = 0
        #: The server that the consumer is on, where it says so.
        self._server = ""
        #: Since when the stream has seemed to end before `cursor`.
        self._behind_since: float | None = None
        self._broken = True
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._watch = self._loop.call_later(SILENCE_S, self._look)
        link.on_back.append(self._break)
        link.on_drop.append(self._break)

    def _look(self) -> None:
        """Let `next` see a silence; one timer here is cheaper than one for each wait."""
        lost, next_s = self._silence.look(
            self._loop.time(), expecting=self._with_heartbeat in self._requests and not self._broken
        )
        if lost:
            log.info("tail's consumer is silent, another one is made", stream=self.stream, consumer=self._consumer)
            self._break()
        self._watch = self._loop.call_later(next_s, self._look)

    def _break(self) -> None:
        self._broken = True
        self._arrived.set()

    async def next(self) -> list[Stored]:
        """The next messages; see `port.Tail`."""
        while not self._buffer:
            if self._closed:
                raise Unavailable("the tail is closed")
            if self._broken:
                await self._rebuild()
                continue
            await self._ask_for_more()
            self._arrived.clear()
            if not self._buffer and not self._broken:
                await self._arrived.wait()
        found = list(self._buffer)
        self._buffer.clear()
        await self._ask_for_more()
        return found

    async def _rebuild(self) -> None:
        """A new consumer behind the last message that was delivered here."""
        try:
            await self._drop_consumer()
            await self._check_not_behind()
            await self._create()
        except OutcomeUnknown as error:
            self._broken = True
            self._create_s = min(self._create_s * CREATE_GROWTH, ANSWER_S)
            log.debug("no answer about a new consumer, another one is made", stream=self.stream, reason=str(error))
        except Unavailable as error:
            self._broken = True
            log.debug("tail waits for the bus", stream=self.stream, reason=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            self._create_s = CREATE_S

    async def _check_not_behind(self) -> None:
        answer = await self.link.read(f"$JS.API.STREAM.INFO.{self.stream}")
        info = msgspec.json.decode(answer, type=_StreamInfo)
        if info.error is not None:
            raise Unavailable(f"stream {self.stream}: {info.error.description}")
        if self.cursor <= info.state.last_seq:
            self._behind_since = None
            return
        info.cluster.check_leader(self.stream)
        now = self._loop.time()
        self._behind_since = self._behind_since or now
        if info.cluster.count > 1 and now - self._behind_since < STALE_S:
            raise Unavailable(f"stream {self.stream} ends at {info.state.last_seq}, it was read up to {self.cursor}")
        raise LogDamaged(self.cursor, f"stream {self.stream} went back to {info.state.last_seq}")

    async def _create(self) -> None:
        self._broken = False
        self._delivered = 0
        self._requests.clear()
        self._inbox = self.link.client.new_inbox()
        self._subscription = await self.link.subscribe(f"{self._inbox}.*", self._received)
        self._consumer = f"tail-{self._inbox.rpartition('.')[2]}-{next(_names)}"
        config: dict[str, Any] = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.cursor + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_waiting": 8,
            "inactive_threshold": INACTIVE_S * SECOND_NS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self.subject and isinstance(self.subject, str):
            config["filter_subject"] = self.subject
        elif self.subject:
            config["filter_subjects"] = list(self.subject)
        request = msgspec.json.encode({"stream_name": self.stream, "config": config, "action": "create"})
        subject = f"$JS.API.CONSUMER.CREATE.{self.stream}.{self._consumer}"
        created = msgspec.json.decode(await self.link.ask(subject, request, timeout_s=self._create_s), type=_Created)
        if created.error is not None:
            self._broken = True
            raise Unavailable(f"no consumer on {self.stream}: {created.error.description}")
        self._server = created.cluster.leader
        await self._ask_for_more()

    async def _ask_for_more(self) -> None:
        try:
            while not self._broken and len(self._requests) < OPEN_REQUESTS and len(self._buffer) < BUFFER_MAX:
                reply = f"{self._inbox}.{next(self._request_numbers)}"
                if not self._requests:
                    self._left = REQUEST_MESSAGES
                request = _PULL
                if self._with_heartbeat not in self._requests:
                    request, self._with_heartbeat = _PULL_WITH_HEARTBEAT, reply
                    self._silence.received_at = self._loop.time()
                self._requests.append(reply)
                await self.link.send(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}", request, reply=reply)
        except Unavailable:
            self._break()

    def _received(self, subject: str, payload: bytes, reply: str, status: str) -> None:
        self._silence.received_at = self._loop.time()
        if not reply:
            self._ended(subject, status)
            return
        tokens = reply.split(".")
        at = 5 if len(tokens) == 9 else 7  # newer servers name domain and account before the stream
        if tokens[at - 2] != self._consumer:
            return  # of a consumer that was given up
        sequence, delivered = int(tokens[at]), int(tokens[at + 1])
        if delivered != self._delivered + 1:
            self._break()  # something between was lost on the way
            return
        if self._is_whole and sequence != self.cursor + 1 and self._gaps < GAP_TRIES:
            self._note_gap(sequence)
            self._break()
            return
        self._gaps = 0
        self._delivered = delivered
        self.cursor = sequence
        self._buffer.append(Stored(sequence, subject, payload))
        self._left -= 1
        if not self._left and self._requests:
            self._done(self._requests[0])
        self._arrived.set()

    def _note_gap(self, found: int) -> None:
        """A copy may be damaged on one server, and whole on the others: another consumer may be on one of those."""
        self._gaps += 1
        log.error(
            "this server's copy of the log lacks commits, another one is read",
            server=self._server or self.link.addresses.shown,
            first=self.cursor + 1,
            last=found - 1,
            hint="stop this server, move its store away, start it: it gets its copies from the others",
        )

    def _done(self, request: str) -> None:
        """Nothing more comes for a request."""
        if request == self._requests[0]:
            self._left = REQUEST_MESSAGES
        self._requests.remove(request)

    def _ended(self, request: str, status: str) -> None:
        """Handle a status message: 100 is a heartbeat; any other status ends its request (expired, size reached, no listener)."""
        if status == HEARTBEAT or not request.startswith(self._inbox):
            return
        if request in self._requests:
            self._done(request)
        if status == NO_RESPONDERS:
            self._break()
        self._arrived.set()  # `next` asks for more

    async def _drop_consumer(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
            await self.link.send(f"$JS.API.CONSUMER.DELETE.{self.stream}.{self._consumer}", b"")
        except Exception as error:  # noqa: BLE001 -- tidying must not end a tail, whatever the library raises
            log.debug("old consumer left to time out", stream=self.stream, reason=str(error))

    async def close(self) -> None:
        """Stop; the server forgets the consumer."""
        self._closed = True
        self._watch.cancel()
        for handlers in (self.link.on_back, self.link.on_drop):
            if self._break in handlers:
                handlers.remove(self._break)
        await self._drop_consumer()
        self._arrived.set()
