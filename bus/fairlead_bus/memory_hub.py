"""Server of the in-memory twin: streams, buckets and blobs in one process, with injectable faults.

Clients are in `memory.py` and are made by its `MemoryHub.connect`. The server uses only the event loop's clock and the clock
it is given, so it runs under the simulator's virtual time. The last section of `MemoryServer` injects the faults that the
contract suite and the simulator request.
"""

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fairlead_bus import streams
from fairlead_bus.port import Entry, Message, StaleWriter, Stored, StreamFull, TooLarge, Unavailable

#: Messages that one `Tail.next()` returns at most.
TAIL_BATCH_MAX = 500


def matches(pattern: str, subject: str) -> bool:
    """NATS subject matching: `*` is one token, `>` the rest."""
    if pattern == subject:
        return True
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":  # noqa: S105 -- a token of a subject
            return len(found) > index
        if index >= len(found) or token not in ("*", found[index]):
            return False
    return len(wanted) == len(found)


class MemoryStream:
    """Messages of one stream. Sequences start at 1; `base` messages were dropped from the front."""

    def __init__(self, spec: streams.StreamSpec, created: str) -> None:
        self.spec = spec
        self.created = created
        self.messages: list[Stored] = []
        self.last = 0
        self.bytes = 0
        self.last_of: dict[str, Stored] = {}
        #: {subject: sequences, oldest first}, of a stream that bounds them.
        self.held_of: dict[str, deque[int]] = {}
        self.msg_ids: dict[str, tuple[int, float]] = {}
        self.arrived = asyncio.Event()
        #: When the first message was stored, and each subject's newest (Unix ns).
        self.first_ns = 0
        self.last_ns: dict[str, int] = {}

    def check(self, subject: str, payload: bytes, expected: int | None) -> None:
        if len(payload) > self.spec.message_bytes_max:
            raise TooLarge(f"{len(payload)} bytes on {subject}, at most {self.spec.message_bytes_max}")
        if expected is not None:
            newest = self.last_of.get(subject)
            if (newest.sequence if newest else 0) != expected:
                raise StaleWriter(f"{subject}: expected last {expected}, found {newest.sequence if newest else 0}")
        if self.spec.refuse_when_full and self.bytes + len(payload) > self.spec.bytes_max:
            raise StreamFull(f"stream {self.spec.name} is full ({self.spec.bytes_max} bytes)")

    def store(self, subject: str, payload: bytes, at_ns: int) -> int:
        self.last += 1
        message = Stored(self.last, subject, payload)
        self.messages.append(message)
        self.last_of[subject] = message
        self.first_ns, self.last_ns[subject] = self.first_ns or at_ns, at_ns
        self.bytes += len(payload)
        if self.spec.messages_of_subject_max:
            self._bound(subject)
        while self.bytes > self.spec.bytes_max:
            self.bytes -= len(self.messages.pop(0).payload)
        self.announce()
        return self.last

    def _bound(self, subject: str) -> None:
        held = self.held_of.setdefault(subject, deque())
        held.append(self.last)
        while len(held) > self.spec.messages_of_subject_max:
            self._forget(held.popleft())

    def _forget(self, sequence: int) -> None:
        """Remove one message, if it is still there."""
        at = self._index(sequence)
        if at < len(self.messages) and self.messages[at].sequence == sequence:
            self.bytes -= len(self.messages.pop(at).payload)

    def _index(self, sequence: int) -> int:
        """Return where the first message from a sequence on is."""
        return bisect_left(self.messages, sequence, key=lambda message: message.sequence)

    def drop(self, after: int) -> None:
        """Drop every message up to a sequence."""
        self.messages = [message for message in self.messages if message.sequence > after]
        self.bytes = sum(len(message.payload) for message in self.messages)
        self.last_of = {message.subject: message for message in self.messages}

    def erase(self, subject: str) -> None:
        """Remove every message of a subject."""
        if self.spec.sealed:
            raise Unavailable(f"stream {self.spec.name}: its messages cannot be removed")
        self.messages = [message for message in self.messages if message.subject != subject]
        self.bytes = sum(len(message.payload) for message in self.messages)
        for index in (self.last_of, self.last_ns, self.held_of):
            index.pop(subject, None)

    def announce(self) -> None:
        arrived, self.arrived = self.arrived, asyncio.Event()
        arrived.set()

    def after(self, sequence: int) -> list[Stored]:
        """Up to TAIL_BATCH_MAX messages behind a sequence."""
        if not self.messages or sequence >= self.messages[-1].sequence:
            return []
        # Without gaps the place is known. A gap makes it too early, and the search for the right one costs more.
        start = max(0, len(self.messages) - (self.messages[-1].sequence - sequence))
        if self.messages[start].sequence <= sequence:
            start = self._index(sequence + 1)
        return self.messages[start : start + TAIL_BATCH_MAX]


