"""The in-memory twin behind a bad network: `port.Bus` with delays, losses and answers that never come.

What a process has sent stays under way when the process dies: a late append may be stored after its
sender's successor has begun, which is what the fence is for. Stored messages of one client keep their
order (one connection); core messages may overtake each other, get lost, and come twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from fairlead_bus.memory import MemoryBus, MemoryHub, MemorySubscription
from fairlead_bus.port import (
    Bus,
    BusError,
    Entry,
    Message,
    OutcomeUnknown,
    ServerTimes,
    Stored,
    StreamCopies,
    StreamState,
    Tail,
    Unavailable,
)
from fairlead_replay.sim.faults import ANSWER_S, Fate, Faults
from fairlead_schemas.wire import subjects

#: Time until a client without a connection hears that it has none.
NO_LINK_S = 0.05
#: A look for the storage service's newest commit costs no time and draws nothing while it has written nothing: so worlds without it are
#: those that their seeds were before every look at the log asked for it.
UNDRAWN = subjects.log("storage")


class FaultyTail:
    """A tail whose messages come late and in pieces."""

    def __init__(self, tail: Tail, faults: Faults, awake: asyncio.Event) -> None:
        self._tail, self._faults, self._awake = tail, faults, awake
        self._rest: list[Stored] = []

    async def next(self) -> list[Stored]:
        found = self._rest or await self._tail.next()
        await asyncio.sleep(self._faults.delay())
        await self._awake.wait()
        if len(found) > 1 and self._faults.chance(0.2):
            cut = self._faults.rng.randrange(1, len(found))
            found, self._rest = found[:cut], found[cut:]
        else:
            self._rest = []
        return found

    async def close(self) -> None:
        await self._tail.close()


class FaultyBus:
    """Client of the faulty bus. Implements `port.Bus`."""

    def __init__(self, hub: MemoryHub, wire: MemoryBus, faults: Faults) -> None:
        self.hub, self.faults = hub, faults
        self.client = hub.connect()
        self._wire = wire
        self._arrived_until = 0.0
        self._awake = asyncio.Event()
        self._awake.set()
        #: Messages that arrive while the process is paused. It reads them when it resumes.
        self._unread: deque[tuple[Callable[[Message], None], Message]] = deque()

    # -- a paused process (SIGSTOP, a machine that swaps): it sends, receives and learns nothing

    def pause(self) -> None:
        """Stand still. What is under way arrives; what comes back waits."""
        self._awake.clear()

    def resume(self) -> None:
        """Resume after a pause and deliver all messages that arrived meanwhile."""
        self._awake.set()
        while self._unread:
            handler, message = self._unread.popleft()
            handler(message)

    def _when_awake(self, handler: Callable[[Message], None]) -> Callable[[Message], None]:
        def receive(message: Message) -> None:
            if self._awake.is_set():
                handler(message)
            else:
                self._unread.append((handler, message))

        return receive

    # -- the network

    def _send(self, delay_s: float, arrive: Callable[[], None]) -> None:
        """Let something arrive at the server, not before what this client sent earlier."""
        loop = asyncio.get_running_loop()
        self._arrived_until = max(loop.time() + delay_s, self._arrived_until + 1e-6)
        loop.call_at(self._arrived_until, arrive)

    async def _trip(self) -> None:
        """Simulate one request and its answer: wait for the delay, or raise Unavailable."""
        await asyncio.sleep(self.faults.delay())
        await self._awake.wait()
        if self.faults.chance(self.faults.fail):
            await asyncio.sleep(NO_LINK_S)
            raise Unavailable("the request was lost")
        await self._linked()

    async def _linked(self) -> None:
        await self._awake.wait()
        if not self.client.reachable():
            await asyncio.sleep(NO_LINK_S)
            raise Unavailable("no connection")

    # -- streams

    async def ensure(self) -> None:
        await self.client.ensure()

    async def append(
        self, stream: str, subject: str, payload: bytes, *, expected: int | None = None, msg_id: str = ""
    ) -> int:
        await self._linked()
        loop, fate = asyncio.get_running_loop(), self.faults.append()
        outcome: asyncio.Future[int | BusError] = loop.create_future()

        async def store() -> None:
            found: int | BusError
            try:
                found = await self._wire.append(stream, subject, payload, expected=expected, msg_id=msg_id)
            except BusError as error:
                found = error
            self._answer(outcome, found, fate)

        if fate.arrives:
            self._send(fate.before_s, lambda: _spawn(store()))
        try:
            found = await asyncio.wait_for(outcome, ANSWER_S)
        except TimeoutError:
            await self._awake.wait()
            raise OutcomeUnknown(f"no answer for an append to {subject}") from None
        await self._awake.wait()
        if isinstance(found, BusError):
            raise found
        return found

    def _answer(self, outcome: "asyncio.Future[int | BusError]", found: int | BusError, fate: Fate) -> None:
        def arrive() -> None:
            if not outcome.done() and self.client.reachable():
                outcome.set_result(found)

        # A server that went away under an append does not say so: the connection just breaks.
        if fate.answered and not isinstance(found, Unavailable):
            asyncio.get_running_loop().call_later(fate.after_s, arrive)

    async def fill(self, stream: str, messages: Iterable[tuple[str, bytes]], *, after: int) -> int:
        await self._trip()
        return await self.client.fill(stream, messages, after=after)

    async def last(self, stream: str, subject: str) -> Stored | None:
        if subject == UNDRAWN and await self.client.last(stream, subject) is None:
            return None
        await self._trip()
        return await self.client.last(stream, subject)

    async def read(self, stream: str, sequence: int) -> Stored | None:
        await self._trip()
        return await self.client.read(stream, sequence)

    async def state(self, stream: str) -> StreamState:
        await self._trip()
        return await self.client.state(stream)

    async def copies(self, stream: str) -> StreamCopies:
        await self._trip()
        return await self.client.copies(stream)

    async def times(self, stream: str, subject: str = "") -> ServerTimes:
        await self._trip()
        return await self.client.times(stream, subject)

    async def advance(self, stream: str, after: int, *, discard: bool = False) -> None:
        await self._trip()
        await self.client.advance(stream, after, discard=discard)

    async def erase(self, stream: str, subject: str) -> None:
        await self._trip()
        await self.client.erase(stream, subject)

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> FaultyTail:
        return FaultyTail(await self.client.tail(stream, after=after, subject=subject), self.faults, self._awake)

    # -- core messages

    async def publish(self, subject: str, payload: bytes) -> None:
        await self._awake.wait()
        if not self.client.reachable():
            return
        message, loop = Message(subject, payload), asyncio.get_running_loop()
        for delay_s in self.faults.copies():
            loop.call_later(delay_s, self._deliver, message)

    def _deliver(self, message: Message) -> None:
        if self.hub.up:
            self.hub.deliver(message)

    async def subscribe(self, subject: str, handler: Callable[[Message], None]) -> MemorySubscription:
        return await self.client.subscribe(subject, self._when_awake(handler))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        await self._trip()
        return await self.client.request(subject, payload, timeout_s=timeout_s)

    async def serve(
        self, subject: str, handler: Callable[[Message], Awaitable[bytes]], *, group: str = ""
    ) -> MemorySubscription:
        return await self.client.serve(subject, handler, group=group)

    # -- buckets and objects

    async def put(
        self, bucket: str, key: str, value: bytes, *, expected: int | None = None, ttl_s: int | None = None
    ) -> int:
        await self._trip()
        revision = await self.client.put(bucket, key, value, expected=expected, ttl_s=ttl_s)
        if self.faults.chance(self.faults.fail):
            raise Unavailable("stored, but the answer was lost")
        return revision

    async def put_quickly(self, bucket: str, key: str, value: bytes) -> None:
        await self._awake.wait()
        if self.client.reachable() and not self.faults.chance(self.faults.drop):
            self._send(self.faults.delay(), lambda: _spawn(self._wire.put_quickly(bucket, key, value)))

    async def get(self, bucket: str, key: str) -> Entry | None:
        await self._trip()
        return await self.client.get(bucket, key)

    async def peek(self, bucket: str, key: str) -> bytes | None:
        await self._trip()
        return await self.client.peek(bucket, key)

    async def delete(self, bucket: str, key: str) -> None:
        await self._trip()
        await self.client.delete(bucket, key)

    async def shred(self, bucket: str, key: str) -> None:
        await self._trip()
        await self.client.shred(bucket, key)

    async def keys(self, bucket: str, kind: str) -> list[str]:
        await self._trip()
        return await self.client.keys(bucket, kind)

    async def on_put(self, bucket: str, key: str, handler: Callable[[str, bytes], None]) -> MemorySubscription:
        prefix = f"$KV.{bucket}."
        return await self.subscribe(prefix + key, lambda m: handler(m.subject.removeprefix(prefix), m.payload))

    async def put_object(self, store: str, name: str, data: bytes) -> None:
        await self._trip()
        await self.client.put_object(store, name, data)

    async def get_object(self, store: str, name: str) -> bytes | None:
        await self._trip()
        return await self.client.get_object(store, name)

    # -- connection

    def on_reconnect(self, handler: Callable[[], None]) -> None:
        self.client.on_reconnect(handler)

    async def flush(self) -> None:
        await self._trip()
        await self.client.flush()

    async def close(self) -> None:
        await self.client.close()


_tasks: set[asyncio.Task[None]] = set()


def _spawn(work: Awaitable[None]) -> None:
    async def run() -> None:
        await work

    task = asyncio.get_running_loop().create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _conforms(bus: FaultyBus) -> Bus:
    """Type-checked proof that it has the port's shape."""
    return bus
