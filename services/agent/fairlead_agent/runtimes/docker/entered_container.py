"""Commands that people run inside a container, through the engine's exec.

The engine answers with a stream in both directions: of a terminal as it is, else of stdout and stderr in pieces with a head of eight
bytes (moby's stdcopy). Signals go past the engine, which has no call for them. Start at `EnteredContainer.start`.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from typing import Any, Self

from fairlead_agent.linux.processes import container_of
from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, EngineLink, EngineRefused, upgrade, why
from fairlead_agent.runtimes.entered import HANG_UP_S, PIECE_BYTES, CannotEnter, Deliver, words_of
from fairlead_schemas.wire.terminal import CommandExit, StartCommand

_HEAD_BYTES = 8
_CTRL_D = b"\x04"
#: The engine closes the stream a little before it knows how the command ended.
END_LOOKS, END_LOOK_S = 50, 0.05
#: A command may have ended while something that it left behind holds its output open; the engine does not say so by itself.
RUNNING_LOOK_S = 1.0


class EnteredContainer:
    """Command in a container."""

    def __init__(
        self,
        engine: EngineLink,
        container: str,
        exec_id: str,
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        tty: bool,
    ) -> None:
        self._engine, self._container, self._id, self._tty = engine, container, exec_id, tty
        self._reader, self._writer = stream
        self._has_input = True

    @classmethod
    async def start(cls, engine: EngineLink, container: str, command: StartCommand) -> Self:
        """Start the command. Raises CannotEnter."""
        environment = {"TERM": command.term or "dumb"} if command.tty else {}
        reads = command.input or command.tty
        try:
            created: dict[str, Any] = await engine.call(
                lambda api: api.exec_create(
                    container, list(words_of(command)), stdin=reads, tty=command.tty, environment=environment
                )
            )
            body = json.dumps({"Detach": False, "Tty": command.tty}).encode()
            stream = await upgrade(engine.socket, f"/exec/{created['Id']}/start", body)
        except EngineRefused as error:
            raise CannotEnter(f"the command cannot be started: {error}") from error
        except ENGINE_ERRORS as error:
            raise CannotEnter(why(error)) from error
        entered = cls(engine, container, created["Id"], stream, tty=command.tty)
        await entered.resize(command.rows, command.columns)
        return entered

    async def carry(self, deliver: Deliver) -> CommandExit:
        """Deliver output until the command has ended."""
        try:
            await (self._carry_terminal(deliver) if self._tty else self._carry_pieces(deliver))
            end = await self._end()
        except (ConnectionError, asyncio.IncompleteReadError):
            end = CommandExit(reason="the Docker engine has closed the connection")
        self._writer.close()
        return end

    async def _carry_terminal(self, deliver: Deliver) -> None:
        while piece := await self._or_ended(lambda: self._reader.read(PIECE_BYTES)):
            await deliver(1, piece)

    async def _carry_pieces(self, deliver: Deliver) -> None:
        while head := await self._or_ended(lambda: self._reader.readexactly(_HEAD_BYTES)):
            left = int.from_bytes(head[4:])
            while left:
                piece = await self._reader.read(min(left, PIECE_BYTES))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                await deliver(2 if head[0] == 2 else 1, piece)

    async def _or_ended(self, read: Callable[[], Any]) -> bytes:
        """Read; return b"" at the stream's end, or where the command has ended and nothing more comes."""
        reading = asyncio.ensure_future(read())
        try:
            while not (await asyncio.wait({reading}, timeout=RUNNING_LOOK_S))[0]:
                if not (await self._inspect()).get("Running", True):
                    done, _ = await asyncio.wait({reading}, timeout=RUNNING_LOOK_S)
                    if not done:
                        return b""
            return await reading
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return b""
        finally:
            reading.cancel()

    async def _end(self) -> CommandExit:
        for _ in range(END_LOOKS):
            found = await self._inspect()
            if found.get("ExitCode") is not None and not found.get("Running", True):
                return CommandExit(code=int(found["ExitCode"]))
            await asyncio.sleep(END_LOOK_S)
        return CommandExit(reason="it is not known how the command ended")

    async def _inspect(self) -> dict[str, Any]:
        with contextlib.suppress(*ENGINE_ERRORS):
            return await self._engine.call(lambda api: api.exec_inspect(self._id))
        return {}

    async def write(self, data: bytes) -> None:
        """Write to the command's input."""
        if self._has_input:
            with contextlib.suppress(ConnectionError):
                self._writer.write(data)
                await self._writer.drain()

    def end_input(self) -> None:
        """Close its input; on a terminal, Ctrl-D."""
        if self._has_input:
            with contextlib.suppress(OSError):
                if self._tty:
                    self._writer.write(_CTRL_D)
                else:
                    self._has_input = False
                    self._writer.write_eof()

    async def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size. One that is not there yet keeps its own."""
        if self._tty and rows and columns:
            with contextlib.suppress(*ENGINE_ERRORS):
                await self._engine.call(lambda api: api.exec_resize(self._id, height=rows, width=columns))

    async def signal(self, number: int) -> None:
        """Send a signal to the foreground group of the terminal, or to the command's own group."""
        _signal(await self._pid(), self._container, number, tty=self._tty)

    async def _pid(self) -> int:
        """Return the command's number on this machine; 0 where it has ended. The engine learns it a little after the start."""
        for _ in range(END_LOOKS):
            found = await self._inspect()
            if found.get("Running") and found.get("Pid"):
                return int(found["Pid"])
            if found.get("ExitCode") is not None:
                break
            await asyncio.sleep(END_LOOK_S)
        return 0

    async def hang_up(self, within_s: float = HANG_UP_S) -> None:
        """Send SIGHUP to the command; close the stream when it has ended, or has had time to."""
        try:
            await self.signal(signal.SIGHUP)
            await self.signal(signal.SIGCONT)
            async with asyncio.timeout(within_s):
                await self._drop()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._writer.close()

    async def _drop(self) -> None:
        while await self._or_ended(lambda: self._reader.read(PIECE_BYTES)):
            pass


async def hang_up_left(engine: EngineLink, container: str) -> None:
    """Send SIGHUP to the terminals that an earlier agent process has left in a container: the engine holds them open. Only people's
    commands have a terminal; those without one read the end of their input when their agent ends.
    """
    with contextlib.suppress(*ENGINE_ERRORS):
        for each in (await engine.call(lambda api: api.inspect_container(container))).get("ExecIDs") or ():
            found: dict[str, Any] = await engine.call(lambda api, each=each: api.exec_inspect(each))
            if found.get("Running") and found.get("ProcessConfig", {}).get("tty"):
                for number in (signal.SIGHUP, signal.SIGCONT):
                    _signal(int(found.get("Pid") or 0), container, number, tty=True)


def _signal(pid: int, container: str, number: int, *, tty: bool) -> None:
    if pid <= 0 or container_of(pid) != container:
        return
    group = _foreground(pid) if tty else pid
    for each in {group, pid} if number in (signal.SIGHUP, signal.SIGCONT) else {group}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(each, number)


def _foreground(pid: int) -> int:
    """Return the foreground group of a process's terminal; its own number where it has none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 -- as in linux/processes.py
            group = int(file.read().rpartition(b")")[2].split()[5])
    except OSError:
        return pid
    return group if group > 0 else pid
