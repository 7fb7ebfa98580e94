"""One command that a person runs inside a run, over a tunnel: frames on one side, the command's streams on the other.

Output is read from the command when the tunnel has taken what came before, so a reader that stalls holds its command and nothing
else. Start at `TerminalSession.run`.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.entered import PIECE_BYTES, CannotEnter, Entered
from fairlead_agent.runtimes.port import Runtime
from fairlead_schemas.wire.terminal import (
    CLIENT_KINDS,
    KEEPALIVE_S,
    SILENCE_S,
    BadTerminalFrame,
    CommandExit,
    FrameDecoder,
    FrameKind,
    TerminalFrame,
    decode_resize,
    decode_signal,
    decode_start,
    encode_exit,
    encode_frame,
)

#: From the tunnel to the command's words; and from the command's end until the client has read it and closes.
START_S, LEAVE_S = 10.0, 10.0
RUN_ENDED = "the run has ended"

_log = structlog.get_logger()


class TerminalSession:
    """Session of one command. `stream`: our end of a pair of sockets, whose other end is the tunnel's."""

    def __init__(self, runtime: Runtime, key: RunKey, stream: socket.socket) -> None:
        self._runtime, self._key, self._stream = runtime, key, stream
        self._decoder = FrameDecoder(CLIENT_KINDS)
        self._frames: list[TerminalFrame] = []
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Run the command that the client names to its end, or until the client has gone. Raises nothing but CancelledError."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._stream, limit=PIECE_BYTES)
        try:
            end = await self._whole()
            await self._send(encode_exit(end))
            async with asyncio.timeout(LEAVE_S):  # the client closes first, so that nothing is cut on the way
                while await self._reader.read(PIECE_BYTES):
                    pass
        except (OSError, TimeoutError, BadTerminalFrame, asyncio.IncompleteReadError) as error:
            _log.info("terminal ended", run=self._key.name, reason=str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 -- one session must not end its agent
            _log.error("a terminal has failed", run=self._key.name, exc_info=error)
        finally:
            self._writer.transport.abort()

    async def _whole(self) -> CommandExit:
        try:
            async with asyncio.timeout(START_S):
                command = decode_start(await self._next())
            entered = await self._runtime.enter(self._key, command)
        except CannotEnter as refused:
            return CommandExit(code=refused.code, reason=str(refused))
        except BadTerminalFrame as error:
            return CommandExit(reason=str(error))
        try:
            end = await self._talk(entered)
        except BaseException:
            await self._hang_up(entered)
            raise
        return with_reason(self._runtime, self._key, end)

    async def _hang_up(self, entered: Entered) -> None:
        """End the command of a client that has gone; at once where the agent itself ends."""
        task = asyncio.current_task()
        is_stopping = task is not None and task.cancelling() > 0
        await (entered.hang_up(0.0) if is_stopping else entered.hang_up())

    async def _talk(self, entered: Entered) -> CommandExit:
        """Carry both ways until the command has ended. Raises ConnectionError and BadTerminalFrame where the client ends first."""
        carrying = asyncio.create_task(entered.carry(self._deliver))
        others = [asyncio.create_task(self._obey(entered)), asyncio.create_task(self._keep_alive())]
        try:
            done, _ = await asyncio.wait({carrying, *others}, return_when=asyncio.FIRST_COMPLETED)
            if carrying not in done:
                for each in done:
                    each.result()
            return await carrying
        finally:
            for each in (carrying, *others):
                each.cancel()
            await asyncio.gather(carrying, *others, return_exceptions=True)

    async def _deliver(self, stream: int, data: bytes) -> None:
        await self._send(encode_frame(FrameKind.OUTPUT if stream == 1 else FrameKind.ERROR_OUTPUT, data))

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _keep_alive(self) -> None:
        """Say something now and then, which also finds out that the other side has gone."""
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            await self._send(encode_frame(FrameKind.KEEPALIVE))

    async def _obey(self, entered: Entered) -> None:
        """Do what the client asks for. Raises ConnectionError when it has gone, or has been silent for long."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    frame = await self._next()
            except TimeoutError:
                raise ConnectionError(f"the client has been silent for {SILENCE_S:g} s") from None
            match frame.kind:
                case FrameKind.INPUT if frame.payload:
                    await entered.write(frame.payload)
                case FrameKind.INPUT:
                    entered.end_input()
                case FrameKind.RESIZE:
                    await entered.resize(*decode_resize(frame.payload))
                case FrameKind.SIGNAL:
                    await entered.signal(signal.Signals[decode_signal(frame.payload)])
                case FrameKind.KEEPALIVE:
                    pass
                case _:
                    raise BadTerminalFrame(f"{frame.kind.name} comes once")

    async def _next(self) -> TerminalFrame:
        while not self._frames:
            data = await self._reader.read(PIECE_BYTES)
            if not data:
                raise ConnectionError("the client has gone")
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)


def with_reason(runtime: Runtime, key: RunKey, end: CommandExit) -> CommandExit:
    """Return the end of a command, with the end of its run as the reason where that has ended, too."""
    return end if key in runtime.programs() else CommandExit(code=end.code, signal=end.signal, reason=RUN_ENDED)


def open_terminal(runtime: Runtime, key: RunKey, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> socket.socket:
    """Start a session; return the end of it that a tunnel carries."""
    inside, mine = socket.socketpair()
    for each in (inside, mine):
        each.setblocking(False)
    try:
        spawn(TerminalSession(runtime, key, mine).run())
    except BaseException:
        with contextlib.suppress(OSError):
            inside.close()
            mine.close()
        raise
    return inside
