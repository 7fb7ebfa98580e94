"""The placer as a core: one writer of the log, runnable live, in the simulator and in replay.

`decide` applies its decision to the state. Naively one would undo it, wait for the commit in the log, and apply it again; that
costs one decision in seven. Instead the decision stays pending: if its own commit comes next, `commit_pending` keeps it, and
anything else that needs the state calls `rollback` first (docs/adr/0018-speculative-apply.md).
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_bus.undo_log import UndoFailed
from fairlead_placer import snapshot
from fairlead_placer.apply.handlers import WRITER, confirm, fold
from fairlead_placer.cluster.entities import DRAINING
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import fencing, maintenance_windows, reports
from fairlead_placer.decide.decision import decide
from fairlead_placer.scheduling import repartition
from fairlead_placer.scheduling.defragment import next_look_ns
from fairlead_schemas.wire.commit import Commit


class PendingDecision(NamedTuple):
    """A decision that is tried on the state, and when it was drawn up."""

    decision: Decision
    at_ns: int

    def is_what(self, commit: Commit) -> bool:
        """True for the commit of this decision: its very events, at its time, and its inputs consumed."""
        events, cursors = self.decision
        return commit.events is events and commit.at_ns == self.at_ns and cursors.items() <= commit.cursors.items()


class PlacerCore:
    """`fairlead_bus.core.Core` for the placer."""

    writer: ClassVar[str] = WRITER
    schema: ClassVar[str] = snapshot.SCHEMA

    def __init__(self) -> None:
        self._begin(ClusterState())

    def _begin(self, state: ClusterState) -> None:
        """Start from a state, with nothing tried and nothing remembered."""
        self._state = state
        self._pending: PendingDecision | None = None
        self._more = False
        self._crowded = False
        #: Version of the index at which there was nothing to decide: without inputs there still is nothing.
        self._quiet_at = -1
        #: When there was last something to decide, or not.
        self._looked_ns = 0
        #: When runs to move were looked for last. A memory of work done, not state: a fresh look does no harm.
        self._moves_ns = 0

    @property
    def has_pending(self) -> bool:
        """True while a decision is applied to the state and not in the log yet. A rollback now costs as much as the decision did."""
        return self._pending is not None

    @property
    def state(self) -> ClusterState:
        """State as folded from the log, for reading. With a pending decision it is not that state: call `rollback` first."""
        assert self._pending is None, "the state holds a decision that is not in the log: call rollback() first"
        return self._state

    def rollback(self) -> ClusterState:
        """Roll back the pending decision, if there is one, and return the state as folded from the log."""
        if self._pending is not None:
            self._pending = None
            self._state.rollback()
        return self._state

    def commit_pending(self, seq: int, commit: Commit) -> bool:
        """Keep the pending decision as the fold of its own commit. False: nothing is pending, or `commit` is another one."""
        pending = self._pending
        if pending is None or not pending.is_what(commit) or seq != self._state.sequence + 1:
            return False
        self._pending = None
        confirm(self._state, seq, commit)
        return True

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit."""
        if self._pending is None or not self.commit_pending(seq, commit):
            fold(self.rollback(), seq, commit)
        if commit.writer == self.writer:
            self._state.pools.tidy()

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return what to commit now. The visible state does not change."""
        state = self.rollback()
        look_ns = next_look_ns(state, self._moves_ns)
        looks = look_ns is not None and look_ns <= now_ns
        if (
            not inputs
            and not looks
            and state.pools.version == self._quiet_at
            and not state.withdrawals
            and not fencing.is_due(state)
            and not self._due(now_ns)
        ):
            return NOTHING
        try:
            decision, more, crowded = decide(state, inputs, now_ns, roomy=self._crowded, look_for_moves=looks)
            pending = PendingDecision(decision, now_ns) if decision.events or decision.cursors else None
            if pending is None:
                state.rollback()
        except BaseException:
            self._recover()
            raise
        self._pending, self._more, self._crowded = pending, more, crowded
        self._looked_ns = now_ns
        if looks and not self._more:
            self._moves_ns = now_ns
        quiet = not decision.events and not self._more
        self._quiet_at = state.pools.version if quiet else -1
        return decision

    def _recover(self) -> None:
        """Continue after an exception in mid-decision as a core that was restored from a snapshot.

        The exception may have struck in the middle of an index update. Restoring every index exactly would need an entry in
        the undo log for each step of the hottest paths; so only the facts are restored, and all else is worked out from
        them again. That takes as long as a restart, and only a defect makes it necessary.
        """
        before = self._state
        if before.journal is not None:
            before.abort()
        try:
            state = snapshot.load(snapshot.dump(before))
        except BaseException as error:
            raise UndoFailed(f"the state is unknown, it cannot be loaded: {type(error).__name__}: {error}") from error
        state.touched, state.advanced = before.touched, before.advanced
        self._begin(state)

    def split(self, item: Input) -> list[Input]:
        """A batch of reports, one by one."""
        return reports.split(item) if item.source == "report" and len(item.body.reports) > 1 else []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """A single report is passed over and recorded; of the rest (silence, a return, garbage) nothing remains."""
        return reports.passed_over(self.rollback(), item.body, error, now_ns) if item.source == "report" else NOTHING

    def wake_at(self) -> int | None:
        """The next deadline of a drain, a window or a plan to cut a GPU, the end of a suspect node's rest, a reserved start, or look for runs to move; 0 when
        the last commit had no room for all."""
        if self._more:
            return 0
        look_ns = next_look_ns(self.rollback(), self._moves_ns)
        return min([*self._deadlines(), *([look_ns] if look_ns is not None else [])], default=None)

    def snapshot(self) -> bytes:
        """All folded state, canonical."""
        return snapshot.dump(self.rollback())

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The core that had this snapshot."""
        core = cls()
        core._begin(snapshot.load(data))
        return core

    def _due(self, now_ns: int) -> bool:
        return any(deadline_ns <= now_ns for deadline_ns in self._deadlines())

    def _deadlines(self) -> list[int]:
        state = self.rollback()
        drains = [node.deadline_ns for node in map(state.nodes.__getitem__, state.closed) if node.duty == DRAINING]
        rests = [node.rest_ns for node in map(state.nodes.__getitem__, state.suspects) if node.resting]
        starts = [kept.start_ns + 1 for kept in state.reservations.values() if kept.start_ns and not kept.hole]
        cuts = repartition.deadlines(state, self._looked_ns)
        return (
            [deadline_ns for deadline_ns in drains + rests + starts if deadline_ns]
            + maintenance_windows.deadlines(state)
            + cuts
        )