class HubClient(Protocol):
    """Connection to the server, as the server sees it."""

    linked: bool

    def reachable(self) -> bool:
        """Return True while both server and link are up."""
        ...

    def unlink(self) -> None:
        """Cut the client off."""
        ...

    def relink(self) -> None:
        """Connect the client again."""
        ...

    def reconnected(self) -> None:
        """Notify the client that the connection is back."""
        ...

    async def close(self) -> None:
        """Disconnect for good."""
        ...


class HubSubscriber(Protocol):
    """Core subscription of a client, as the server sees it."""

    group: str

    @property
    def client(self) -> HubClient:
        """The client that subscribed."""
        ...

    def receive(self, message: Message) -> None:
        """Take a message."""
        ...

    async def close(self) -> None:
        """End the subscription."""
        ...


class MemoryServer:
    """The shared server."""

    def __init__(self, *, log_bytes_max: int | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        #: The server's own wall clock: stored messages bear its time.
        self.clock = clock
        self.streams = {
            spec.name: MemoryStream(spec, f"memory-{spec.name}") for spec in streams.stream_specs(log_bytes_max)
        }
        self.buckets: dict[str, dict[str, Entry]] = {spec.name: {} for spec in streams.bucket_specs()}
        self.expiry: dict[tuple[str, str], float] = {}
        self.revision = 0
        self.objects: dict[str, dict[str, bytes]] = {name: {} for name in streams.STORES}
        self.subscribers: dict[str, list[HubSubscriber]] = {}
        self.clients: list[HubClient] = []
        self.up = True
        #: False: the one of several servers that has the object stores is away.
        self.stores_up = True
        self.unknown_appends: deque[bool] = deque()
        self.inbox = 0
        #: Requests handed to groups so far.
        self.group_turns = 0

    def deliver(self, message: Message) -> int:
        """Hand a core message to every subscriber (of a group, to one), in order, soon. Returns how many get it."""
        found = [s for pattern, named in self.subscribers.items() if matches(pattern, message.subject) for s in named]
        if any(subscriber.group for subscriber in found):
            found = self._one_of_each_group(found)
        for subscriber in found:
            asyncio.get_running_loop().call_soon(subscriber.receive, message)
        return len(found)

    def _one_of_each_group(self, found: list[HubSubscriber]) -> list[HubSubscriber]:
        """Return the subscribers without a group, and the next member of each group in turn; a server picks the member by chance."""
        groups: dict[str, list[HubSubscriber]] = {}
        for subscriber in found:
            if subscriber.group and subscriber.client.reachable():
                groups.setdefault(subscriber.group, []).append(subscriber)
        self.group_turns += 1
        chosen = [members[self.group_turns % len(members)] for members in groups.values()]
        return [subscriber for subscriber in found if not subscriber.group] + chosen

    # -- faults, for the contract suite and the simulator

    def stop(self) -> None:
        """The server goes away: every call of every client fails until `start`."""
        self.up = False
        for stream in self.streams.values():
            stream.announce()

    def start(self) -> None:
        """The server is back with all it had stored."""
        self.up = True
        for client in list(self.clients):
            client.reconnected()
        for stream in self.streams.values():
            stream.announce()

    def lose_next_answer(self, *, stored: bool) -> None:
        """The next append's outcome is unknown to its writer; `stored` says what really happened."""
        self.unknown_appends.append(stored)

    def damage(self, stream: str, sequence: int, change: Callable[[bytes], bytes]) -> None:
        """Change a stored payload in place."""
        held = self.streams[stream]
        index = next(i for i, message in enumerate(held.messages) if message.sequence == sequence)
        old = held.messages[index]
        held.messages[index] = Stored(old.sequence, old.subject, change(old.payload))
        if held.last_of.get(old.subject) == old:
            held.last_of[old.subject] = held.messages[index]

    def remove(self, stream: str, sequence: int) -> None:
        """Lose one message out of the middle."""
        held = self.streams[stream]
        held.messages = [message for message in held.messages if message.sequence != sequence]

    def truncate(self, stream: str, last: int) -> None:
        """Lose the tail behind `last`; its sequences are used again."""
        held = self.streams[stream]
        held.messages = [message for message in held.messages if message.sequence <= last]
        held.last = last
        for sequences in held.held_of.values():
            while sequences and sequences[-1] > last:
                sequences.pop()
        held.last_of = {message.subject: message for message in held.messages}
        held.announce()
