"""Frames of a WebSocket in any cut of the stream, and bytes that are none."""

import random

import pytest

from fairlead_appproxy.frames import BadFrame, FrameReader


def frame(opcode: int, payload: bytes, *, masked: bool, fin: bool = True) -> bytes:
    """Make a frame (RFC 6455, 5.2); the mask is zero."""
    bit, length = 0x80 if masked else 0, len(payload)
    head = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head += bytes([bit | length])
    elif length < 2**16:
        head += bytes([bit | 126]) + length.to_bytes(2)
    else:
        head += bytes([bit | 127]) + length.to_bytes(8)
    return head + (bytes(4) if masked else b"") + payload


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_frames_are_counted_however_the_stream_is_cut(seed: int, masked: bool) -> None:
    """Data and control apart; a payload that looks like frames is none."""
    rng, stream, data, control = random.Random(seed), b"", 0, 0
    for _ in range(30):
        opcode = rng.choice((0x0, 0x1, 0x2, 0x9, 0xA))
        size = rng.choice((0, 1, 125)) if opcode > 2 else rng.choice((0, 125, 126, 65535, 65536))
        stream += frame(opcode, b"\x81\x05" * (size // 2) + b"x" * (size % 2), masked=masked)
        data, control = data + (opcode <= 2), control + (opcode > 2)
    stream += frame(0x8, b"\x03\xe8", masked=masked)
    whole, cut, at = FrameReader(masked=masked), FrameReader(masked=masked), 0
    whole.feed(stream)
    while at < len(stream):
        step = rng.choice((1, 2, 3, 1000, 70000))
        cut.feed(stream[at : at + step])
        at += step
    for reader in (whole, cut):
        assert (reader.data_frames, reader.control_frames, reader.closed) == (data, control + 1, True)


@pytest.mark.parametrize(
    ("stream", "masked"),
    [
        (frame(0x1, b"a", masked=False), True),
        (frame(0x1, b"a", masked=True), False),
        (frame(0x3, b"a", masked=True), True),
        (frame(0xB, b"a", masked=True), True),
        (frame(0x9, b"a" * 126, masked=True), True),
        (frame(0x8, b"", masked=True, fin=False), True),
        (b"\x81\xfe\x00\x05" + bytes(9), True),
        (b"\x81\xff" + (5).to_bytes(8) + bytes(9), True),
        (b"\x81\xff" + (2**63).to_bytes(8) + bytes(9), True),
    ],
)
def test_bytes_that_are_no_frames_are_refused(stream: bytes, masked: bool) -> None:
    """A wrong mask, reserved opcodes, long control frames, lengths in a longer form than need be."""
    with pytest.raises(BadFrame):
        FrameReader(masked=masked).feed(stream)
