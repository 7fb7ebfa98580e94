"""A simulator that finds nothing proves nothing: here are bugs, planted one at a time, which it must find."""

from collections.abc import Callable
from typing import Any

import pytest

import fairlead_bus.input_source
import fairlead_bus.log
import fairlead_placer.decide.reports
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.steps import Step
from fairlead_bus.core import Core
from fairlead_bus.log import FencedWriter
from fairlead_bus.log_time import SteadyClock
from fairlead_bus.port import Bus, Stored
from fairlead_bus.service import Service
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import PlacedRun, RankVerdict
from fairlead_placer.decide import fencing
from fairlead_queue.core import QueueCore
from fairlead_replay.sim.agent import SimAgent
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.faults import Disaster, Faults
from fairlead_replay.sim.world import Parts
from fairlead_schemas.wire import subjects
from tests.sim.violations import RARE, first_violation


def test_skipping_the_fence_is_caught() -> None:
    """Appends without the expected sequence let two leaders write: the chain of one writer forks."""

    class Unfenced(FaultyBus):
        async def append(self, stream: str, subject: str, payload: bytes, **options: Any) -> int:
            if stream == subjects.LOG:
                options["expected"] = None
            return await super().append(stream, subject, payload, **options)

    assert "follows its commit" in first_violation(Parts(bus=Unfenced))


def test_folding_before_the_acknowledgement_is_caught() -> None:
    """A service that folds an unacknowledged commit differs from the log."""

    class Hasty[C: Core](Service[C]):
        hasty = b""

        async def _append(self, payload: bytes, expected: int) -> int:
            self.hasty = payload
            self.core.evolve(self.folded + 1, fairlead_bus.log.decode_commit(payload))
            return await super()._append(payload, expected)

        def _fold(self, stored: Stored) -> None:
            core = self.core
            if stored.payload == self.hasty:
                self.core = _Deaf(core)  # type: ignore[assignment] -- it plays the core for one fold
            super()._fold(stored)
            self.core = core

    class _Deaf:
        def __init__(self, core: Any) -> None:
            self.core = core

        def evolve(self, seq: int, commit: Any) -> None:
            """Stored already, too early."""

    assert first_violation(Parts(service=Hasty), first=60, seeds=RARE).startswith(("I7", "I8", "crash"))


def test_freeing_a_gpu_on_the_exit_message_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has exited may still hold its devices: the next one would find them busy."""
    rank_ended = fairlead_placer.decide.reports.run_lifecycle.rank_ended

    def credulous(
        draft: PlacerDraft, run: PlacedRun, verdict: RankVerdict, clean: bool, cause: str, ended_ns: int = 0
    ) -> None:
        rank_ended(draft, run, verdict, True, cause, ended_ns)

    monkeypatch.setattr(fairlead_placer.decide.reports.run_lifecycle, "rank_ended", credulous)

    assert "has not left" in first_violation()


def test_starting_before_the_journal_is_durable_is_caught() -> None:
    """An agent that acts first and writes later does not know after a crash what it has started."""

    class Rash(SimAgent):
        def _do(self, step: Step) -> None:
            for instruction in step.instructions:
                self._carry_out(instruction)
            super()._do(step._replace(instructions=[]))

        def _synced(self) -> None:
            if not self.faults.chance(0.2):  # a disk that is slow now and then
                super()._synced()
            else:
                self.loop.call_later(2.0, self._synced)

    assert first_violation(Parts(agent=Rash), first=300, seeds=RARE).startswith(("I1", "I4"))


def test_reading_commands_from_the_start_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs consumed must be known by the log's own cursor: otherwise a restart decides them twice."""
    opened = fairlead_bus.input_source.CommandSource.open

    async def forgetful(self: Any, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        await opened(self, bus, core, 0, wake)

    monkeypatch.setattr(fairlead_bus.input_source.CommandSource, "open", forgetful)

    found = first_violation()
    assert found.startswith("I8") or "I3: " in found


def test_not_reading_back_an_unknown_outcome_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timed-out append taken for a failed one is sent again behind itself."""

    async def trusting(self: FencedWriter, payload: bytes, expected: int) -> int | None:
        return None

    monkeypatch.setattr(FencedWriter, "_read_back", trusting)

    assert first_violation()


def test_an_agent_that_does_not_fence_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partitioned agent must end its work before the placer may give the job to another node."""
    begin: Callable[..., None] = Reconciler.__init__

    def unfenced(self: Reconciler, ledger: Any, *, fence_ns: int, **more: Any) -> None:
        begin(self, ledger, fence_ns=fence_ns * 1000, **more)

    def torn(self: Faults, until_s: float) -> list[Disaster]:
        return [Disaster(1.0 + 3 * number, "partition_node", self.rng.randrange(1 << 16), 40.0) for number in range(6)]

    monkeypatch.setattr(Reconciler, "__init__", unfenced)
    monkeypatch.setattr(Faults, "plan", torn)  # a long partition of a busy node with room elsewhere is rare

    assert first_violation().startswith("I4")


def test_replacing_a_strict_job_without_proof_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a live agent to end it, the old run may still be there."""
    monkeypatch.setattr(fencing, "ends_now", lambda state, node, run: True)

    assert first_violation(first=165, seeds=RARE).startswith("I4")


def test_ignoring_the_quota_is_caught() -> None:
    """Offers beyond a queue's hard quota break I5 at the very event."""

    class Generous(QueueCore):
        def evolve(self, seq: int, commit: Any) -> None:
            super().evolve(seq, commit)
            for pool in self.state.pools.values():
                for node in pool.tree.nodes.values():
                    node.bounded = False

    assert "I5: offered" in first_violation(Parts(queue=Generous))


def test_taking_over_steps_of_the_clock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose log time is the wall clock ends runs early after a step, unless the agents measure for themselves."""
    now = SteadyClock.now

    def stepping(self: SteadyClock) -> int:
        self._now = max(now(self), self._wall())
        return self._now

    def stepped(self: Faults, until_s: float) -> list[Disaster]:
        return [Disaster(1.0 + 2 * number, "clock_jump", self.rng.randrange(1 << 16), 1.0) for number in range(20)]

    monkeypatch.setattr(SteadyClock, "now", stepping)
    monkeypatch.setattr(Faults, "plan", stepped)

    assert first_violation() == "", "no run ends early while its agent measures"

    monkeypatch.setattr(Reconciler, "_is_early", lambda self, run, order, now: False)

    assert "was ended early: its limit is 2000000000 ns" in first_violation()


def test_without_a_planted_bug_the_same_seeds_are_clean() -> None:
    """The tests above catch the bug, not chance."""
    assert first_violation() == ""
