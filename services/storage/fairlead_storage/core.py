"""Core of the storage service: decides which classes, volumes and datasets exist, whose they are, and how much they may hold. Pure."""

from collections.abc import Sequence
from typing import ClassVar, Self

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_schemas.wire.commit import Commit
from fairlead_storage import snapshot
from fairlead_storage.apply.handlers import WRITER, fold
from fairlead_storage.decide.decision import decide
from fairlead_storage.state import StorageState


class StorageCore:
    """Implements `fairlead_bus.core.Core` for the writer "storage". Its inputs are CMD messages."""

    writer = WRITER
    schema: ClassVar[str] = snapshot.SCHEMA

    def __init__(self) -> None:
        self.state = StorageState()

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit of any writer."""
        fold(self.state, seq, commit)

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the events to commit now."""
        return decide(self.state, inputs, now_ns)

    def split(self, item: Input) -> list[Input]:
        """Return nothing: commands are never split, because their cursor moves by whole messages."""
        return []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """Return nothing: there are no inputs other than commands."""
        return NOTHING

    def wake_at(self) -> int | None:
        """Return None: nothing happens by time alone."""
        return None

    def snapshot(self) -> bytes:
        """Canonical bytes of the state."""
        return snapshot.dump(self.state)

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The inverse of `snapshot`."""
        core = cls()
        core.state = snapshot.load(data)
        return core

    def statistics(self) -> dict[str, int]:
        """Sizes, for logs and metrics."""
        state = self.state
        return {"classes": len(state.classes), "volumes": len(state.volumes), "datasets": len(state.datasets)}
