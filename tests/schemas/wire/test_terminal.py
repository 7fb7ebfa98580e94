"""Frames of terminals: decoded from any pieces, and refused where they are wrong."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.wire.terminal import (
    CLIENT_KINDS,
    HEAD_BYTES,
    NODE_KINDS,
    PAYLOAD_MAX,
    BadTerminalFrame,
    CommandExit,
    FrameDecoder,
    FrameKind,
    StartCommand,
    TerminalFrame,
    decode_exit,
    decode_resize,
    decode_signal,
    decode_start,
    encode_exit,
    encode_frame,
    encode_resize,
    encode_start,
)

frames = st.lists(st.builds(TerminalFrame, st.sampled_from(sorted(CLIENT_KINDS)), st.binary(max_size=300)), max_size=8)


@given(frames=frames, cuts=st.lists(st.integers(1, 50), min_size=1))
def test_frames_are_the_same_however_the_stream_is_cut(frames: list[TerminalFrame], cuts: list[int]) -> None:
    """Payloads come out byte for byte, NUL and escapes included, and an unfinished frame is never returned."""
    stream = b"".join(encode_frame(*each) for each in frames)
    decoder, found, at, turn = FrameDecoder(CLIENT_KINDS), list[TerminalFrame](), 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += decoder.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == frames


@given(data=st.binary(max_size=400), kinds=st.sampled_from([CLIENT_KINDS, NODE_KINDS]))
def test_any_bytes_are_frames_of_this_direction_or_refused(data: bytes, kinds: frozenset[FrameKind]) -> None:
    """Frames encode to the same bytes, and the decoder holds no more than one unfinished frame."""
    decoder = FrameDecoder(kinds)
    try:
        found = decoder.feed(data)
    except BadTerminalFrame:
        return
    assert all(each.kind in kinds for each in found)
    assert data.startswith(b"".join(encode_frame(*each) for each in found))


@pytest.mark.parametrize(
    "head",
    [
        bytes([FrameKind.OUTPUT, 0, 0, 1]),
        bytes([FrameKind.EXIT, 0, 0, 1]),
        bytes([0, 0, 0, 1]),
        bytes([255, 0, 0, 1]),
        bytes([FrameKind.INPUT]) + (PAYLOAD_MAX + 1).to_bytes(3),
        bytes([FrameKind.INPUT, 255, 255, 255]),
    ],
)
def test_a_wrong_head_is_refused_before_its_payload_has_come(head: bytes) -> None:
    """A sender cannot make the other end hold 16 MiB, nor send frames of the other direction."""
    assert len(head) == HEAD_BYTES
    with pytest.raises(BadTerminalFrame):
        FrameDecoder(CLIENT_KINDS).feed(head)


def test_the_longest_frame_passes() -> None:
    """Exactly PAYLOAD_MAX bytes."""
    (found,) = FrameDecoder(NODE_KINDS).feed(encode_frame(FrameKind.OUTPUT, bytes(PAYLOAD_MAX)))
    assert len(found.payload) == PAYLOAD_MAX


def test_contents_come_back() -> None:
    """A command, a size and an end are read as they were written."""
    command = StartCommand(argv=["sh", "-c", "echo 'ä\n'"], tty=True, input=True, rows=50, columns=132, term="xterm")
    (start,) = FrameDecoder(CLIENT_KINDS).feed(encode_start(command))
    assert decode_start(start) == command
    assert decode_resize(encode_resize(70_000, 80)[HEAD_BYTES:]) == (65535, 80)
    assert decode_signal(b"INT") == "SIGINT"
    for end in (CommandExit(code=0), CommandExit(signal="SIGKILL", reason="the run has ended"), CommandExit()):
        assert decode_exit(encode_exit(end)[HEAD_BYTES:]) == end


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b'{"argv": "ls"}',
        b'{"argv": ["a\\u0000b"]}',
        b'{"rows": -1}',
        b'{"columns": 65536}',
        b'{"term": "x; id"}',
        b'{"user": "root"}',
        b'{"env": {"LD_PRELOAD": "x"}}',
        b"\xff\xfe",
    ],
)
def test_commands_that_cannot_be_are_refused(payload: bytes) -> None:
    """With NUL, with sizes that no terminal has, or with fields that would choose a user or an environment."""
    with pytest.raises(BadTerminalFrame):
        decode_start(TerminalFrame(FrameKind.START, payload))


@pytest.mark.parametrize("payload", [b"", b"SIGINT", b"int", b"9", b"INT\0", b"SEGV", b"\xff"])
def test_signals_that_are_not_on_the_list_are_refused(payload: bytes) -> None:
    """By name alone."""
    with pytest.raises(BadTerminalFrame, match="expected one of"):
        decode_signal(payload)


def test_other_contents_are_refused() -> None:
    """Another frame first, a size that is too short, an end that is none, and a command too long for a frame."""
    with pytest.raises(BadTerminalFrame, match="expected START first, found INPUT"):
        decode_start(TerminalFrame(FrameKind.INPUT, b"{}"))
    with pytest.raises(BadTerminalFrame, match="found 3"):
        decode_resize(b"\0\0\0")
    with pytest.raises(BadTerminalFrame, match="end"):
        decode_exit(msgspec.json.encode({"code": "0"}))
    with pytest.raises(ValueError, match="send it as input"):
        encode_start(StartCommand(argv=["x" * PAYLOAD_MAX]))
