"""Commands that people run inside a process run: started by `enter.py`, over a terminal or three pipes.

Nothing is held back here: output is read when it is delivered, and input is written when it is taken. Start at `EnteredProcess.start`.
"""

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Self

from fairlead_agent.runtimes.entered import HANG_UP_S, PIECE_BYTES, CannotEnter, Deliver, discard, exit_of, words_of
from fairlead_schemas.wire.terminal import CommandExit, StartCommand

PROGRAM = str(Path(__file__).with_name("enter.py"))
#: What an ended command has written to its terminal is there by then.
DRAIN_S = 0.1
#: Until the command has taken the place of `enter.py`.
START_S = 10.0
_CTRL_D = b"\x04"


class EnteredProcess:
    """Command in a session of its own, as a child of the agent."""

    def __init__(self, child: asyncio.subprocess.Process, stdin: int, outputs: dict[int, int], *, tty: bool) -> None:
        self._child, self._tty = child, tty
        #: -1 once it is closed. {1 or 2: file}; a terminal is both its input and its one output.
        self._stdin, self._outputs = stdin, outputs
        self._ended = asyncio.ensure_future(child.wait())

    @classmethod
    async def start(cls, proc: int, tag: str, command: StartCommand) -> Self:
        """Start the command. `proc`: the open directory /proc/PID of the run's program. Raises CannotEnter."""
        mine, theirs = _open_files(command)
        report, status = os.pipe()
        argv = [sys.executable, "-I", "-S", "-X", "utf8", PROGRAM, *map(str, (proc, status, os.getpid())), tag]
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                (command.term or "dumb") if command.tty else "",
                "--",
                *words_of(command),
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=(proc, status),
            )
        except (OSError, ValueError) as error:
            _close(report, status, *mine, *theirs)
            raise CannotEnter(f"the command cannot be started: {error}") from error
        _close(status, *theirs)
        stdin, *outputs = mine
        entered = cls(child, stdin, {1: stdin} if command.tty else dict(enumerate(outputs, 1)), tty=command.tty)
        try:
            await entered._refuse_what_failed(report)
        except BaseException:
            entered._close_files()
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            raise
        finally:
            _close(report)
        return entered

    async def _refuse_what_failed(self, report: int) -> None:
        os.set_blocking(report, False)
        try:
            async with asyncio.timeout(START_S):
                words = await _read(report)
        except TimeoutError:
            raise CannotEnter(f"the command has not started within {START_S:g} s") from None
        if words:
            code, _, text = words.decode(errors="replace").partition(" ")
            raise CannotEnter(text, int(code))

    async def carry(self, deliver: Deliver) -> CommandExit:
        """Deliver output until the command has ended and nothing of it is left."""
        carrying = {asyncio.create_task(self._carry(number, fd, deliver)) for number, fd in self._outputs.items()}
        try:
            await asyncio.gather(*carrying)
        finally:
            for each in carrying:
                each.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)
        end = exit_of(await asyncio.shield(self._ended))
        self._close_files()
        return end

    async def _carry(self, number: int, fd: int, deliver: Deliver) -> None:
        """Deliver one stream to its end, or until the command has ended and the stream has nothing more: a process in the background
        may hold it open.
        """
        while True:
            if not await self._is_readable(fd) or not (piece := _read_now(fd)):
                return
            await deliver(number, piece)

    async def _is_readable(self, fd: int) -> bool:
        if self._ended.done():
            return await _wait(fd, readable=True, within_s=DRAIN_S)
        waiting = asyncio.ensure_future(_wait(fd, readable=True))
        try:
            await asyncio.wait({waiting, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done() or await _wait(fd, readable=True, within_s=DRAIN_S)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def write(self, data: bytes) -> None:
        """Write to the command's input."""
        view = memoryview(data)
        while view and self._stdin >= 0:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await _wait(self._stdin, readable=False)
            except OSError:
                self.end_input()  # it reads no more
                return

    def end_input(self) -> None:
        """Close the pipe; on a terminal, Ctrl-D."""
        if self._tty:
            with contextlib.suppress(OSError):
                os.write(self._stdin, _CTRL_D)
        elif self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size; the kernel sends SIGWINCH."""
        if self._tty and self._stdin >= 0:
            _set_size(self._stdin, rows, columns)

    async def signal(self, number: int) -> None:
        """Send a signal to the foreground group of the terminal, or to the command's own group."""
        self._send(number)

    def _send(self, number: int) -> None:
        if self._ended.done():
            return  # the number may be another's
        group = self._child.pid
        with contextlib.suppress(OSError):
            if self._tty and self._stdin >= 0:
                group = os.tcgetpgrp(self._stdin) or group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)

    async def hang_up(self, within_s: float = HANG_UP_S) -> None:
        """Send SIGHUP to the command's group; close its terminal at once, and its pipes when it has had time to end: a shell that
        prints "Hangup" would end by SIGPIPE before it could do what it does at its end.
        """
        self._send(signal.SIGHUP)
        self._send(signal.SIGCONT)  # one that is stopped hears it now
        try:
            if not self._tty:
                self.end_input()
                async with asyncio.timeout(within_s):
                    await self.carry(discard)
        except TimeoutError:
            pass  # it ignores SIGHUP, as nohup does
        finally:
            self._close_files()

    def kill(self) -> None:
        """End the command's group at once: its run has ended."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def on_end(self, call: Callable[[], object]) -> None:
        """Call something once the command has ended."""
        self._ended.add_done_callback(lambda _: call())

    def _close_files(self) -> None:
        files = {self._stdin, *self._outputs.values()} - {-1}
        self._stdin = -1
        self._outputs.clear()
        _close(*files)


def _open_files(command: StartCommand) -> tuple[list[int], list[int]]:
    """Return (our files, the command's stdin, stdout and stderr). A terminal is one file of ours."""
    if command.tty:
        master, slave = os.openpty()
        _set_size(master, command.rows, command.columns)
        os.set_blocking(master, False)
        return [master], [slave, os.dup(slave), os.dup(slave)]
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
    mine, theirs = [to_stdin, from_stdout, from_stderr], [stdin, stdout, stderr]
    for fd in mine:
        os.set_blocking(fd, False)
    if not command.input:
        os.close(stdin)
        theirs[0] = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return mine, theirs


def _close(*fds: int) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _set_size(fd: int, rows: int, columns: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read_now(fd: int) -> bytes:
    """Return what is there; b"" at the end. A terminal that no process holds open any more ends with EIO."""
    try:
        return os.read(fd, PIECE_BYTES)
    except OSError:
        return b""


async def _read(fd: int) -> bytes:
    """Read one piece of a file that does not block."""
    await _wait(fd, readable=True)
    return _read_now(fd)


async def _wait(fd: int, *, readable: bool, within_s: float | None = None) -> bool:
    """Wait until a file can be read from, or written to; return False where it cannot be in time. A loop that is late may find the time over
    before it has looked at the file, so the file itself is asked then.
    """
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_reader, loop.remove_reader) if readable else (loop.add_writer, loop.remove_writer)
    is_there = asyncio.Event()
    add(fd, is_there.set)
    try:
        async with asyncio.timeout(within_s):
            await is_there.wait()
    except TimeoutError:
        look = select.poll()
        look.register(fd, select.POLLIN if readable else select.POLLOUT)
        return bool(look.poll(0))
    finally:
        remove(fd)
    return True
