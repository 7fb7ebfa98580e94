"""One connection of HTTP/1.1 as the proxy uses it: heads are read with a time limit, bodies are passed on as they come.

A protocol of its own in place of streams: a small request is read and answered with one write each, and a body flows from one connection to the
other without a task between them. Start at `HttpConnection.head` and `pass_body`.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Self

from fairlead_appproxy.body_end import BadFraming, Framing, UntilClose, framing_of
from fairlead_appproxy.head import Body, end_of_head
from fairlead_bus.splice import EARLY_BYTES_MAX, HELD_BYTES, NewConnection


class CutOff(ConnectionError):
    """The other end has gone in the middle of a message."""


class Silent(Exception):
    """Nothing has come in time."""


class _Flow(NamedTuple):
    """Body that flows to another connection."""

    target: "HttpConnection"
    framing: Framing
    done: asyncio.Future[None]


class HttpConnection(NewConnection):
    """Connection, with the bytes that were read too far. `taken` is called once it is open."""

    __slots__ = (
        "_deadline",
        "_flow",
        "_is_late",
        "_loop",
        "_room",
        "_taken",
        "_timer",
        "_timer_at",
        "feeder",
        "is_full",
    )

    def __init__(self, taken: Callable[[Self], object] | None = None) -> None:
        super().__init__()
        self._taken = taken
        self._loop = asyncio.get_running_loop()
        #: What flows from it, and the connection from which something flows to it.
        self._flow: _Flow | None = None
        self.feeder: HttpConnection | None = None
        self.is_full = False
        self._room: asyncio.Future[None] | None = None
        #: Until when something must come (0: no limit). The timer is set rarely: one that is early looks again.
        self._deadline, self._is_late = 0.0, False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # ------------------------------------------------------------------ as the loop calls it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell whom it is for."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(HELD_BYTES)
        if self._taken is not None:
            self._taken(self)
            self._taken = None

    def data_received(self, data: bytes) -> None:
        """Pass on what flows; hold the rest."""
        flow = self._flow
        if flow is None:
            super().data_received(data)
            return
        try:
            taken = flow.framing.take(data)
        except BadFraming as error:
            self.fail_flow(error)
            return
        flow.target.transport.write(data if taken == len(data) else data[:taken])
        if flow.framing.done:
            self._flow = None
            if not flow.done.done():
                flow.done.set_result(None)
            if taken < len(data):
                super().data_received(data[taken:])

    def eof_received(self) -> bool:
        """End what flows. The other direction stays: a program may close its own after its request."""
        self._end_flow()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what flows from it and to it."""
        super().connection_lost(exc)
        self._stop_timer()
        self._end_flow()
        if self.feeder is not None:
            self.feeder.fail_flow(ConnectionResetError())
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionResetError())

    def _end_flow(self) -> None:
        flow = self._flow
        if flow is not None and isinstance(flow.framing, UntilClose) and self.error is None:
            self._flow = None
            if not flow.done.done():
                flow.done.set_result(None)
        else:
            self.fail_flow(CutOff())

    def fail_flow(self, error: Exception) -> None:
        """End what flows from it by an error."""
        flow, self._flow = self._flow, None
        if flow is not None and not flow.done.done():
            flow.done.set_exception(error)

    def pause_writing(self) -> None:
        """Read nothing more of what flows to it."""
        self.is_full = True
        if self.feeder is not None and not self.feeder.transport.is_closing():
            self.feeder.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        self.is_full = False
        if self.feeder is not None and not self.feeder.transport.is_closing():
            self.feeder.transport.resume_reading()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # ------------------------------------------------------------------ heads

    async def head(self, begin_s: float, whole_s: float) -> bytes:
        """Return the next head, b"" where the connection ends before it. `begin_s`: until its first byte comes; `whole_s`: from there until it
        is whole. Raises HeadRefused, Silent, CutOff.
        """
        end = end_of_head(self.data) if self.data else 0
        if not end:
            end = await self._awaited_head(begin_s, whole_s)
            if not end:
                return b""
        head, self.data = self.data[:end], self.data[end:]
        return head

    async def _awaited_head(self, begin_s: float, whole_s: float) -> int:
        try:
            if not self.data:
                self._set_deadline(begin_s)
                await self._more()
                if not self.data:
                    return 0
            if not (end := end_of_head(self.data)):
                self._set_deadline(whole_s)
                while not (end := end_of_head(self.data)):
                    if self.has_ended:
                        raise CutOff
                    await self._more()
            return end
        finally:
            self._deadline = 0.0

    async def _more(self) -> None:
        self._resume()
        await self.more()
        if self._is_late:
            self._is_late = False
            raise Silent

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = at = self._loop.time() + seconds
        if self._timer is None or self._timer_at > at:
            self._stop_timer()
            self._timer, self._timer_at = self._loop.call_at(at, self._look), at

    def _look(self) -> None:
        """Wake who waits in vain; look again where the limit is later than when the timer was set."""
        self._timer = None
        if not self._deadline:
            return
        if self._loop.time() >= self._deadline:
            self._is_late = True
            self._wake()
        else:
            self._timer, self._timer_at = self._loop.call_at(self._deadline, self._look), self._deadline

    def forget_limits(self) -> None:
        """Wait for nothing by the clock any more: another protocol has it from now on, and no timer may hold it."""
        self._deadline = 0.0
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resume(self) -> None:
        if len(self.data) <= EARLY_BYTES_MAX and not self.transport.is_closing():
            self.transport.resume_reading()

    # ------------------------------------------------------------------ bodies

    async def flow_to(self, target: "HttpConnection", framing: Framing) -> None:
        """Pass on the rest of a body, at the pace of the other end. Raises CutOff, BadFraming, ConnectionError."""
        if self.has_ended and not isinstance(framing, UntilClose):
            raise CutOff
        if self.has_ended:
            return
        self._flow = flow = _Flow(target, framing, self._loop.create_future())
        target.feeder = self
        try:
            if not target.is_full:
                self._resume()
            await flow.done
        finally:
            self._flow = target.feeder = None
            self._resume()

    async def write(self, data: bytes) -> None:
        """Send, at the pace of the other end."""
        self.transport.write(data)
        if self.is_full:
            await self.sent()

    async def sent(self) -> None:
        """Wait until the other end has taken what was sent."""
        if self.is_lost:
            raise ConnectionResetError
        if self.is_full:
            self._room = self._loop.create_future()
            await self._room

    @property
    def address(self) -> str:
        """Address of the other end, "" where it has none."""
        return str((self.transport.get_extra_info("peername") or ("",))[0])

    @property
    def is_passed_on(self) -> bool:
        """True where it is spliced with another now."""
        return self.transport.get_protocol() is not self

    @property
    def is_reusable(self) -> bool:
        """True where another message may follow: nothing has come that nobody asked for, and it is open."""
        return not (self.data or self.has_ended or self.transport.is_closing())

    @property
    def has_gone(self) -> bool:
        """True where the other end has closed."""
        return (self.has_ended and not self.data) or self.transport.is_closing()

    def close(self) -> None:
        """Close it behind what it was sent."""
        self._stop_timer()
        self.transport.close()

    def abort(self) -> None:
        """Cut it."""
        self._stop_timer()
        self.transport.abort()


async def pass_body(source: HttpConnection, target: HttpConnection, body: Body, head: bytes = b"") -> None:
    """Pass on a body to its end, behind a head, without changing a byte. Raises CutOff, BadFraming, ConnectionError."""
    if body.is_empty:
        await target.write(head)
        return
    framing = framing_of(body)
    taken = framing.take(source.data) if source.data else 0
    piece, source.data = source.data[:taken], source.data[taken:]
    if head or piece:
        target.transport.write(head + piece)
    if not framing.done:
        await source.flow_to(target, framing)
    await target.sent()
