"""Interface of a core, the pure part of a service: no asyncio, no clock, no randomness, no I/O, no logging.

The same core runs under the live shell (`service.py`), in the simulator and in replay.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import Event


class Input(NamedTuple):
    """Something for a core to decide upon."""

    #: Source of the input: "CMD" for commands. Each core defines its other names (the placer: `report`, `silent`,
    #: `heard`).
    source: str
    #: Position in its source (CMD: the stream sequence of the message); 0 for sources without positions.
    position: int
    #: CMD: list of commands and `Undecodable`, one message.
    body: Any


class Decision(NamedTuple):
    """Contents of one commit. Without events and cursors there is no commit."""

    events: list[Event]
    #: Inputs consumed by it: {"CMD": 812, "report.n7": 93}.
    cursors: dict[str, int]


NOTHING = Decision([], {})


class Core(Protocol):
    """State, folded from the log; decisions, read off the state."""

    #: Name of the shape of `snapshot` (`state_schema.schema_of`); a snapshot of another shape is not restored.
    schema: ClassVar[str]

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit (own or another writer's). The only way state changes; no rules; cannot fail on a
        valid commit."""
        ...

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the events and cursors to commit now, at most COMMIT_EVENTS_MAX events. The observable state stays unchanged
        (docs/adr/0018-speculative-apply.md). All `inputs` count as consumed once the commit is in the log.
        """
        ...

    def split(self, item: Input) -> list[Input]:
        """An input in smaller ones, each to be decided and committed by itself; [] where it cannot be split.
        Asked where `decide` raises upon it. Never asked about CMD, whose cursor moves by whole messages."""
        ...

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """Return the decision to commit in place of an indivisible input on which `decide` raises. The decision records the input
        as rejected and moves past it. Never called for CMD.
        """
        ...

    def wake_at(self) -> int | None:
        """Return the time (Unix ns) at which time alone could change the decision; 0 when there is more to decide at once."""
        ...

    def snapshot(self) -> bytes:
        """All state, canonical: equal states have equal bytes."""
        ...

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The inverse of `snapshot`."""
        ...
