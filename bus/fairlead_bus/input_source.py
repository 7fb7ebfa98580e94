"""Sources of a service's inputs. A source buffers its inputs; the shell takes the buffered ones when it is ready.

Inputs that a core cannot decide upon: found one by one and recorded as rejected, so that none stops a service.

If `decide` raises, that is a bug. If it raises again after every restart, for as long as the input is in its stream,
that would be an outage. Pure: the shell supplies the trial. Start at `without_poison`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from fairlead_bus.command_loss import Inspector
from fairlead_bus.core import Core, Decision, Input
from fairlead_bus.port import Bus, CommandsLost, LogDamaged, OutcomeUnknown, Stored, Tail, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import (
    MESSAGE_BYTES_MAX,
    MESSAGE_COMMANDS_MAX,
    Undecodable,
    decode_commands,
    digest_of,
    encode_commands,
)

#: Messages of commands that a source buffers before it stops reading.
BUFFERED_MESSAGES_MAX = 2000
#: Pause before a bus that did not answer, or a stream that has lost commands, is looked at again.
AGAIN_S = 1.0

log = structlog.get_logger()


class InputSource(Protocol):
    """Source of one kind of input. `is_urgent`: somebody waits for the decision on it, so that it is not kept back for more input."""

    is_urgent: bool

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        """Start listening. `cursor`: what the log says was consumed ("CMD" sequence); `wake` is called on arrival."""
        ...

    def take(self, now_ns: int) -> list[Input]:
        """Inputs for one decision, bounded; they are gone from the source. Raises what reading them has failed with,
        which ends the service."""
        ...

    def wake_at(self) -> int | None:
        """Return the time (Unix ns) at which `take` would have input by time alone; None without one."""
        ...

    async def close(self) -> None: ...


class CommandSource:
    """Source of the commands of one service, from the CMD stream behind the log's own cursor.

    The stream is compared with the log before anything is read, and again after every reconnect. Where commands are lost
    the service ends (CommandsLost). `waits`: the service continues without commands instead, until a person has accepted
    the loss. That is for a service with other duties: agents end all runs once the placer is silent for a minute.
    """

    is_urgent = True

    def __init__(self, service: str, *, waits: bool = False) -> None:
        self.service = service
        self._waits = waits
        self._cursor = 0
        self._failure: Exception | None = None
        self._reconnected = asyncio.Event()
        self._buffer: deque[Stored] = deque()
        self._decoded: Input | None = None  # the first of the buffer, where it did not fit last time
        self._tail: Tail | None = None
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        self._cursor = cursor
        bus.on_reconnect(self._reconnected.set)
        self._task = asyncio.create_task(self._follow(bus, wake), name=f"commands-{self.service}")

    async def _follow(self, bus: Bus, wake: Callable[[], None]) -> None:
        """Read commands without end; a failure is kept for `take`."""
        inspector = Inspector(bus)
        try:
            while True:
                self._reconnected.clear()
                await self._until_whole(inspector)
                self._tail = await bus.tail(subjects.CMD, after=self._cursor, subject=subjects.cmd(self.service))
                await self._read_until_reconnect(self._tail, wake)
                await self._tail.close()
        except Exception as error:  # noqa: BLE001 -- handed to `take`, which raises it
            self._failure = error
            wake()

    async def _until_whole(self, inspector: Inspector) -> None:
        """Return once no command is lost. Raises CommandsLost, unless this source waits."""
        again, is_logged = True, False
        while True:
            try:
                await inspector.require(again=again)
                if is_logged:
                    log.info("commands are read again", service=self.service)
                return
            except CommandsLost as error:
                if not self._waits:
                    raise
                if not is_logged:
                    log.critical("commands lost, none are read", service=self.service, reason=str(error))
                again, is_logged = False, True
            except (Unavailable, OutcomeUnknown):
                pass
            await asyncio.sleep(AGAIN_S)

    async def _read_until_reconnect(self, tail: Tail, wake: Callable[[], None]) -> None:
        reading = asyncio.ensure_future(self._read(tail, wake))
        reconnected = asyncio.ensure_future(self._reconnected.wait())
        try:
            await asyncio.wait((reading, reconnected), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not reconnected.done():
                await reading
        except LogDamaged:
            # The stream went back: the next look says what is lost. A pause, lest the two disagree in a tight loop.
            await asyncio.sleep(AGAIN_S)
        finally:
            reconnected.cancel()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, LogDamaged):
                await reading

    async def _read(self, tail: Tail, wake: Callable[[], None]) -> None:
        while True:
            found = await tail.next()
            self._buffer.extend(found)
            self._cursor = found[-1].sequence
            wake()
            if len(self._buffer) >= BUFFERED_MESSAGES_MAX:
                self._room.clear()
                await self._room.wait()

    def take(self, now_ns: int) -> list[Input]:
        """Whole messages, as many as are sure to fit one commit (always at least one, if any is there)."""
        if self._failure is not None:
            raise self._failure
        inputs: list[Input] = []
        commands = size = 0
        while self._buffer:
            size += len(self._buffer[0].payload)
            if inputs and size > MESSAGE_BYTES_MAX:
                break
            first = self._first()
            commands += len(first.body)
            if inputs and commands > MESSAGE_COMMANDS_MAX:
                break
            inputs.append(first)
            self._buffer.popleft()
            self._decoded = None
        if len(self._buffer) < BUFFERED_MESSAGES_MAX:
            self._room.set()
        return inputs

    def _first(self) -> Input:
        if self._decoded is None:
            stored = self._buffer[0]
            self._decoded = Input("CMD", stored.sequence, decode_commands(self.service, stored.payload))
        return self._decoded

    def wake_at(self) -> int | None:
        return 0 if self._buffer or self._failure is not None else None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._tail is not None:
            await self._tail.close()


#: Characters kept of what was raised.
ERROR_CHARS_MAX = 200

#: Decides upon inputs without committing anything; raises what is wrong with them.
type Trial[T] = Callable[[list[Input]], T]


def error_text(error: Exception) -> str:
    """Return a description of an error in one bounded line."""
    return f"cannot be decided: {type(error).__name__}: {error}"[:ERROR_CHARS_MAX]


def without_poison[T](item: Input, error: Exception, attempt: Trial[T]) -> T:
    """Return the trial of a message of commands after replacing the commands that make it fail. Raises where even that fails.

    Each command is tried alone; its neighbours in the message were acknowledged and keep their meaning. Where all commands
    pass alone, the culprit is unknown, and all are rejected.
    """
    body = [command if _passes(item, command, attempt) else _replaced(command, error) for command in item.body]
    try:
        return attempt([item._replace(body=body)])
    except Exception:  # noqa: BLE001 -- whatever a core raises; the second trial below is the last
        return attempt([item._replace(body=[_replaced(command, error) for command in item.body])])


def reject_input(core: Core, item: Input, error: Exception, now_ns: int) -> Decision:
    """Return the decision to commit for an undecidable input of the core's own kind."""
    return core.reject(item, error_text(error), now_ns)


def is_command_message(item: Input) -> bool:
    """True for a message of commands."""
    return item.source == subjects.CMD


def _passes(item: Input, command: Any, attempt: Trial[Any]) -> bool:
    try:
        attempt([item._replace(body=[command])])
    except Exception:  # noqa: BLE001 -- the question is whether it raises
        return False
    return True


def _replaced(command: Any, error: Exception) -> Any:
    if isinstance(command, Undecodable):
        return command
    return Undecodable(digest=digest_of(encode_commands([command])), message=error_text(error), id=command.id)
