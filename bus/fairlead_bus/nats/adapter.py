"""The bus on a real nats-server; and reading of a blob of a JetStream object store, piece by piece. Implements `port.Bus`;
start with `connect`.

The obvious choice is the library's reader. If a blob is replaced between reading its description and its pieces, the
pieces are gone, and the library waits for them without end. Here every piece is a request of its own, so that a missing
piece is detected.
"""

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import nats.errors
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js.object_store import ObjectStore

from fairlead_bus import streams
from fairlead_bus.nats import server_checks, stream_setup
from fairlead_bus.nats.link import ANSWER_S, ApiError, Copies, Link, NoSuchMessage
from fairlead_bus.nats.tail import NatsTail
from fairlead_bus.nkey import KeyPair
from fairlead_bus.port import (
    STALE_S,
    Bus,
    BusError,
    Entry,
    Message,
    OutcomeUnknown,
    ServerTimes,
    StaleWriter,
    Stored,
    StreamCopies,
    StreamCopy,
    StreamFull,
    StreamState,
    TooLarge,
    Unavailable,
)

#: Versions of a blob that may come and go while it is read.
VERSIONS_MAX = 20
DIGEST = "SHA-256="

#: The message of a stream that a query names, or None (`$JS.API.STREAM.MSG.GET`). Raises Unavailable.
ReadMessage = Callable[[str, dict[str, str | int]], Awaitable[Stored | None]]


class _ObjectInfo(msgspec.Struct):
    """Fields of the store's description of a blob that the reader needs."""

    nuid: str = ""
    size: int = 0
    digest: str = ""
    deleted: bool = False


async def read_object(read: ReadMessage, store: str, name: str) -> bytes | None:
    """A blob, or None where there is none (or it is damaged). Raises Unavailable."""
    stream, key = f"OBJ_{store}", base64.urlsafe_b64encode(name.encode()).decode()
    before = ""
    for _ in range(VERSIONS_MAX):
        described = await read(stream, {"last_by_subj": f"$O.{store}.M.{key}"})
        info = _decoded(described.payload) if described is not None else None
        if info is None or info.deleted or info.nuid in ("", before):
            return None
        data = await _pieces(read, stream, f"$O.{store}.C.{info.nuid}", info.size)
        if data is not None:
            return data if _object_digest(data) == info.digest.removeprefix(DIGEST) else None
        before = info.nuid
    raise Unavailable(f"object {store}/{name} is replaced faster than it can be read")


def _decoded(payload: bytes) -> _ObjectInfo | None:
    try:
        return msgspec.json.decode(payload, type=_ObjectInfo)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


async def _pieces(read: ReadMessage, stream: str, subject: str, size: int) -> bytes | None:
    """All pieces in order; None where one is gone."""
    pieces: list[bytes] = []
    sequence = found = 0
    while found < size:
        piece = await read(stream, {"next_by_subj": subject, "seq": sequence + 1})
        if piece is None or not piece.payload:
            return None
        pieces.append(piece.payload)
        sequence, found = piece.sequence, found + len(piece.payload)
    return b"".join(pieces)


def _object_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


#: Messages of `fill` in flight, and after how many the loop sends. Three servers with fsync take 15,000 a second so, and 470 one by one.
FILL_MESSAGES_MAX, FILL_BURST = 1000, 50
#: An answer to one of many waits for those before it.
FILL_S = 30.0
#: 10070: the stream's last sequence is another than expected.
WRONG_LAST_SEQUENCE = (10070, 10071, 10164)
NO_MESSAGE_FOUND = 10037
STREAM_STORE_FAILED = 10077
INSUFFICIENT_RESOURCES = (10023, 10047)
MESSAGE_TOO_LARGE = 10054


