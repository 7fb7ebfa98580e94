"""Splice of two connections: what comes from one goes to the other, unchanged, by protocols in place of streams and tasks.

An idle pair then has no task and no buffer. The kernel's flow control is that of the whole: while one end does not take what it was sent, nothing
is read from the other, so that what is held for an end is at most what was read at once. Start at `splice`.
"""

import asyncio
import contextlib
from typing import Self, cast

#: Any rest that the kernel does not take at once stops the reading at the other end. (A limit of 0 stops a TLS transport that holds nothing.)
HELD_BYTES = 1
#: Held of a connection that is not spliced yet.
EARLY_BYTES_MAX = 64 * 1024


class NewConnection(asyncio.Protocol):
    """Connection that is read, but not spliced yet: what comes is held until it is taken."""

    __slots__ = ("_waiter", "data", "error", "has_ended", "is_lost", "transport")

    def __init__(self) -> None:
        self.data = b""
        #: True once nothing more comes; once it is closed, `error` with its reason.
        self.has_ended = self.is_lost = False
        self.error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        """Hold what comes."""
        self.data = self.data + data if self.data else data
        if len(self.data) > EARLY_BYTES_MAX:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Note the end; the other direction stays, but for TLS, which has no half of a connection."""
        self.has_ended = True
        self._wake()
        return self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of both directions."""
        self.has_ended = self.is_lost = True
        self.error = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> None:
        """Wait until more comes, or the end. Raises ConnectionError where it was cut."""
        if not self.has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if isinstance(self.error, OSError):
            raise ConnectionResetError(str(self.error)) from self.error

    async def until(self, mark: bytes, most: int) -> bytes:
        """Return what comes up to a mark, with it. Raises ConnectionError where it does not come within so many bytes."""
        while (end := self.data.find(mark, 0, most)) < 0:
            if self.has_ended or len(self.data) >= most:
                raise ConnectionResetError("no answer")
            await self.more()
        found, self.data = self.data[: end + len(mark)], self.data[end + len(mark) :]
        return found


class SpliceEnd(asyncio.Protocol):
    """One end of a splice, over a connection that was something else before; `peer` is the other."""

    __slots__ = ("_early", "_early_end", "carried", "changed", "has_ended", "is_full", "is_lost", "peer", "transport")

    def __init__(self, connection: NewConnection) -> None:
        self.transport = connection.transport
        self._early, self._early_end = connection.data, connection.has_ended
        connection.data = b""
        self.peer: Self
        self.carried = 0
        self.is_full = False
        self.has_ended, self.is_lost = False, connection.is_lost
        #: Set at each of these, where somebody waits for it.
        self.changed: asyncio.Event | None = None

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self.carried += len(data)
        self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Pass on the end of this direction. TLS has no half of a connection: there both directions end."""
        self.has_ended = True
        self._tell()
        if self.peer.has_ended or not self.peer.transport.can_write_eof():
            self.peer.transport.close()  # what it was sent before is not cut with it
            return False
        with contextlib.suppress(OSError, RuntimeError):
            self.peer.transport.write_eof()
        return self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other end, too: at once where this one was cut."""
        self.has_ended = self.is_lost = True
        if exc is None:
            self.peer.transport.close()
        else:
            self.peer.transport.abort()
        self._tell()

    def pause_writing(self) -> None:
        """Read nothing more from the other end, until this one has taken what it was sent."""
        self.is_full = True
        if not self.peer.transport.is_closing():
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        self.is_full = False
        if not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def abort(self) -> None:
        """Cut both."""
        self.transport.abort()
        self.peer.transport.abort()

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed.set()

    def take_over(self) -> None:
        """Be the transport's protocol from now on. Both ends must be, before either begins."""
        self.transport.set_protocol(self)
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(HELD_BYTES)

    def begin(self) -> None:
        """Pass on what had come before, and read on."""
        early, self._early = self._early, b""
        if early:
            self.data_received(early)
        if self._early_end:
            if not self.eof_received():
                self.transport.close()
        elif not self.peer.is_full and not self.transport.is_closing():
            self.transport.resume_reading()


def join[End: SpliceEnd](first: End, second: End) -> None:
    """Pass bytes between two ends from now on."""
    first.peer, second.peer = second, first
    for end in (first, second):
        end.take_over()
    for end in (first, second):
        if first.is_lost or second.is_lost:
            first.abort()
            return
        end.begin()


async def splice(first: SpliceEnd, second: SpliceEnd, *, half_open_s: float) -> None:
    """Pass bytes between two ends until both are closed. When one direction has ended, and nothing moves for `half_open_s`, both are cut: an end that
    has gone looks alike.
    """
    changed = first.changed = second.changed = asyncio.Event()
    join(first, second)
    try:
        while not (first.is_lost and second.is_lost):
            changed.clear()
            before = first.carried + second.carried
            try:
                async with asyncio.timeout(half_open_s if first.has_ended or second.has_ended else None):
                    await changed.wait()
            except TimeoutError:
                if first.carried + second.carried == before:
                    return
    finally:
        first.abort()
