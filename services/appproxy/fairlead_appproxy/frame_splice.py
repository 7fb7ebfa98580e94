"""Splice of two connections after the handshake of a WebSocket: bytes pass unchanged, and heads of the client's frames are read.

Start at `splice_frames`.
"""

from collections.abc import Callable

from fairlead_appproxy.connection import HttpConnection
from fairlead_appproxy.frames import BadFrame, FrameReader
from fairlead_bus.splice import SpliceEnd, join


class _Far(SpliceEnd):
    """The app's end."""

    __slots__ = ("_on_lost",)

    def __init__(self, end: HttpConnection, on_lost: Callable[[], None]) -> None:
        super().__init__(end)
        self._on_lost = on_lost

    def eof_received(self) -> bool:
        """End both: a WebSocket has no half of a connection."""
        self.has_ended = True
        self.peer.transport.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell it."""
        super().connection_lost(exc)
        self._on_lost()


class _Near(_Far):
    """The client's end, whose frames are counted."""

    __slots__ = ("_frames", "_on_data")

    def __init__(self, end: HttpConnection, on_data: Callable[[], None], on_lost: Callable[[], None]) -> None:
        super().__init__(end, on_lost)
        self._frames, self._on_data = FrameReader(masked=True), on_data

    def data_received(self, data: bytes) -> None:
        """Pass on; count frames of data."""
        before = self._frames.data_frames
        try:
            self._frames.feed(data)
        except BadFrame:  # the app would read it otherwise than the proxy
            self.abort()
            return
        if self._frames.data_frames != before:
            self._on_data()
        super().data_received(data)


def splice_frames(
    client: HttpConnection, app: HttpConnection, on_data: Callable[[], None], on_lost: Callable[[], None]
) -> Callable[[], None]:
    """Splice from here on; return what cuts both. `on_data` is called for data frames of the client, `on_lost` once or twice at the end."""
    for end in (client, app):
        end.forget_limits()
    near, far = _Near(client, on_data, on_lost), _Far(app, on_lost)
    join(near, far)
    if near.is_lost or far.is_lost:
        on_lost()
    return near.abort
