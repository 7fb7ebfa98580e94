"""The placer as a core: one writer of the log, runnable live, in the simulator and in replay."""

from collections.abc import Sequence
from typing import Self

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_placer import reports, snapshot
from fairlead_placer.cutting import planning
from fairlead_placer.decide import decide
from fairlead_placer.defragmenting.carrying_out import next_look
from fairlead_placer.entities import DRAINING
from fairlead_placer.evolve import fold
from fairlead_placer.nodes import fencing, windows
from fairlead_placer.state import State
from fairlead_schemas.commit import Commit


class PlacerCore:
    """`fairlead_bus.core.Core` for the placer. `state` is for reading."""

    writer = "placer"

    def __init__(self) -> None:
        self.state = State()
        self._more = False
        self._crowded = False
        #: Version of the index at which there was nothing to decide: without inputs there still is nothing.
        self._quiet_at = -1
        #: When there was last something to decide, or not.
        self._looked_ns = 0
        #: When runs to move were looked for last. A memory of work done, not state: a fresh look does no harm.
        self._moves_ns = 0

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit."""
        fold(self.state, seq, commit)
        if commit.writer == self.writer:
            self.state.pools.tidy()

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """What to commit now; the state is as it was."""
        state = self.state
        look_ns = next_look(state, self._moves_ns)
        looks = look_ns is not None and look_ns <= now_ns
        if (
            not inputs
            and not looks
            and state.pools.version == self._quiet_at
            and not state.recalls
            and not fencing.is_due(state)
            and not self._due(now_ns)
        ):
            return NOTHING
        decision, self._more, self._crowded = decide(state, inputs, now_ns, roomy=self._crowded, defragment=looks)
        self._looked_ns = now_ns
        if looks and not self._more:
            self._moves_ns = now_ns
        quiet = not decision.events and not self._more
        self._quiet_at = state.pools.version if quiet else -1
        return decision

    def split(self, item: Input) -> list[Input]:
        """A batch of reports, one by one."""
        return reports.split(item) if item.source == "report" and len(item.body.reports) > 1 else []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """A single report is passed over and recorded; of the rest (silence, a return, garbage) nothing remains."""
        return reports.passed_over(self.state, item.body, error, now_ns) if item.source == "report" else NOTHING

    def wake_at(self) -> int | None:
        """The next deadline of a drain, a window or a plan to cut a GPU, a reserved start, or look for runs to move; 0 when
        the last commit had no room for all."""
        if self._more:
            return 0
        look_ns = next_look(self.state, self._moves_ns)
        return min([*self._deadlines(), *([look_ns] if look_ns is not None else [])], default=None)

    def snapshot(self) -> bytes:
        """All folded state, canonical."""
        return snapshot.dump(self.state)

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The core that had this snapshot."""
        core = cls()
        core.state = snapshot.load(data)
        return core

    def _due(self, now_ns: int) -> bool:
        return any(deadline_ns <= now_ns for deadline_ns in self._deadlines())

    def _deadlines(self) -> list[int]:
        state = self.state
        drains = [node.deadline_ns for node in map(state.nodes.__getitem__, state.closed) if node.duty == DRAINING]
        starts = [kept.start_ns + 1 for kept in state.reservations.values() if kept.start_ns and not kept.hole]
        cuts = planning.deadlines(state, self._looked_ns)
        return [deadline_ns for deadline_ns in drains + starts if deadline_ns] + windows.deadlines(state) + cuts
