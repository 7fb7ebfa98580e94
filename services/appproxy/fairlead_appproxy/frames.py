"""Heads of WebSocket frames in a stream of bytes: which direction sent data, and whether the stream is one. Pure.

Payloads are neither unmasked nor joined: they are skipped by their length (RFC 6455, 5.2). Start at `FrameReader`.
"""

DATA = frozenset([0x0, 0x1, 0x2])
CONTROL = frozenset([0x8, 0x9, 0xA])
#: Longest payload of a control frame.
_CONTROL_MAX = 125


class BadFrame(Exception):
    """Bytes that are no frame; the connection cannot be read any further."""


class FrameReader:
    """Reader of one direction. `masked`: the client's, whose frames must be masked; an app's must not."""

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        self._head = b""
        self._skip = 0
        #: Frames with data that have begun so far, and frames of control.
        self.data_frames = 0
        self.control_frames = 0
        #: True behind a close frame.
        self.closed = False

    def feed(self, data: bytes) -> None:
        """Read on. Raises BadFrame."""
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            step = max(1, self._needed() - len(self._head))
            self._head += data[at : at + step]
            at += step
            if len(self._head) >= 2 and len(self._head) >= self._needed():
                self._begin()

    def _needed(self) -> int:
        """Return how many bytes the head takes, as far as it has come."""
        if len(self._head) < 2:
            return 2
        length = self._head[1] & 0x7F
        return 2 + (2 if length == 126 else 8 if length == 127 else 0) + (4 if self._head[1] & 0x80 else 0)

    def _begin(self) -> None:
        first, second, head = self._head[0], self._head[1], self._head
        self._head = b""
        opcode, length = first & 0x0F, second & 0x7F
        if bool(second & 0x80) is not self._masked:
            raise BadFrame("a client's frame is not masked" if self._masked else "an app's frame is masked")
        if opcode not in DATA and opcode not in CONTROL:
            raise BadFrame(f"opcode {opcode} is reserved")
        if opcode in CONTROL and (length > _CONTROL_MAX or not first & 0x80):
            raise BadFrame("a control frame is long or in parts")
        size = length
        if length == 126:
            size = int.from_bytes(head[2:4])
        elif length == 127:
            size = int.from_bytes(head[2:10])
        if (length == 126 and size < 126) or (length == 127 and not 0xFFFF < size < 2**63):
            raise BadFrame("a frame's length is not in its shortest form")
        self._skip = size
        self.data_frames += opcode in DATA
        self.control_frames += opcode in CONTROL
        self.closed = self.closed or opcode == 0x8
