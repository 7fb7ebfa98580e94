"""Operations of a bus, in Fairlead's terms. Two adapters: `nats_bus.NatsBus` and `memory.MemoryBus`.

Streams are stored and totally ordered; core messages are never stored; buckets hold last values;
object stores hold blobs. Every wait is bounded; every failure is one of the classes below.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

#: A server that was cut off may answer for so long as the leader of a stream with several copies, from what it had.
STALE_S = 10.0


class BusError(Exception):
    """Something about the bus; each subclass says what to do about it."""


class Unavailable(BusError):
    """The bus cannot be reached now; nothing was stored. Retry."""


class NotAllowed(Unavailable):
    """The bus key of this process does not allow the subject (permissions.py): the key file or the list of users is wrong."""


class OutcomeUnknown(BusError):
    """The bus did not answer in time: the message may be stored or not. Read back before doing anything else."""


class StaleWriter(BusError):
    """The expected sequence is not the subject's last: another writer has written. Nothing was stored."""


class StreamFull(BusError):
    """The stream is at its limit and refuses (discard new). Nothing was stored."""


class TooLarge(BusError):
    """The message is over the size that the stream takes. Nothing was stored."""


class ServerUnfit(BusError):
    """The server's version or settings cannot carry a log; the message says how to mend it."""


class LogDamaged(BusError):
    """The log has a gap, a broken chain, an undecodable commit, or went backwards. Never skip: stop."""

    def __init__(self, sequence: int, message: str) -> None:
        super().__init__(f"log sequence {sequence}: {message}")
        self.sequence = sequence


class CommandsLost(BusError):
    """Stored commands are gone, or new ones would be given sequences that count as read. Nothing is taken from the
    stream until a person has accepted the loss."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Message of a stream. A struct, since one is made for every message of the log: it costs a quarter of a named tuple."""

    sequence: int
    subject: str
    payload: bytes


class Message(NamedTuple):
    """Core message, never stored."""

    subject: str
    payload: bytes
    reply: str = ""


class Entry(NamedTuple):
    """The last value under a bucket's key, and its revision."""

    value: bytes
    revision: int


class StreamState(NamedTuple):
    """Contents of a stream. `created` (opaque text) is its creation time. It changes with a damaged meta.inf, so a log is
    identified by `log.identity` instead.
    """

    first: int
    last: int
    bytes: int
    #: The stream refuses (or discards) beyond this many bytes; -1: no limit.
    bytes_max: int
    created: str
    #: Messages between the first and the last that the server knows to be gone.
    missing: int = 0
    #: Servers that have it.
    copies: int = 1


class StreamCopy(NamedTuple):
    """Copy of a stream on one server, as the stream's leader sees it."""

    server: str
    is_current: bool = True
    is_offline: bool = False
    #: Operations that it is behind.
    lag: int = 0


class StreamCopies(NamedTuple):
    """Copies of a stream, the leader's own first. A single server has no names: one copy, `server` is empty."""

    wanted: int
    copies: tuple[StreamCopy, ...]


class ServerTimes(NamedTuple):
    """Times by the server's clock (Unix ns), now and when messages were stored; 0 for a missing message."""

    now_ns: int
    #: The stream's first message.
    first_ns: int
    #: The subject's newest message.
    last_ns: int


class Subscription(Protocol):
    """Something that delivers until it is closed."""

    async def close(self) -> None: ...


class Tail(Protocol):
    """In-order reader of a stream from a sequence on, without end."""

    async def next(self) -> list[Stored]:
        """Wait for at least one message and return all that have arrived. Never raises Unavailable: the tail reconnects
        automatically and continues after the last message returned. Raises LogDamaged when the stream went backwards.
        """
        ...

    async def close(self) -> None: ...


