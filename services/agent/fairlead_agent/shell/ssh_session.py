"""One channel of an SSH connection into a run: a shell, a command, sftp, or a port of the run. Imported where asyncssh is installed.

A channel is a command inside the run, as a terminal's is (`terminal.py`). Start at `ChannelSession`.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import asyncssh
import structlog
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED, OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE
from asyncssh.stream import SSHTCPStreamSession

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.run_ports import NoListener
from fairlead_agent.runtimes.entered import PIECE_BYTES, CannotEnter, Entered
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.shell.run_connections import NotRunning, RunConnections
from fairlead_agent.shell.terminal import with_reason
from fairlead_schemas.wire.terminal import SIGNALS, CommandExit, StartCommand

LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Input that a command has not taken yet; more is not read from the channel.
UNREAD_BYTES_MAX = 256 * 1024
#: Sizes and signals that wait behind input; more are dropped.
ASKED_MAX = 1000
#: Commands and forwarded ports of one connection.
CHANNELS_MAX = 50
#: In a process run files are the node's, so its own server can serve them, as the run's user.
SFTP_PROGRAM = str(Path(__file__).with_name("sftp_end.py"))
#: A container has its own files; the server of its image serves them.
SFTP_IN_IMAGE = (
    "for each in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/libexec/sftp-server "
    '/usr/lib/ssh/sftp-server /usr/lib/misc/sftp-server; do [ -x "$each" ] && exec "$each"; done; '
    'echo "the image has no sftp-server; use: fairlead exec JOB -- tar c PATH | tar x" >&2; exit 127'
)

_log = structlog.get_logger()


def server_of(runtime: Runtime, connections: RunConnections, key: RunKey) -> Callable[[], asyncssh.SSHServer]:
    """Return the factory of servers for connections into one run."""

    channels = Channels()

    class RunServer(asyncssh.SSHServer):
        """Server that leads into one run and nowhere else."""

        def begin_auth(self, username: str) -> bool:
            return True

        def session_requested(self) -> "ChannelSession":
            channels.refuse_more()
            return ChannelSession(runtime, key, channels)

        async def connection_requested(  # type: ignore[override] -- the library awaits it
            self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
        ) -> SSHTCPStreamSession[bytes]:
            if dest_host not in LOOPBACK:
                raise asyncssh.ChannelOpenError(
                    OPEN_ADMINISTRATIVELY_PROHIBITED, "only ports of the run itself: name localhost"
                )
            channels.refuse_more()
            try:
                inside = await connections.to_port(key, dest_port)
            except (NotRunning, NoListener, OSError) as error:
                raise asyncssh.ChannelOpenError(OPEN_CONNECT_FAILED, str(error)) from error
            return SSHTCPStreamSession[bytes](lambda reader, writer: _carry(inside, reader, writer, channels))

    return RunServer


class Channels:
    """Count of the channels of one connection that are at work."""

    def __init__(self) -> None:
        self.open = 0

    def refuse_more(self) -> None:
        """Raise ChannelOpenError where there are as many as there may be."""
        if self.open >= CHANNELS_MAX:
            raise asyncssh.ChannelOpenError(OPEN_RESOURCE_SHORTAGE, f"a connection has {CHANNELS_MAX} channels at most")


class ChannelSession(asyncssh.SSHServerSession[bytes]):
    """Command of one channel."""

    def __init__(self, runtime: Runtime, key: RunKey, channels: Channels) -> None:
        self._runtime, self._key, self._channels = runtime, key, channels
        self._channel: asyncssh.SSHServerChannel[bytes]
        self._argv: list[str] = []
        self._terminal: tuple[str, int, int] | None = None
        #: What the client has sent and the command has not been given yet, in order; None: its input has ended.
        self._asked: asyncio.Queue[bytes | tuple[int, int] | int | None] = asyncio.Queue()
        self._unread = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._running: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ what the client asks for

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object
    ) -> bool:  # the command's own terminal has the usual modes
        self._terminal = (term_type[:64], term_size[1], term_size[0])
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._argv = ["/bin/sh", "-c", command]
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        if subsystem != "sftp":
            return False
        is_process = self._runtime.name == "process"
        self._argv = [sys.executable, "-I", SFTP_PROGRAM] if is_process else ["/bin/sh", "-c", SFTP_IN_IMAGE]
        return True

    def session_started(self) -> None:
        self._running = asyncio.ensure_future(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._unread += len(data)
        self._asked.put_nowait(data)
        if self._unread > UNREAD_BYTES_MAX:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._asked.put_nowait(None)
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._asked.qsize() < ASKED_MAX:
            self._asked.put_nowait((min(height, 65535), min(width, 65535)))

    def signal_received(self, signal: str) -> None:
        if signal in SIGNALS and self._asked.qsize() < ASKED_MAX:
            self._asked.put_nowait(_number(signal))

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._may_write.set()
        if self._running is not None:
            self._running.cancel()

    # ------------------------------------------------------------------ the command

    async def _run(self) -> None:
        self._channels.open += 1
        try:
            await self._whole()
        finally:
            self._channels.open -= 1

    async def _whole(self) -> None:
        term, rows, columns = self._terminal or ("", 24, 80)
        tty = self._terminal is not None
        command = StartCommand(argv=self._argv, tty=tty, input=True, rows=rows, columns=columns, term=term)
        try:
            entered = await self._runtime.enter(self._key, command)
        except CannotEnter as refused:
            self._channel.write_stderr(f"{refused}\n".encode())
            self._channel.exit(refused.code)
            return
        except Exception as error:  # noqa: BLE001 -- one channel must not end its agent
            _log.error("a channel has failed", run=self._key.name, exc_info=error)
            self._channel.abort()
            return
        obeying = asyncio.ensure_future(self._obey(entered))
        try:
            self._leave(with_reason(self._runtime, self._key, await entered.carry(self._deliver)))
        except asyncio.CancelledError:
            await _cancelled(obeying)
            await entered.hang_up()
        finally:
            await _cancelled(obeying)

    async def _deliver(self, stream: int, data: bytes) -> None:
        await self._may_write.wait()
        if self._channel.is_closing():
            raise asyncio.CancelledError
        if stream == 1:
            self._channel.write(data)
        else:
            self._channel.write_stderr(data)

    async def _obey(self, entered: Entered) -> None:
        while True:
            match await self._asked.get():
                case bytes(data):
                    await entered.write(data)
                    self._unread -= len(data)
                    if self._unread <= UNREAD_BYTES_MAX:
                        self._channel.resume_reading()
                case (rows, columns):
                    await entered.resize(rows, columns)
                case None:
                    entered.end_input()
                case number:
                    await entered.signal(number)

    def _leave(self, end: CommandExit) -> None:
        if end.reason:
            self._channel.write_stderr(f"{end.reason}\n".encode())
        if end.signal:
            self._channel.exit_with_signal(end.signal.removeprefix("SIG"))
        else:
            self._channel.exit(255 if end.code is None else end.code)


def _number(name: str) -> int:
    return signal.Signals[f"SIG{name}"]


async def _cancelled(task: "asyncio.Future[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _carry(
    inside: socket.socket,
    reader: "asyncssh.SSHReader[bytes]",
    writer: "asyncssh.SSHWriter[bytes]",
    channels: Channels,
) -> None:
    """Pass bytes both ways between a channel and a port of the run."""
    from_run, to_run = await asyncio.open_connection(sock=inside, limit=PIECE_BYTES)

    async def out() -> None:
        while data := await from_run.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def back() -> None:
        while data := await reader.read(PIECE_BYTES):
            to_run.write(data)
            await to_run.drain()
        to_run.write_eof()

    channels.open += 1
    try:
        await asyncio.gather(out(), back())
    except (OSError, asyncssh.Error) as error:
        _log.debug("a forwarded port ended", reason=str(error))
    finally:
        channels.open -= 1
        to_run.transport.abort()
        writer.close()
