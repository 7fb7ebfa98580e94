"""A small core for the shell's tests: it answers each command with one rejection and remembers the ids."""

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_schemas.wire.commands import CancelJob, encode_commands
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import CommandRejected


class CountingCore:
    """State: the ids of all commands, in order."""

    schema: ClassVar[str] = "ids"

    def __init__(self) -> None:
        self.ids: list[str] = []

    def evolve(self, seq: int, commit: Commit) -> None:
        self.ids.extend(event.command for event in commit.events if isinstance(event, CommandRejected))

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        if not inputs:
            return NOTHING
        ids = [command.id for item in inputs for command in item.body]
        events = [CommandRejected(cause=f"cmd:{i}", command=i, code="not_found", message="counted") for i in ids]
        return Decision(list(events), {"CMD": inputs[-1].position})

    def split(self, item: Input) -> list[Input]:
        return []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        return NOTHING

    def wake_at(self) -> int | None:
        return None

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.ids)

    @classmethod
    def restore(cls, data: bytes) -> Self:
        core = cls()
        core.ids = msgspec.json.decode(data, type=list[str])
        return core


def command(number: int) -> bytes:
    """One message with one command."""
    return encode_commands([CancelJob(id=f"c{number}", job="1")])