class Bus(Protocol):
    """Connection to the bus."""

    async def ensure(self) -> None:
        """Create what is missing of the streams, buckets and stores (`streams.py`), and check the settings of
        what is there. Raises ServerUnfit."""
        ...

    # -- streams
    async def append(
        self, stream: str, subject: str, payload: bytes, *, expected: int | None = None, msg_id: str = ""
    ) -> int:
        """Store one message and return its sequence. `expected`: the subject's last sequence (0: none yet),
        checked by the server. `msg_id`: the server drops a repetition within two minutes and returns the first
        one's sequence. Raises StaleWriter, OutcomeUnknown, StreamFull, TooLarge, Unavailable."""
        ...

    async def fill(self, stream: str, messages: Iterable[tuple[str, bytes]], *, after: int) -> int:
        """Store (subject, payload) pairs at the sequences that follow `after`, many in flight, and return the last one. Each
        can be stored at its own sequence alone: the first failure keeps all later messages out. Raises StaleWriter where the stream does not end
        at `after`, and as `append`; messages up to the stream's end are stored then."""
        ...

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message of a subject, read from the stream's leader. Raises Unavailable."""
        ...

    async def read(self, stream: str, sequence: int) -> Stored | None:
        """The message at a sequence, or None. Raises Unavailable."""
        ...

    async def state(self, stream: str) -> StreamState:
        """Return the present contents of the stream. Raises Unavailable."""
        ...

    async def copies(self, stream: str) -> StreamCopies:
        """Return the copies of the stream. Raises Unavailable, also while the stream has no leader."""
        ...

    async def times(self, stream: str, subject: str = "") -> ServerTimes:
        """The server's clock, and its times of the stream's first message and the subject's last. Raises Unavailable."""
        ...

    async def advance(self, stream: str, after: int, *, discard: bool = False) -> None:
        """Give the next message of an empty stream a sequence above `after`: for a cluster whose cursors name messages
        that are gone. `discard`: drop every message up to `after` first. Raises StaleWriter where the stream holds
        something else, Unavailable."""
        ...

    async def erase(self, stream: str, subject: str) -> None:
        """Remove every message of a subject from the stream's storage; none is fine. Of streams that are not sealed. Raises
        Unavailable."""
        ...

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> Tail:
        """Read the stream (or some subjects of it, wildcards allowed, that do not overlap) from the sequence after
        `after`."""
        ...

    # -- core messages
    async def publish(self, subject: str, payload: bytes) -> None:
        """Send without storing. The message is lost without a listener or while the bus is away; that never raises. Raises only
        TooLarge.
        """
        ...

    async def subscribe(self, subject: str, handler: Callable[[Message], None]) -> Subscription:
        """Call `handler` for each message, in order of arrival."""
        ...

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Send a request and wait for one answer. Raises Unavailable without an answer in time."""
        ...

    async def serve(
        self, subject: str, handler: Callable[[Message], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        """Answer requests, each in a task of its own. Of those who serve a subject under the same `group`, one gets
        each request; who names none gets them all."""
        ...

    # -- buckets (last value per key)
    async def put(
        self, bucket: str, key: str, value: bytes, *, expected: int | None = None, ttl_s: int | None = None
    ) -> int:
        """Store a value and return its revision. `expected`: the key's revision (0: absent). Raises StaleWriter, TooLarge."""
        ...

    async def put_quickly(self, bucket: str, key: str, value: bytes) -> None:
        """Store a value without waiting for the answer; for state that is derived and written again. Raises TooLarge."""
        ...

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The last value, read from the leader, or None. Raises Unavailable."""
        ...

    async def peek(self, bucket: str, key: str) -> bytes | None:
        """The last value as some copy of the bucket has it, which may be behind: for values that say themselves how new
        they are, or never change. Only of buckets that are `peekable` (streams.py). Raises Unavailable."""
        ...

    async def delete(self, bucket: str, key: str) -> None:
        """Remove a key; absent is fine."""
        ...

    async def shred(self, bucket: str, key: str) -> None:
        """Remove a key as `delete` does, and overwrite the bytes of its last value where they are stored. An earlier value that
        was replaced by `put` may still be in the server's files: shred before replacing. Absent is fine. Raises Unavailable.
        """
        ...

    async def keys(self, bucket: str, kind: str) -> list[str]:
        """Return the keys "<kind>.<id>" of one kind, in no order. Reads no values. Raises Unavailable."""
        ...

    async def on_put(self, bucket: str, key: str, handler: Callable[[str, bytes], None]) -> Subscription:
        """Call `handler(key, value)` at each later put of the key ("*": every key). No history, no guarantee:
        read with `get` on (re)connect and now and then."""
        ...

    # -- objects (blobs)
    async def put_object(self, store: str, name: str, data: bytes) -> None:
        """Store a blob under a name, replacing the old one."""
        ...

    async def get_object(self, store: str, name: str) -> bytes | None:
        """A blob, or None where there is none (or it is damaged)."""
        ...

    # -- connection
    def on_reconnect(self, handler: Callable[[], None]) -> None:
        """Call `handler` each time the connection is back after having been lost."""
        ...

    async def flush(self) -> None:
        """Wait until the server has everything published so far. Raises Unavailable."""
        ...

    async def close(self) -> None: ...
