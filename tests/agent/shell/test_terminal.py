"""Sessions of terminals: a real session over a socket, a command that a test plays."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.entered import CannotEnter, Deliver
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.shell import terminal
from fairlead_agent.shell.terminal import RUN_ENDED, TerminalSession
from fairlead_schemas.wire.terminal import (
    NODE_KINDS,
    CommandExit,
    FrameDecoder,
    FrameKind,
    StartCommand,
    TerminalFrame,
    decode_exit,
    encode_frame,
    encode_resize,
    encode_start,
)
from tests.kit.eventually import eventually_async

KEY = RunKey("7", 1, 0)


class PlayedCommand:
    """Command whose output and end a test decides; it records calls."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.output: asyncio.Queue[tuple[int, bytes] | CommandExit] = asyncio.Queue()
        self.delivered = 0

    async def carry(self, deliver: Deliver) -> CommandExit:
        while not isinstance(what := await self.output.get(), CommandExit):
            await deliver(*what)
            self.delivered += len(what[1])
        return what

    async def write(self, data: bytes) -> None:
        self.done.append(data)

    def end_input(self) -> None:
        self.done.append("eof")

    async def resize(self, rows: int, columns: int) -> None:
        self.done.append((rows, columns))

    async def signal(self, number: int) -> None:
        self.done.append(signal.Signals(number).name)

    async def hang_up(self, within_s: float = 5.0) -> None:
        self.done.append("hung up")


class PlayedRuntime:
    """Runtime with one run."""

    def __init__(self) -> None:
        self.command, self.runs = PlayedCommand(), {KEY: 1}
        self.started: StartCommand | None = None

    def programs(self) -> dict[RunKey, int]:
        return self.runs

    async def enter(self, key: RunKey, command: StartCommand) -> PlayedCommand:
        if command.argv == ["missing"]:
            raise CannotEnter("missing: command not found", 127)
        if command.argv == ["broken"]:
            raise ZeroDivisionError
        self.started = command
        return self.command


class Client:
    """The other end of a session."""

    def __init__(self) -> None:
        self.runtime = PlayedRuntime()
        self.command = self.runtime.command
        self.frames: list[TerminalFrame] = []
        self._decoder = FrameDecoder(NODE_KINDS)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def next(self) -> TerminalFrame:
        async with asyncio.timeout(5):
            while not self.frames:
                data = await self.reader.read(65536)
                assert data, "the session has closed"
                self.frames += self._decoder.feed(data)
        return self.frames.pop(0)

    async def end(self) -> CommandExit:
        frame = await self.next()
        assert frame.kind is FrameKind.EXIT
        return decode_exit(frame.payload)


@asynccontextmanager
async def session(*argv: str, first: bytes | None = None) -> AsyncIterator[Client]:
    """A session with its client, which has sent its command; it ends without an error."""
    client, (ours, theirs) = Client(), socket.socketpair()
    client.reader, client.writer = await asyncio.open_connection(sock=theirs)
    client.send(encode_start(StartCommand(argv=[*argv])) if first is None else first)
    running = asyncio.create_task(TerminalSession(cast(Runtime, client.runtime), KEY, ours).run())
    try:
        yield client
    finally:
        client.writer.close()
        async with asyncio.timeout(5):
            await running


async def test_output_goes_out_and_input_in() -> None:
    """Streams stay in order and apart; a size and a signal reach the command; its end is the last frame."""
    async with session("cat") as client:
        client.send(encode_frame(FrameKind.INPUT, b"a\0\x1b]52;") + encode_resize(10, 20))
        client.send(
            encode_frame(FrameKind.SIGNAL, b"INT") + encode_frame(FrameKind.KEEPALIVE) + encode_frame(FrameKind.INPUT)
        )
        for what in ((1, b"o\0\x1b[0m"), (2, b"e"), CommandExit(code=3)):
            client.command.output.put_nowait(what)
            await asyncio.sleep(0.02)
        assert [await client.next(), await client.next()] == [
            (FrameKind.OUTPUT, b"o\0\x1b[0m"),
            (FrameKind.ERROR_OUTPUT, b"e"),
        ]
        assert await client.end() == CommandExit(code=3)
        assert client.command.done == [b"a\0\x1b]52;", (10, 20), "SIGINT", "eof"]


async def test_a_command_that_cannot_start_is_an_end_with_its_reason() -> None:
    """Frames that are no command end it as well."""
    async with session("missing") as client:
        assert await client.end() == CommandExit(code=127, reason="missing: command not found")
    async with session(first=encode_frame(FrameKind.INPUT, b"x")) as client:
        assert (await client.end()).reason == "expected START first, found INPUT"
    async with session(first=encode_frame(FrameKind.START, b"{")) as client:
        assert (await client.end()).reason.startswith("expected a command")


async def test_the_end_of_the_run_is_the_reason() -> None:
    """The command ends with its run, and the client learns why."""
    async with session("sh") as client:
        client.runtime.runs = {}
        client.command.output.put_nowait(CommandExit(signal="SIGKILL"))
        assert await client.end() == CommandExit(signal="SIGKILL", reason=RUN_ENDED)


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\0\0\0",
        bytes([FrameKind.INPUT, 255, 255, 255]),
        encode_frame(FrameKind.OUTPUT, b"x"),
        encode_frame(FrameKind.SIGNAL, b"SEGV"),
        encode_frame(FrameKind.RESIZE, b"x"),
        encode_start(StartCommand()),
    ],
)
async def test_a_client_that_breaks_the_rules_is_hung_up_on(bad: bytes) -> None:
    """The command gets SIGHUP; the agent continues."""
    async with session("sh") as client:
        await eventually_async(lambda: client.runtime.started)
        client.send(bad)
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
        assert client.command.done == ["hung up"]


async def test_a_client_that_goes_is_a_hang_up() -> None:
    """Also while output waits for it."""
    async with session("yes") as client:
        for _ in range(50):
            client.command.output.put_nowait((1, bytes(65536)))
        await asyncio.sleep(0.1)
        assert client.command.delivered < 50 * 65536 / 2, "a reader that stalls holds its command"
        client.writer.transport.abort()
        await eventually_async(lambda: client.command.done)
        assert client.command.done == ["hung up"]


async def test_silence_ends_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that sends no keepalive is taken for lost."""
    monkeypatch.setattr(terminal, "SILENCE_S", 0.3)
    monkeypatch.setattr(terminal, "KEEPALIVE_S", 0.05)
    async with session("sh") as client:
        for _ in range(8):
            assert (await client.next()).kind is FrameKind.KEEPALIVE
            client.send(encode_frame(FrameKind.KEEPALIVE))
        assert client.command.done == []
        async with asyncio.timeout(5):
            await client.reader.read()
        assert client.command.done == ["hung up"]


async def test_a_fault_of_the_runtime_does_not_end_the_agent() -> None:
    """The session ends, and raises nothing."""
    async with session("broken") as client:
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""


async def test_a_client_that_never_names_a_command_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold one of the places of the node."""
    monkeypatch.setattr(terminal, "START_S", 0.1)
    async with session(first=b"\x01") as client:
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
