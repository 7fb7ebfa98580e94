"""Core of the access service: decides who is admitted, who holds which role, and which tokens and sessions count. Pure."""

from collections.abc import Sequence
from typing import ClassVar, Self

from fairlead_access import snapshot
from fairlead_access.apply.handlers import WRITER, fold
from fairlead_access.decide.decision import ExpirySchedule, decide
from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_rights.state import AccessState
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit


class AccessCore:
    """Implements `fairlead_bus.core.Core` for the writer "access". Its inputs are CMD messages."""

    writer = WRITER
    schema: ClassVar[str] = snapshot.SCHEMA

    def __init__(self) -> None:
        self.state = AccessState()
        # Derived, no state: when something expires.
        self._expiries = ExpirySchedule()

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit of any writer."""
        fold(self.state, seq, commit)
        if commit.writer != WRITER:
            return
        for event in commit.events:
            if isinstance(event, ev.TokenIssued | ev.SessionOpened):
                self._expiries.add(event.expires_ns)
        first = self._expiries.next_ns()
        if first is not None and first <= commit.at_ns:
            self._expiries = ExpirySchedule(self.state.expiries())

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the events to commit now."""
        return decide(self.state, self._expiries, inputs, now_ns)

    def split(self, item: Input) -> list[Input]:
        """Return nothing: commands are never split, because their cursor moves by whole messages."""
        return []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """Return nothing: there are no inputs other than commands."""
        return NOTHING

    def wake_at(self) -> int | None:
        """Return the time at which the next token or session expires."""
        return self._expiries.next_ns()

    def snapshot(self) -> bytes:
        """Canonical bytes of the state."""
        return snapshot.dump(self.state)

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The inverse of `snapshot`."""
        core = cls()
        core.state = snapshot.load(data)
        core._expiries = ExpirySchedule(core.state.expiries())
        return core

    def statistics(self) -> dict[str, int]:
        """Sizes, for logs and metrics."""
        state = self.state
        return {
            "principals": len(state.kinds),
            "groups": len(state.access.groups),
            "grants": state.grant_count,
            "tokens": len(state.tokens),
            "sessions": len(state.sessions),
        }
