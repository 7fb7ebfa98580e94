"""Where a service's inputs come from. Sources buffer; the shell takes what is there when it is ready."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fairlead_bus.core import Core, Input
from fairlead_bus.port import Bus, Stored, Tail
from fairlead_schemas import subjects
from fairlead_schemas.commands import MESSAGE_BYTES_MAX, MESSAGE_COMMANDS_MAX, decode_commands

#: Messages of commands that a source buffers before it stops reading.
BUFFERED_MESSAGES_MAX = 2000


class Source(Protocol):
    """One kind of input."""

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        """Start listening. `cursor`: what the log says was consumed ("CMD" sequence); `wake` is called on arrival."""
        ...

    def take(self, now_ns: int) -> list[Input]:
        """Inputs for one decision, bounded; they are gone from the source."""
        ...

    def wake_at(self) -> int | None:
        """When `take` would have something by time alone (Unix ns)."""
        ...

    async def close(self) -> None: ...


class CommandSource:
    """The commands of one service, from the CMD stream behind the log's own cursor."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._buffer: deque[Stored] = deque()
        self._decoded: Input | None = None  # the first of the buffer, where it did not fit last time
        self._tail: Tail | None = None
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        self._tail = await bus.tail(subjects.CMD, after=cursor, subject=subjects.cmd(self.service))
        self._task = asyncio.create_task(self._read(self._tail, wake), name=f"commands-{self.service}")

    async def _read(self, tail: Tail, wake: Callable[[], None]) -> None:
        while True:
            self._buffer.extend(await tail.next())
            wake()
            if len(self._buffer) >= BUFFERED_MESSAGES_MAX:
                self._room.clear()
                await self._room.wait()

    def take(self, now_ns: int) -> list[Input]:
        """Whole messages, as many as are sure to fit one commit (always at least one, if any is there)."""
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
        return 0 if self._buffer else None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._tail is not None:
            await self._tail.close()
