"""Client's end of a command inside a run: this terminal, or stdin, stdout and stderr apart, over a tunnel.

Output is read from the connection when what came before has been written, so a pager that waits holds the command. Start at
`CommandLink.run`.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import termios
import threading
import tty
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from fairlead.errors import Unreachable
from fairlead.tunnel_link import CONNECT_S, PIECE_BYTES, tunnel_head
from fairlead_schemas.http.tunnels import NewTunnel
from fairlead_schemas.wire.terminal import (
    KEEPALIVE_S,
    NODE_KINDS,
    SILENCE_S,
    BadTerminalFrame,
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

#: Typed at the beginning of a line it ends the connection, as in ssh: a command that hangs reads no Ctrl-C.
LEAVE = b"~."
STDIN, STDOUT, STDERR = 0, 1, 2
#: Signals that go to the command instead of ending this program; a second one of a kind ends it.
PASSED_ON = (signal.SIGINT, signal.SIGQUIT)


class ConnectionLost(Exception):
    """The connection ended before the command did; the message says how."""


class NobodyReads(Exception):
    """Nothing takes this program's output any more."""


class LeaveKeys:
    """Watch over typed bytes for `~.` at the beginning of a line."""

    def __init__(self) -> None:
        self._is_line_start, self._held = True, b""

    def typed(self, data: bytes) -> bytes | None:
        """Return the bytes to send; None where the keys were typed."""
        out = b""
        for value in data:
            byte = bytes([value])
            if self._held:
                if byte == LEAVE[1:]:
                    return None
                out += self._held if byte != LEAVE[:1] else b""  # ~~ is one ~
                self._held = b""
            elif self._is_line_start and byte == LEAVE[:1]:
                self._held = byte
                self._is_line_start = False
                continue
            out += byte
            self._is_line_start = byte in b"\r\n"
        return out


class Streams(NamedTuple):
    """Files of this end."""

    stdin: int = STDIN
    stdout: int = STDOUT
    stderr: int = STDERR


class CommandLink:
    """One command. `run` once."""

    def __init__(self, command: StartCommand, streams: Streams = Streams()) -> None:  # noqa: B008 -- immutable
        self._command, self._streams = command, streams
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._left: asyncio.Future[None]
        self._passed: set[int] = set()

    async def run(self, tunnel: NewTunnel) -> CommandExit | None:
        """Run the command over a tunnel; return how it ended, None where the person left it. Raises Unreachable, ConnectionLost,
        NobodyReads.
        """
        self._reader, self._writer = await connect(tunnel)
        self._left = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(encode_start(self._command))
            reading = asyncio.create_task(self._read())
            tasks = {reading, asyncio.create_task(self._keep_alive())}
            with self._signals():
                if self._command.input:
                    threading.Thread(target=self._type, args=(asyncio.get_running_loop(),), daemon=True).start()
                done, _ = await asyncio.wait({*tasks, self._left}, return_when=asyncio.FIRST_COMPLETED)
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._left in done:
                return None
            if reading in done:
                return reading.result()
            raise ConnectionLost("it takes nothing any more")
        except (OSError, ssl.SSLError) as error:
            raise ConnectionLost(str(error)) from error
        finally:
            self._writer.transport.abort()

    async def _read(self) -> CommandExit:
        """Write output as it comes; return how the command ended. Raises ConnectionLost, NobodyReads."""
        decoder = FrameDecoder(NODE_KINDS)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    data = await self._reader.read(PIECE_BYTES)
            except TimeoutError:
                raise ConnectionLost(f"nothing has come for {SILENCE_S:g} s") from None
            except (OSError, ssl.SSLError) as error:
                raise ConnectionLost(str(error)) from error
            if not data:
                raise ConnectionLost("it was closed")
            try:
                for frame in decoder.feed(data):
                    if frame.kind is FrameKind.EXIT:
                        return decode_exit(frame.payload)
                    await self._show(frame)
            except BadTerminalFrame as error:
                raise ConnectionLost(str(error)) from error

    async def _show(self, frame: TerminalFrame) -> None:
        if frame.kind is not FrameKind.KEEPALIVE:
            stream = self._streams.stdout if frame.kind is FrameKind.OUTPUT else self._streams.stderr
            await asyncio.to_thread(_write, stream, frame.payload)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            await self._send(encode_frame(FrameKind.KEEPALIVE))

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    # ------------------------------------------------------------------ what is typed

    def _type(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send stdin, in a thread, as fast as the command takes it. A thread that waits for input ends with the program."""
        keys = LeaveKeys() if self._command.tty else None
        with contextlib.suppress(RuntimeError, OSError, asyncio.CancelledError):
            while data := os.read(self._streams.stdin, PIECE_BYTES):
                sent = keys.typed(data) if keys is not None else data
                if sent is None:
                    loop.call_soon_threadsafe(self._leave)
                    return
                if sent:
                    self._send_from_thread(loop, encode_frame(FrameKind.INPUT, sent))
            self._send_from_thread(loop, encode_frame(FrameKind.INPUT))

    def _send_from_thread(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        sending = self._send(data)
        try:
            asyncio.run_coroutine_threadsafe(sending, loop).result()
        except RuntimeError:
            sending.close()
            raise

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    # ------------------------------------------------------------------ signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Pass on the size of the terminal; without one, what would end this program."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGTERM, signal.SIGHUP]
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        loop.add_signal_handler(signal.SIGHUP, self._leave)
        if self._command.tty:
            loop.add_signal_handler(signal.SIGWINCH, self._resized)
            numbers.append(signal.SIGWINCH)
        else:
            for number in PASSED_ON:
                loop.add_signal_handler(number, self._pass_on, number)
                numbers.append(number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _resized(self) -> None:
        rows, columns = size_of(self._streams.stdout)
        self._writer.write(encode_resize(rows, columns))

    def _pass_on(self, number: signal.Signals) -> None:
        if number in self._passed:
            self._leave()
        self._passed.add(number)
        self._writer.write(encode_frame(FrameKind.SIGNAL, number.name.removeprefix("SIG").encode()))


async def connect(tunnel: NewTunnel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection whose other end is the node's. Raises Unreachable."""
    parts = urlsplit(tunnel.address)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls, limit=PIECE_BYTES)
            writer.write(tunnel_head(tunnel))
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if writer is not None:
            writer.transport.abort()
        raise Unreachable(f"the app proxy at {tunnel.address} cannot be reached: {error or 'no answer'}") from error
    status = head.partition(b"\r\n")[0]
    if b" 101 " not in status:
        writer.transport.abort()
        raise Unreachable(f"the app proxy refused the connection: {status.decode('latin-1')}")
    return reader, writer


def start_command(argv: list[str], *, tty: bool, input: bool, environment: Mapping[str, str]) -> StartCommand:
    """Return a command with the size and the kind of this terminal."""
    rows, columns = size_of(STDOUT) if tty else (24, 80)
    term = environment.get("TERM", "")
    known = term if term.replace("-", "").replace(".", "").replace("+", "").replace("_", "").isalnum() else ""
    return StartCommand(argv=argv, tty=tty, input=input, rows=rows, columns=columns, term=known[:64])


def size_of(fd: int) -> tuple[int, int]:
    """Return (rows, columns) of a terminal."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return 24, 80
    return rows, columns


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Let every key through to the command; as it was afterwards."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is not dropped
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            raise NobodyReads(str(error)) from error
