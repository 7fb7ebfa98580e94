"""Frames of a terminal's tunnel: what a client and a node say to each other about one command that runs inside a run. Pure.

A frame is one byte of kind, three of length (big-endian), and the payload. The client begins with START, and the node ends with EXIT.
Input and output are bytes that nobody looks into. Neither the proxy nor the gateway reads frames. Start at `FrameDecoder`.
"""

from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

#: Of one frame. Longer input and output is sent in several.
PAYLOAD_MAX = 64 * 1024
HEAD_BYTES = 4
#: Each end says something this often, and takes the other one for lost after so long a silence.
KEEPALIVE_S, SILENCE_S = 15.0, 60.0
#: Signals that a client may send to its command.
SIGNALS = ("HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "CONT", "STOP", "TSTP", "ALRM")


class FrameKind(IntEnum):
    """Kind of a frame."""

    #: From the client: the command (StartCommand), once and first.
    START = 1
    #: From the client: bytes for its input; none: the input has ended.
    INPUT = 2
    #: From the client: rows and columns of its terminal (two bytes each).
    RESIZE = 3
    #: From the client: the name of a signal, without SIG.
    SIGNAL = 4
    #: From the node: bytes of stdout, or of the terminal; bytes of stderr.
    OUTPUT = 16
    ERROR_OUTPUT = 17
    #: From the node, last: how the command ended (CommandExit).
    EXIT = 18
    #: From both: the other end is there. Without payload.
    KEEPALIVE = 32


CLIENT_KINDS = frozenset([FrameKind.START, FrameKind.INPUT, FrameKind.RESIZE, FrameKind.SIGNAL, FrameKind.KEEPALIVE])
NODE_KINDS = frozenset([FrameKind.OUTPUT, FrameKind.ERROR_OUTPUT, FrameKind.EXIT, FrameKind.KEEPALIVE])

type TerminalSide = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class StartCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Command to run inside a run. Without words it is a shell."""

    argv: list[Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")]] = []
    #: True: with a terminal of its own, so that stdout and stderr are one.
    tty: bool = False
    #: True: the client will send input; else the command reads from /dev/null.
    input: bool = False
    rows: TerminalSide = 24
    columns: TerminalSide = 80
    #: Kind of the client's terminal, as in $TERM.
    term: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[A-Za-z0-9._+-]*\Z")] = ""


class CommandExit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command ended: by its exit code, or by a signal (SIGTERM). Both empty: it was not started, or its end is not known."""

    code: int | None = None
    signal: str = ""
    #: Words for a person where it was not the command that ended itself.
    reason: str = ""


class TerminalFrame(NamedTuple):
    """Frame that has been decoded."""

    kind: FrameKind
    payload: bytes = b""


class BadTerminalFrame(Exception):
    """Bytes that are no frame which this end may send; the connection cannot be read any further."""


class FrameDecoder:
    """Reader of one direction. It holds one unfinished frame at the most."""

    def __init__(self, kinds: frozenset[FrameKind]) -> None:
        self._kinds = kinds
        self._data = b""

    def feed(self, data: bytes) -> list[TerminalFrame]:
        """Return the frames that are whole now. Raises BadTerminalFrame as soon as a head is wrong, before its payload has come."""
        data = self._data + data
        found: list[TerminalFrame] = []
        at = 0
        while len(data) - at >= HEAD_BYTES:
            kind, length = self._head(data[at : at + HEAD_BYTES])
            end = at + HEAD_BYTES + length
            if end > len(data):
                break
            found.append(TerminalFrame(kind, data[at + HEAD_BYTES : end]))
            at = end
        self._data = data[at:]
        return found

    def _head(self, head: bytes) -> tuple[FrameKind, int]:
        length = int.from_bytes(head[1:])
        if head[0] not in self._kinds:
            raise BadTerminalFrame(f"a frame of kind {head[0]} is not expected here")
        if length > PAYLOAD_MAX:
            raise BadTerminalFrame(f"expected a frame of at most {PAYLOAD_MAX} bytes, found {length}")
        return FrameKind(head[0]), length


def encode_frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame; `payload` of at most PAYLOAD_MAX bytes."""
    assert len(payload) <= PAYLOAD_MAX, len(payload)
    return bytes([kind]) + len(payload).to_bytes(3) + payload


def encode_start(command: StartCommand) -> bytes:
    """Return the frame of a command. Raises ValueError where its words are too long for one."""
    payload = msgspec.json.encode(command)
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"expected a command of at most {PAYLOAD_MAX} bytes, found {len(payload)}: send it as input")
    return encode_frame(FrameKind.START, payload)


def encode_resize(rows: int, columns: int) -> bytes:
    """Return the frame of a terminal's new size."""
    return encode_frame(FrameKind.RESIZE, min(rows, 65535).to_bytes(2) + min(columns, 65535).to_bytes(2))


def encode_exit(end: CommandExit) -> bytes:
    """Return the frame of a command's end."""
    return encode_frame(FrameKind.EXIT, msgspec.json.encode(end))


_decode_start = msgspec.json.Decoder(StartCommand).decode
_decode_exit = msgspec.json.Decoder(CommandExit).decode


def decode_start(frame: TerminalFrame) -> StartCommand:
    """Return the command that a client begins with. Raises BadTerminalFrame."""
    if frame.kind is not FrameKind.START:
        raise BadTerminalFrame(f"expected START first, found {frame.kind.name}")
    try:
        return _decode_start(frame.payload)
    except msgspec.MsgspecError as error:
        raise BadTerminalFrame(f"expected a command: {error}") from error


def decode_resize(payload: bytes) -> tuple[int, int]:
    """Return (rows, columns). Raises BadTerminalFrame."""
    if len(payload) != 4:
        raise BadTerminalFrame(f"expected 4 bytes of a terminal's size, found {len(payload)}")
    return int.from_bytes(payload[:2]), int.from_bytes(payload[2:])


def decode_signal(payload: bytes) -> str:
    """Return a signal's name with SIG. Raises BadTerminalFrame."""
    name = payload.decode("latin-1")
    if name not in SIGNALS:
        raise BadTerminalFrame(f"expected one of {', '.join(SIGNALS)}, found {payload[:16]!r}")
    return f"SIG{name}"


def decode_exit(payload: bytes) -> CommandExit:
    """Return how a command ended. Raises BadTerminalFrame."""
    try:
        return _decode_exit(payload)
    except msgspec.MsgspecError as error:
        raise BadTerminalFrame(f"expected a command's end: {error}") from error
