"""Port of a command that somebody runs inside a run: a terminal, or a program whose stdin, stdout and stderr stay apart.

Adapters: `process.entered_process.EnteredProcess` and `docker.entered_container.EnteredContainer`; one contract suite. Start at `Entered.carry`.
"""

import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from fairlead_schemas.wire.terminal import CommandExit, StartCommand

#: Takes (1 for stdout or 2 for stderr, some bytes); as long as it waits, no more is read of the command's output.
type Deliver = Callable[[int, bytes], Awaitable[None]]

SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")
#: Output of a command without a terminal is still taken, and dropped, for so long behind its SIGHUP.
HANG_UP_S = 5.0
#: Read at a time.
PIECE_BYTES = 64 * 1024
#: Exit codes of a shell for a program that it cannot find, or cannot run.
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class CannotEnter(Exception):
    """The command cannot be started inside the run; the message says why. `code`: the exit code that a shell would have."""

    def __init__(self, message: str, code: int = NOT_EXECUTABLE) -> None:
        super().__init__(message)
        self.code = code


class Entered(Protocol):
    """Command that has been started inside a run."""

    async def carry(self, deliver: Deliver) -> CommandExit:
        """Deliver the command's output until it has ended; return how. Processes that it has left behind are not awaited."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its input; waits while it does not read. Lost where it reads no more."""
        ...

    def end_input(self) -> None:
        """Close its input; on a terminal, as Ctrl-D."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the foreground of its terminal, or to its group where it has none."""
        ...

    async def hang_up(self, within_s: float = HANG_UP_S) -> None:
        """Send SIGHUP, as a lost connection does, and close terminal and pipes when the command has ended, or after `within_s`.
        `carry` must not be at work any more.
        """
        ...


async def discard(stream: int, data: bytes) -> None:
    """Drop output that nobody takes."""


def words_of(command: StartCommand) -> Sequence[str]:
    """Return the command's words, a shell's where it has none."""
    return command.argv or SHELL


def exit_of(returned: int | None) -> CommandExit:
    """Return the end of a child by its return code: negative for a signal; None where it is not known."""
    if returned is None:
        return CommandExit(reason="it is not known how the command ended")
    if returned >= 0:
        return CommandExit(code=returned)
    try:
        return CommandExit(signal=signal.Signals(-returned).name)
    except ValueError:
        return CommandExit(signal=f"SIG{-returned}")
