"""Client's end of a terminal: keys, exit codes, and lost connections."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.commands.enter import LOST, code_of
from fairlead.errors import Unreachable
from fairlead.terminal_link import CommandLink, ConnectionLost, LeaveKeys, Streams, start_command
from fairlead_schemas.http.tunnels import NewTunnel
from fairlead_schemas.wire.terminal import (
    CLIENT_KINDS,
    CommandExit,
    FrameDecoder,
    FrameKind,
    StartCommand,
    decode_start,
    encode_exit,
    encode_frame,
)

type Node = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        (b"ls\r", b"ls\r"),
        (b"~.", None),
        (b"ls\r~.", None),
        (b"ls\n~.", None),
        (b"ls ~.", b"ls ~."),
        (b"~~.", b"~."),
        (b"~x~.", b"~x~."),
        (b"\r~\r~.", None),
        (b"~/bin\r", b"~/bin\r"),
    ],
)
def test_the_keys_that_leave_count_at_the_beginning_of_a_line(typed: bytes, sent: bytes | None) -> None:
    """Whole or one byte at a time."""
    assert LeaveKeys().typed(typed) == sent
    keys, out = LeaveKeys(), b""
    for value in typed:
        found = keys.typed(bytes([value]))
        if found is None:
            assert sent is None
            return
        out += found
    assert out == sent


@given(st.binary(max_size=60).filter(lambda data: b"~" not in data))
def test_other_keys_pass_unchanged(data: bytes) -> None:
    """NUL, escapes and invalid UTF-8."""
    assert LeaveKeys().typed(data) == data


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (CommandExit(code=0), 0),
        (CommandExit(code=255), 255),
        (CommandExit(signal="SIGTERM"), 143),
        (CommandExit(code=127, reason="x: command not found"), 127),
        (CommandExit(signal="SIGKILL", reason="the run has ended"), 137),
        (CommandExit(reason="it is not known how the command ended"), LOST),
    ],
)
def test_exit_codes_are_the_command_s(end: CommandExit, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A reason is printed."""
    assert code_of(end) == code
    assert capsys.readouterr().err.strip() == end.reason


def test_a_terminal_of_a_strange_kind_is_not_named() -> None:
    """The command would be refused as a whole."""
    assert start_command([], tty=True, input=True, environment={"TERM": "xterm-256color"}).term == "xterm-256color"
    assert start_command([], tty=True, input=True, environment={"TERM": "x; reboot"}).term == ""


async def run(command: StartCommand, node: Node, stdin: bytes = b"") -> tuple[CommandExit | None, bytes, bytes]:
    """Run a command whose node is played; return its end, stdout and stderr."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Authorization: Bearer c0de\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        await node(reader, writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pipes = [os.pipe() for _ in range(3)]
    os.write(pipes[0][1], stdin)
    os.close(pipes[0][1])
    try:
        tunnel = NewTunnel(tunnel="t", address=f"http://127.0.0.1:{port}", code="c0de", valid_seconds=30, sequence=1)
        async with asyncio.timeout(10):
            end = await CommandLink(command, Streams(pipes[0][0], pipes[1][1], pipes[2][1])).run(tunnel)
    finally:
        for each in (pipes[1][1], pipes[2][1]):
            os.close(each)
        server.close()
    shown = [await asyncio.to_thread(os.read, each, 65536) for each in (pipes[1][0], pipes[2][0])]
    return end, shown[0], shown[1]


async def test_streams_are_kept_apart() -> None:
    """Input goes in to its end; output comes out by its stream, with the command's exit code."""
    heard: list[bytes] = []

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(CLIENT_KINDS)
        while not heard or heard[-1]:
            for frame in decoder.feed(await reader.read(65536)):
                if frame.kind is FrameKind.START:
                    assert decode_start(frame).argv == ["cat"]
                else:
                    heard.append(frame.payload)
        writer.write(encode_frame(FrameKind.OUTPUT, b"out\0") + encode_frame(FrameKind.KEEPALIVE))
        writer.write(encode_frame(FrameKind.ERROR_OUTPUT, b"err") + encode_exit(CommandExit(code=4)))
        await reader.read()

    assert await run(StartCommand(argv=["cat"], input=True), node, b"in\0") == (CommandExit(code=4), b"out\0", b"err")
    assert b"".join(heard) == b"in\0"


@pytest.mark.parametrize(
    "last", [b"", encode_frame(FrameKind.OUTPUT, b"x")[:-1], b"\xff\xff\xff\xff", encode_exit(CommandExit())[:4]]
)
async def test_a_connection_that_ends_before_the_command_is_lost(last: bytes) -> None:
    """In the middle of a frame, or with bytes that are none."""

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(last)
        await writer.drain()

    with pytest.raises(ConnectionLost):
        await run(StartCommand(argv=["sh"]), node)


async def test_a_code_that_is_not_taken_is_unreachable() -> None:
    """With the proxy's status."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tunnel = NewTunnel(tunnel="t", address=f"http://127.0.0.1:{port}", code="x", valid_seconds=30, sequence=1)
    with pytest.raises(Unreachable, match="403 Forbidden"):
        await CommandLink(StartCommand()).run(tunnel)
    server.close()
