"""TLS handshakes of accepted connections: bounded in number and time. Knows no HTTP.

The loop's own TLS listener gives a connection to its protocol only after the handshake. Clients that open connections and
send nothing would therefore be in no bound: they would hold all open files of the process, a minute each. Here the protocol
gets the connection when it is accepted. Beyond the bound the oldest handshake ends, which is the one that made no progress
for the longest time, so that a newcomer still gets in. Start at `Handshakes.begin`.
"""

import asyncio
import ssl
from collections.abc import Callable

import structlog

log = structlog.get_logger()

HANDSHAKES_MAX = 1024
#: Seconds for a handshake, and for a client to answer the end of a connection: it holds an open file meanwhile.
HANDSHAKE_S = 10.0
SHUTDOWN_S = 1.0
#: Seconds between two log lines about ended handshakes.
REPORT_S = 10.0

type MakeProtocol = Callable[[], asyncio.Protocol]


class Handshakes:
    """Handshakes of one listening socket that are under way."""

    def __init__(self, context: ssl.SSLContext, count_max: int = HANDSHAKES_MAX) -> None:
        self.count_max = count_max
        self._context = context
        #: In the order in which they began.
        self._open: dict[_Handshake, None] = {}
        self._ended = 0
        self._reported_at = float("-inf")

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, make: MakeProtocol) -> asyncio.Protocol:
        """Return the protocol of an accepted connection. That of `make` takes the connection over once TLS is agreed."""
        return _Handshake(self, make)

    def close(self) -> None:
        """End all."""
        for handshake in list(self._open):
            handshake.end()

    def enter(self, handshake: "_Handshake") -> None:
        """Count a handshake; over the bound, end the oldest."""
        if len(self._open) >= self.count_max:
            next(iter(self._open)).end()
            self._report()
        self._open[handshake] = None

    def leave(self, handshake: "_Handshake") -> None:
        """Forget a handshake, which has come to an end."""
        self._open.pop(handshake, None)

    async def agree(self, transport: asyncio.Transport, handshake: "_Handshake") -> asyncio.Transport | None:
        """Return the transport over TLS; None where none is agreed in time."""
        try:
            agreed = await asyncio.get_running_loop().start_tls(
                transport,
                handshake,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:  # also ssl.SSLError and a timeout: scanners and clients without trust, too many to be logged
            return None
        # A connection that is lost in mid-handshake ends the wait like one that is agreed.
        is_open = agreed is not None and agreed.get_extra_info("cipher") and not agreed.is_closing()
        return agreed if is_open else None

    def _report(self) -> None:
        self._ended += 1
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_S:
            log.warning("unfinished handshakes ended for new ones", ended=self._ended, handshakes_max=self.count_max)
            self._ended, self._reported_at = 0, now


class _Handshake(asyncio.Protocol):
    """Protocol of a connection until TLS is agreed."""

    def __init__(self, of: Handshakes, make: MakeProtocol) -> None:
        self._of, self._make = of, make
        self._transport: asyncio.Transport | None = None
        #: What the client sent together with the end of the handshake.
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._of.enter(self)
        # Eager, so that TLS reads the connection's first byte.
        self._task = asyncio.Task(self._run(transport), loop=asyncio.get_running_loop(), eager_start=True)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def end(self) -> None:
        """End the connection at once."""
        self._of.leave(self)
        if self._transport is not None:
            self._transport.abort()

    async def _run(self, transport: asyncio.Transport) -> None:
        agreed = None
        try:
            agreed = await self._of.agree(transport, self)
        finally:
            self._of.leave(self)
            if agreed is None:
                transport.abort()
        if agreed is None:
            return
        protocol = self._make()
        agreed.set_protocol(protocol)
        protocol.connection_made(agreed)
        for data in self._early:
            protocol.data_received(data)
