"""Frames between the process for the past and its estimator: a 4-byte big-endian length, and msgpack or an answer's bytes."""

import struct
from typing import BinaryIO

import msgspec

LENGTH = struct.Struct(">I")
#: Longest frame; a longer one is not of this protocol.
FRAME_MAX = 1 << 30


class Commits(msgspec.Struct, tag="commits", array_like=True):
    """The next commits of the log: (sequence, payload)."""

    commits: list[tuple[int, bytes]]


class Restore(msgspec.Struct, tag="restore", array_like=True):
    """Go on from a kept state; the answer is its sequence, 0 where it cannot be read."""

    state: bytes


class Dump(msgspec.Struct, tag="dump", array_like=True):
    """Return the state, to be kept."""


class Ask(msgspec.Struct, tag="ask", array_like=True):
    """A question."""

    question: bytes


Frame = Commits | Restore | Dump | Ask
_decoder = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    """Return a frame's bytes, its length first."""
    body = msgspec.msgpack.encode(frame)
    return LENGTH.pack(len(body)) + body


def read_frame(source: BinaryIO) -> Frame | None:
    """Return the next frame; None at the end. Raises msgspec.MsgspecError, ValueError for what is no frame."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    if size > FRAME_MAX:
        raise ValueError(f"expected a frame of at most {FRAME_MAX} bytes, found {size}")
    body = source.read(size)
    return _decoder.decode(body) if len(body) == size else None


def write_answer(sink: BinaryIO, answer: bytes) -> None:
    """Write an answer."""
    sink.write(LENGTH.pack(len(answer)) + answer)
    sink.flush()