class _Ack(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class _StoredMessage(msgspec.Struct):
    seq: int
    subject: str
    data: str = ""
    time: datetime | None = None


class _Got(msgspec.Struct):
    message: _StoredMessage | None = None
    error: ApiError | None = None


class _Purged(msgspec.Struct):
    error: ApiError | None = None


class _State(msgspec.Struct):
    first_seq: int = 0
    last_seq: int = 0
    bytes: int = 0
    first_ts: datetime | None = None
    messages: int = 0


class _StreamConfig(msgspec.Struct):
    max_bytes: int = -1
    num_replicas: int = 1


class _StreamInfo(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)
    config: _StreamConfig = msgspec.field(default_factory=_StreamConfig)
    created: str = ""
    ts: datetime | None = None
    cluster: Copies = Copies()
    error: ApiError | None = None


class _SubjectsState(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _SubjectsPage(msgspec.Struct):
    """A stream's state with some of its subjects; `total`: of all pages."""

    state: _SubjectsState = msgspec.field(default_factory=_SubjectsState)
    total: int = 0
    error: ApiError | None = None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ack = msgspec.json.Decoder(_Ack)
_got = msgspec.json.Decoder(_Got)


async def connect(
    url: str,
    *,
    name: str = "fairlead",
    key: KeyPair | None = None,
    on_waiting: Callable[[str, str], None] | None = None,
) -> "NatsBus":
    """Connect to one of the servers that `url` names and check its version. Raises Unavailable (CredentialsRefused where no
    server knows the key), ServerUnfit or BadSetting. `on_waiting`: called with a server and the cause, once for each cause."""
    bus = NatsBus(Link(url, name, key))
    bus.link.on_waiting = on_waiting
    await bus.link.open()
    bus.check_version()
    return bus


class NatsSub:
    """A core subscription."""

    def __init__(self, subscription: NatsSubscription) -> None:
        self.subscription = subscription

    async def close(self) -> None:
        try:
            await self.subscription.unsubscribe()
        except (nats.errors.Error, OSError):
            return  # the connection is gone, and the subscription with it


class NatsBus:
    """Connection to a nats-server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._tasks: set[asyncio.Task[None]] = set()
        self._stores: dict[str, ObjectStore] = {}
        #: {stream: the loop's time since which messages of it seem to be missing}
        self._doubts: dict[str, float] = {}

    async def ensure(self) -> None:
        await server_checks.check_servers(self.link.addresses)
        await stream_setup.ensure_streams(self.link)

    async def check(self) -> None:
        """Check that the servers fsync, and wait until the streams exist. For a service that may not make streams itself."""
        await server_checks.check_servers(self.link.addresses)
        await stream_setup.wait_for_streams(self.link)

    async def check_again(self) -> None:
        """The servers' fitness after a reconnect: it may be another server, or one with other settings.
        Raises ServerUnfit."""
        self.check_version()
        await server_checks.check_servers(self.link.addresses, seen_before=True)

    def check_version(self) -> None:
        """Raises ServerUnfit where the connected server is below the version floor."""
        found = self.link.client.connected_server_version
        server_checks.check_version((found.major, found.minor, found.patch), self.link.addresses.shown)

    # -- streams

    async def append(
        self, stream: str, subject: str, payload: bytes, *, expected: int | None = None, msg_id: str = ""
    ) -> int:
        headers: dict[str, str] = {}
        if expected is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        if msg_id:
            headers["Nats-Msg-Id"] = msg_id
        return await self._store_message(subject, payload, headers)

    async def _store_message(
        self, subject: str, payload: bytes, headers: dict[str, str], *, timeout_s: float = ANSWER_S
    ) -> int:
        answer = await self.link.ask(subject, payload, headers=headers, timeout_s=timeout_s)
        ack = _ack.decode(answer)
        if ack.error is None:
            return ack.seq
        raise _refusal(ack.error, subject, len(payload))

    async def fill(self, stream: str, messages: Iterable[tuple[str, bytes]], *, after: int) -> int:
        waiting = deque[asyncio.Task[int]]()
        last = after
        try:
            for place, (subject, payload) in enumerate(messages, after):
                headers = {"Nats-Expected-Last-Sequence": str(place)}
                waiting.append(asyncio.create_task(self._store_message(subject, payload, headers, timeout_s=FILL_S)))
                if len(waiting) >= FILL_MESSAGES_MAX:
                    last = await waiting.popleft()
                elif len(waiting) % FILL_BURST == 0:
                    await asyncio.sleep(0)  # lets them be sent, in order
            while waiting:
                last = await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return last

    async def last(self, stream: str, subject: str) -> Stored | None:
        return await self._message(stream, {"last_by_subj": subject})

    async def read(self, stream: str, sequence: int) -> Stored | None:
        found = await self._message(stream, {"seq": sequence})
        if found is not None:
            self._doubts.pop(stream, None)
        else:
            await self._doubt(stream, sequence)
        return found

    async def _doubt(self, stream: str, sequence: int) -> None:
        """Raises Unavailable where a message is missing of which there are several copies: the server that answered may have been
        deposed without knowing it. What is missing for STALE_S is missing."""
        state = await self.state(stream)
        if state.copies == 1 or not state.first <= sequence <= state.last:
            return
        now = asyncio.get_running_loop().time()
        if now - self._doubts.setdefault(stream, now) < STALE_S:
            raise Unavailable(f"stream {stream}: the server that answered lacks message {sequence} of {state.last}")

    async def _message(self, stream: str, query: dict[str, str | int]) -> Stored | None:
        found = await self._stored(stream, query)
        return Stored(found.seq, found.subject, base64.b64decode(found.data)) if found is not None else None

    async def _stored(self, stream: str, query: dict[str, str | int]) -> _StoredMessage | None:
        answer = await self.link.read(f"$JS.API.STREAM.MSG.GET.{stream}", msgspec.json.encode(query))
        got = _got.decode(answer)
        if got.message is not None:
            return got.message
        if got.error is not None and got.error.err_code == NO_MESSAGE_FOUND:
            return None
        raise Unavailable(f"stream {stream}: {got.error.description if got.error else 'no answer'}")

    async def state(self, stream: str) -> StreamState:
        info = await self._info(stream)
        state = info.state
        # An empty stream counts one sequence, 0, as deleted.
        missing = state.last_seq - state.first_seq + 1 - state.messages if state.messages else 0
        copies = info.cluster.count
        return StreamState(
            state.first_seq, state.last_seq, state.bytes, info.config.max_bytes, info.created, missing, copies
        )

    async def _info(self, stream: str) -> _StreamInfo:
        answer = await self.link.read(f"$JS.API.STREAM.INFO.{stream}")
        info = msgspec.json.decode(answer, type=_StreamInfo)
        if info.error is not None:
            raise Unavailable(f"stream {stream}: {info.error.description}")
        info.cluster.check_leader(stream)
        return info

    async def copies(self, stream: str) -> StreamCopies:
        info = await self._info(stream)
        others = (StreamCopy(each.name, each.current, each.offline, each.lag) for each in info.cluster.replicas)
        return StreamCopies(info.config.num_replicas, (StreamCopy(info.cluster.leader), *others))

    async def times(self, stream: str, subject: str = "") -> ServerTimes:
        newest = await self._stored(stream, {"last_by_subj": subject}) if subject else None
        info = await self._info(stream)
        first = info.state.first_ts if info.state.first_seq <= info.state.last_seq else None
        return ServerTimes(_unix_ns(info.ts), _unix_ns(first), _unix_ns(newest.time if newest is not None else None))

    async def advance(self, stream: str, after: int, *, discard: bool = False) -> None:
        state = await self.state(stream)
        held = state.first <= state.last and state.last > 0
        if held and not discard:
            raise StaleWriter(f"stream {stream}: holds sequences {state.first} to {state.last}, expected an empty one")
        if held or after > state.last:
            # A purge up to a sequence that was never there sets the next one, also of a stream that holds something
            # (docs/reference/facts.md).
            await self._purge(stream, {"seq": after + 1})

    async def erase(self, stream: str, subject: str) -> None:
        await self._purge(stream, {"filter": subject})

    async def _purge(self, stream: str, request: dict[str, str | int]) -> None:
        answer = await self.link.read(f"$JS.API.STREAM.PURGE.{stream}", msgspec.json.encode(request))
        purged = msgspec.json.decode(answer, type=_Purged)
        if purged.error is not None:
            raise Unavailable(f"stream {stream}: {purged.error.description}")

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> NatsTail:
        return NatsTail(self.link, stream, after, subject)

    # -- core messages

    async def publish(self, subject: str, payload: bytes) -> None:
        try:
            await self.link.send(subject, payload)
        except Unavailable:
            return

    async def subscribe(self, subject: str, handler: Callable[[Message], None]) -> NatsSub:
        return await self._subscribe(subject, handler, "")

    async def _subscribe(self, subject: str, handler: Callable[[Message], None], group: str) -> NatsSub:
        def received(subject: str, payload: bytes, reply: str, status: str) -> None:
            handler(Message(subject, payload, reply))

        return NatsSub(await self.link.subscribe(subject, received, group))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        try:
            return await self.link.ask(subject, payload, timeout_s=timeout_s)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    async def serve(self, subject: str, handler: Callable[[Message], Awaitable[bytes]], *, group: str = "") -> NatsSub:
        async def answer(message: Message) -> None:
            await self.publish(message.reply, await handler(message))

        def receive(message: Message) -> None:
            task = asyncio.get_running_loop().create_task(answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return await self._subscribe(subject, receive, group)

    # -- buckets

    async def put(
        self, bucket: str, key: str, value: bytes, *, expected: int | None = None, ttl_s: int | None = None
    ) -> int:
        headers: dict[str, str] = {}
        if expected is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        if ttl_s is not None:
            headers["Nats-TTL"] = f"{ttl_s}s"
        return await self._store_message(f"$KV.{bucket}.{key}", value, headers)

    async def put_quickly(self, bucket: str, key: str, value: bytes) -> None:
        # The server would drop a larger value, and the refusal would reach no client.
        if len(value) > streams.MESSAGE_BYTES_MAX:
            raise TooLarge(f"{len(value)} bytes for {bucket}/{key}, at most {streams.MESSAGE_BYTES_MAX}")
        await self.publish(f"$KV.{bucket}.{key}", value)

    async def get(self, bucket: str, key: str) -> Entry | None:
        found = await self.last(f"KV_{bucket}", f"$KV.{bucket}.{key}")
        return Entry(found.payload, found.sequence) if found is not None else None

    async def peek(self, bucket: str, key: str) -> bytes | None:
        subject = f"$KV.{bucket}.{key}"
        try:
            return await self.link.read(f"$JS.API.DIRECT.GET.KV_{bucket}.{subject}")
        except NoSuchMessage:
            return None

    async def delete(self, bucket: str, key: str) -> None:
        request = msgspec.json.encode({"filter": f"$KV.{bucket}.{key}"})
        await self.link.read(f"$JS.API.STREAM.PURGE.KV_{bucket}", request)

    async def shred(self, bucket: str, key: str) -> None:
        held = await self._stored(f"KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
        if held is None:
            return
        # A purge leaves the bytes in the file until the server rewrites it; this request overwrites them.
        request = msgspec.json.encode({"seq": held.seq, "no_erase": False})
        answer = await self.link.read(f"$JS.API.STREAM.MSG.DELETE.KV_{bucket}", request)
        removed = msgspec.json.decode(answer, type=_Purged)
        if removed.error is not None:
            raise Unavailable(f"bucket {bucket}: {removed.error.description}")

    async def keys(self, bucket: str, kind: str) -> list[str]:
        prefix, found = f"$KV.{bucket}.", dict[str, None]()
        while True:
            request = {"subjects_filter": f"{prefix}{kind}.*", "offset": len(found)}
            answer = await self.link.read(f"$JS.API.STREAM.INFO.KV_{bucket}", msgspec.json.encode(request))
            page = msgspec.json.decode(answer, type=_SubjectsPage)
            if page.error is not None:
                raise Unavailable(f"bucket {bucket}: {page.error.description}")
            subjects = page.state.subjects or {}
            found |= dict.fromkeys(subject.removeprefix(prefix) for subject in subjects)
            if not subjects or len(found) >= page.total:
                return list(found)

    async def on_put(self, bucket: str, key: str, handler: Callable[[str, bytes], None]) -> NatsSub:
        prefix = f"$KV.{bucket}."
        return await self.subscribe(prefix + key, lambda m: handler(m.subject.removeprefix(prefix), m.payload))

    # -- objects

    async def _store(self, store: str) -> ObjectStore:
        if store not in self._stores:
            context = self.link.client.jetstream(timeout=ANSWER_S)  # pyright: ignore[reportUnknownMemberType] -- its **opts have no types
            self._stores[store] = await context.object_store(store)
        return self._stores[store]

    async def put_object(self, store: str, name: str, data: bytes) -> None:
        try:
            await (await self._store(store)).put(name, data)
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"object {store}/{name} not stored: {str(error) or type(error).__name__}") from error

    async def get_object(self, store: str, name: str) -> bytes | None:
        return await read_object(self._message, store, name)

    # -- connection

    def on_reconnect(self, handler: Callable[[], None]) -> None:
        self.link.on_back.append(handler)

    async def flush(self) -> None:
        try:
            await self.link.client.flush(timeout=int(ANSWER_S))
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"cannot flush: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.link.close()


def _unix_ns(moment: datetime | None) -> int:
    """Unix nanoseconds of a server's time, to the microsecond; 0 for none."""
    # An empty stream has the year 1 for the time of its first message.
    return 0 if moment is None else max(0, (moment - _EPOCH) // timedelta(microseconds=1) * 1000)


def _refusal(error: ApiError, subject: str, size: int) -> BusError:
    if error.err_code in WRONG_LAST_SEQUENCE:
        return StaleWriter(f"{subject}: {error.description}")
    if error.err_code == MESSAGE_TOO_LARGE:
        return TooLarge(f"{size} bytes on {subject}: {error.description}")
    if error.err_code in INSUFFICIENT_RESOURCES or (
        error.err_code == STREAM_STORE_FAILED and "maximum" in error.description
    ):
        return StreamFull(f"{subject}: {error.description}")
    # According to the server nothing was stored. The writer still reads back to make sure.
    return OutcomeUnknown(f"{subject}: {error.description} ({error.err_code})")


def as_port(bus: NatsBus) -> Bus:
    """Type-checked proof that this adapter has the port's shape."""
    return bus
