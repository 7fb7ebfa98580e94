"""The queue's core: state folded by `evolve`, read by `decide`. Pure: no clock, no bus, no logging."""

from collections.abc import Sequence
from typing import ClassVar, Self

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_queue import snapshot
from fairlead_queue.apply.handlers import WRITER, fold
from fairlead_queue.decide.decision import QueueDecision, decide
from fairlead_queue.decide.timers import next_due_ns
from fairlead_queue.limits import REVIEW_NS
from fairlead_queue.state import QueueState
from fairlead_schemas.wire.commit import Commit


class QueueCore:
    """Implements `fairlead_bus.core.Core` for the writer "queue"."""

    writer: ClassVar[str] = WRITER
    schema: ClassVar[str] = snapshot.SCHEMA

    def __init__(self) -> None:
        self.state = QueueState()
        # Memos, not state: deciding again upon the same state is known to bring nothing before this time.
        self._folded = 0
        self._quiet_at = -1
        self._quiet_until: int | None = None

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit of any writer."""
        fold(self.state, seq, commit)
        self._folded += 1

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the next decision to commit. Inputs are CMD messages: lists of queue commands and `Undecodable`."""
        if not inputs and self._quiet_at == self._folded and not self._is_due(now_ns):
            return NOTHING
        try:
            decided = decide(self.state, inputs, now_ns)
        except BaseException:
            if self.state.journal is not None:  # it struck between a speculation and its end
                self.state.abort()
            raise
        if not inputs and not decided.events and not decided.full:
            until = self._next_time(decided, now_ns)
            self._quiet_at, self._quiet_until = self._folded, until
        cursors = {each.source: each.position for each in inputs}
        return Decision(list(decided.events), cursors)

    def split(self, item: Input) -> list[Input]:
        """There are no inputs but commands."""
        return []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """There are no inputs but commands."""
        return NOTHING

    def wake_at(self) -> int | None:
        """0 until a decision upon the state as it is has brought nothing; then when time alone may bring something."""
        return self._quiet_until if self._quiet_at == self._folded else 0

    def _next_time(self, decided: QueueDecision, now_ns: int) -> int | None:
        state = self.state
        review_at = decided.review_at
        if not decided.reviewed and (state.open or state.in_line):
            review_at = (now_ns // REVIEW_NS + 1) * REVIEW_NS
        times = [at_ns for at_ns in (review_at, next_due_ns(state, max(now_ns, state.at_ns))) if at_ns is not None]
        return min(times, default=None)

    def _is_due(self, now_ns: int) -> bool:
        return self._quiet_until is not None and self._quiet_until <= now_ns

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
        return {
            "queues": len(state.queues),
            "classes": len(state.classes),
            "live": len(state.jobs),
            "pools": len(state.pools),
            "in_line": state.in_line,
            "open": state.open,
            "parked_open": state.parked_open,
            "finished": len(state.finished),
            "keys": len(state.keys),
            "timers": len(state.due.timers),
        }
