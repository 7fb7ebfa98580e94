"""Splice of two connections after the handshake of a WebSocket: bytes pass unchanged, and heads of the client's frames are read.

Protocols in place of streams: an idle socket then has no task and no buffer. The kernel's flow control is that of the whole: while one end does not
take what it was sent, the other is not read. Start at `splice`.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from fairlead_appproxy.connection import HttpConnection
from fairlead_appproxy.frames import BadFrame, FrameReader


class _Half(asyncio.Protocol):
    """One end; `peer` is the other."""

    __slots__ = ("_frames", "_on_data", "_on_lost", "_streams", "peer", "transport")

    def __init__(
        self, end: HttpConnection, frames: FrameReader | None, on_data: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        self._streams = end  # a stream that nobody holds closes its transport
        self.transport = cast(asyncio.Transport, end.writer.transport)
        self._frames, self._on_data, self._on_lost = frames, on_data, on_lost
        self.peer: _Half

    def data_received(self, data: bytes) -> None:
        """Pass on; count frames of data."""
        if self._frames is not None:
            before = self._frames.data_frames
            try:
                self._frames.feed(data)
            except BadFrame:  # the app would read it otherwise than the proxy
                self.abort()
                return
            if self._frames.data_frames != before:
                self._on_data()
        self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """End both: a WebSocket has no half of a connection."""
        self.peer.transport.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other end, too."""
        self.peer.transport.close()
        self._on_lost()

    def pause_writing(self) -> None:
        """Read nothing more from the other end, until this one has taken what it was sent."""
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def abort(self) -> None:
        """Cut both."""
        self.transport.abort()
        self.peer.transport.abort()


async def splice(
    client: HttpConnection, app: HttpConnection, on_data: Callable[[], None], on_lost: Callable[[], None]
) -> Callable[[], None]:
    """Splice from here on; return what cuts both. `on_data` is called for data frames of the client, `on_lost` once or twice at the end."""
    near = _Half(client, FrameReader(masked=True), on_data, on_lost)
    far = _Half(app, None, on_data, on_lost)
    near.peer, far.peer = far, near
    gone = client.has_gone or app.has_gone
    for half, end in ((near, client), (far, app)):
        half.transport.set_protocol(half)
        # What the stream holds comes first. It is there, so that nothing is waited for, and nothing newer overtakes it.
        end.reader.feed_eof()
        if rest := end.take_rest() + await end.reader.read():
            half.data_received(rest)
        if not half.transport.is_closing():
            half.transport.resume_reading()
    if gone:
        near.abort()
    return near.abort
