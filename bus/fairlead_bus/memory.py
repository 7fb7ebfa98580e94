"""The in-memory twin's clients: `port.Bus` on a `MemoryHub`, which plays the server (`memory_hub.py`).

It passes the same contract suite as the real thing (tests/bus).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from fairlead_bus import streams
from fairlead_bus.memory_hub import MemoryServer, MemoryStream, matches
from fairlead_bus.port import (
    Bus,
    Entry,
    LogDamaged,
    Message,
    OutcomeUnknown,
    ServerTimes,
    StaleWriter,
    Stored,
    StreamCopies,
    StreamCopy,
    StreamState,
    TooLarge,
    Unavailable,
)

__all__ = ["MemoryBus", "MemoryHub", "MemorySubscription", "MemoryTail"]


class MemorySubscription:
    """A core subscription (or a bucket's watcher)."""

    def __init__(self, client: "MemoryBus", subject: str, handler: Callable[[Message], None], group: str = "") -> None:
        self.client, self.subject, self.handler, self.group = client, subject, handler, group
        self.open = True
        client.hub.subscribers.setdefault(subject, []).append(self)

    def receive(self, message: Message) -> None:
        if self.open and self.client.reachable():
            self.handler(message)

    async def close(self) -> None:
        if self.open:
            self.open = False
            group = self.client.hub.subscribers[self.subject]
            group.remove(self)
            if not group:
                del self.client.hub.subscribers[self.subject]


class MemoryTail:
    """A stream read in order."""

    def __init__(self, client: "MemoryBus", stream: MemoryStream, after: int, subject: str | Sequence[str]) -> None:
        self.client, self.stream, self.cursor = client, stream, after
        self.patterns = [subject] if isinstance(subject, str) else list(subject)
        self.open = True

    async def next(self) -> list[Stored]:
        while self.open:
            arrived = self.stream.arrived
            if self.client.reachable():
                if self.cursor > self.stream.last:
                    raise LogDamaged(self.cursor, f"stream {self.stream.spec.name} went back to {self.stream.last}")
                found = self.stream.after(self.cursor)
                if found:
                    self.cursor = found[-1].sequence
                    wanted = [m for m in found if self._is_wanted(m.subject)]
                    if wanted:
                        return wanted
                    continue
            await arrived.wait()
        raise Unavailable("the tail is closed")

    def _is_wanted(self, subject: str) -> bool:
        return any(not pattern or matches(pattern, subject) for pattern in self.patterns)

    async def close(self) -> None:
        self.open = False
        self.stream.announce()


class MemoryBus:
    """In-memory client of a hub. Implements `port.Bus`."""

    def __init__(self, hub: MemoryServer) -> None:
        self.hub = hub
        self.linked = True
        self.closed = False
        self.handlers: list[Callable[[], None]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def reachable(self) -> bool:
        """Return True while both server and link are up."""
        return self.hub.up and self.linked and not self.closed

    def unlink(self) -> None:
        """Cut this client off (a partition)."""
        self.linked = False

    def relink(self) -> None:
        """End the partition."""
        self.linked = True
        self.reconnected()

    def reconnected(self) -> None:
        """Notify tails and handlers that the connection is back."""
        if self.reachable():
            for stream in self.hub.streams.values():
                stream.announce()
            for handler in self.handlers:
                asyncio.get_running_loop().call_soon(handler)

    def _reach(self) -> MemoryServer:
        if not self.reachable():
            raise Unavailable("the in-memory server is away")
        return self.hub

    async def ensure(self) -> None:
        self._reach()

    async def append(
        self, stream: str, subject: str, payload: bytes, *, expected: int | None = None, msg_id: str = ""
    ) -> int:
        await asyncio.sleep(0)
        hub = self._reach()
        held, now = hub.streams[stream], asyncio.get_running_loop().time()
        earlier = held.msg_ids.get(msg_id) if msg_id else None
        if earlier is not None and now - earlier[1] < streams.DUPLICATE_WINDOW_S:
            # As a single server does: the sequence is checked before the message id (docs/reference/facts.md).
            held.check(subject, b"", expected)
            return earlier[0]
        lost, stored = bool(hub.unknown_appends), True
        if lost:
            stored = hub.unknown_appends.popleft()
        sequence = 0
        if stored:
            held.check(subject, payload, expected)
            sequence = held.store(subject, payload, hub.clock())
            if msg_id:
                held.msg_ids[msg_id] = (sequence, now)
        if lost:
            raise OutcomeUnknown(f"no answer for an append to {subject}")
        await asyncio.sleep(0)
        return sequence

    async def fill(self, stream: str, messages: Iterable[tuple[str, bytes]], *, after: int) -> int:
        for subject, payload in messages:
            if (last := self._reach().streams[stream].last) != after:
                raise StaleWriter(f"stream {stream}: ends at {last}, expected {after}")
            after = await self.append(stream, subject, payload)
        return after

    async def last(self, stream: str, subject: str) -> Stored | None:
        await asyncio.sleep(0)
        return self._reach().streams[stream].last_of.get(subject)

    async def read(self, stream: str, sequence: int) -> Stored | None:
        await asyncio.sleep(0)
        found = self._reach().streams[stream].after(sequence - 1)
        return found[0] if found and found[0].sequence == sequence else None

    async def state(self, stream: str) -> StreamState:
        await asyncio.sleep(0)
        held = self._reach().streams[stream]
        first = held.messages[0].sequence if held.messages else held.last + 1
        missing = held.last - first + 1 - len(held.messages)
        return StreamState(first, held.last, held.bytes, held.spec.bytes_max, held.created, missing)

    async def copies(self, stream: str) -> StreamCopies:
        await asyncio.sleep(0)
        self._reach()
        return StreamCopies(1, (StreamCopy(""),))

    async def times(self, stream: str, subject: str = "") -> ServerTimes:
        await asyncio.sleep(0)
        hub = self._reach()
        held = hub.streams[stream]
        return ServerTimes(hub.clock(), held.first_ns, held.last_ns.get(subject, 0))

    async def advance(self, stream: str, after: int, *, discard: bool = False) -> None:
        held = self._reach().streams[stream]
        if discard:
            held.drop(after)
        elif held.messages:
            first = held.messages[0].sequence
            raise StaleWriter(f"stream {stream}: holds sequences {first} to {held.last}, expected an empty one")
        held.last = max(held.last, after)

    async def erase(self, stream: str, subject: str) -> None:
        await asyncio.sleep(0)
        self._reach().streams[stream].erase(subject)

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> MemoryTail:
        return MemoryTail(self, self.hub.streams[stream], after, subject)

    async def publish(self, subject: str, payload: bytes) -> None:
        if self.reachable():
            self.hub.deliver(Message(subject, payload))

    async def subscribe(self, subject: str, handler: Callable[[Message], None]) -> MemorySubscription:
        return MemorySubscription(self, subject, handler)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        hub = self._reach()
        hub.inbox += 1
        inbox = f"_INBOX.{hub.inbox}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        subscription = await self.subscribe(inbox, lambda m: None if answer.done() else answer.set_result(m.payload))
        try:
            if not hub.deliver(Message(subject, payload, inbox)):
                raise Unavailable(f"no responder on {subject}")
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s") from None
        finally:
            await subscription.close()

    async def serve(
        self, subject: str, handler: Callable[[Message], Awaitable[bytes]], *, group: str = ""
    ) -> MemorySubscription:
        async def answer(message: Message) -> None:
            await self.publish(message.reply, await handler(message))

        def receive(message: Message) -> None:
            task = asyncio.get_running_loop().create_task(answer(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

        return MemorySubscription(self, subject, receive, group)

    async def put(
        self, bucket: str, key: str, value: bytes, *, expected: int | None = None, ttl_s: int | None = None
    ) -> int:
        await asyncio.sleep(0)
        hub = self._reach()
        if len(value) > streams.MESSAGE_BYTES_MAX:
            raise TooLarge(f"{len(value)} bytes for {bucket}/{key}, at most {streams.MESSAGE_BYTES_MAX}")
        held = self._current(bucket, key)
        if expected is not None and (held.revision if held else 0) != expected:
            raise StaleWriter(f"{bucket}/{key}: expected revision {expected}, found {held.revision if held else 0}")
        hub.revision += 1
        hub.buckets[bucket][key] = Entry(value, hub.revision)
        hub.expiry.pop((bucket, key), None)
        if ttl_s is not None:
            hub.expiry[(bucket, key)] = asyncio.get_running_loop().time() + ttl_s
        hub.deliver(Message(f"$KV.{bucket}.{key}", value))
        return hub.revision

    async def put_quickly(self, bucket: str, key: str, value: bytes) -> None:
        if self.reachable():
            await self.put(bucket, key, value)

    def _current(self, bucket: str, key: str) -> Entry | None:
        deadline = self.hub.expiry.get((bucket, key))
        if deadline is not None and asyncio.get_running_loop().time() >= deadline:
            self.hub.buckets[bucket].pop(key, None)
            del self.hub.expiry[(bucket, key)]
        return self.hub.buckets[bucket].get(key)

    async def get(self, bucket: str, key: str) -> Entry | None:
        await asyncio.sleep(0)
        self._reach()
        return self._current(bucket, key)

    async def peek(self, bucket: str, key: str) -> bytes | None:
        found = await self.get(bucket, key)
        return found.value if found is not None else None

    async def delete(self, bucket: str, key: str) -> None:
        self._reach().buckets[bucket].pop(key, None)
        self.hub.expiry.pop((bucket, key), None)

    async def shred(self, bucket: str, key: str) -> None:
        await self.delete(bucket, key)

    async def keys(self, bucket: str, kind: str) -> list[str]:
        await asyncio.sleep(0)
        held = self._reach().buckets[bucket]
        return [key for key in list(held) if key.startswith(f"{kind}.") and self._current(bucket, key) is not None]

    async def on_put(self, bucket: str, key: str, handler: Callable[[str, bytes], None]) -> MemorySubscription:
        prefix = f"$KV.{bucket}."
        return await self.subscribe(prefix + key, lambda m: handler(m.subject.removeprefix(prefix), m.payload))

    async def put_object(self, store: str, name: str, data: bytes) -> None:
        await asyncio.sleep(0)
        self._reach_stores()[store][name] = data

    async def get_object(self, store: str, name: str) -> bytes | None:
        await asyncio.sleep(0)
        return self._reach_stores()[store].get(name)

    def _reach_stores(self) -> dict[str, dict[str, bytes]]:
        hub = self._reach()
        if not hub.stores_up:
            raise Unavailable("the server that has the object stores is away")
        return hub.objects

    def on_reconnect(self, handler: Callable[[], None]) -> None:
        self.handlers.append(handler)

    async def flush(self) -> None:
        self._reach()
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed = True
        if self in self.hub.clients:
            self.hub.clients.remove(self)
        for group in list(self.hub.subscribers.values()):
            for subscription in [s for s in group if s.client is self]:
                await subscription.close()
        for task in list(self.tasks):
            task.cancel()


class MemoryHub(MemoryServer):
    """The server of the in-memory twin, with a way to connect to it."""

    def connect(self) -> MemoryBus:
        """A new client of this hub."""
        client = MemoryBus(self)
        self.clients.append(client)
        return client


def as_port(bus: MemoryBus) -> Bus:
    """Type-checked proof that the twin has the port's shape."""
    return bus
