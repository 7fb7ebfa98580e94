"""Exceptions in mid-decision: the simulator strikes cores with them, and finds a core that does not survive one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_queue.state import QueueState
from fairlead_replay.sim import faults
from fairlead_replay.sim.world import WORK_S, run_seed
from tests.sim.violations import first_violation


def struck_seed() -> int:
    """The first seed with many faults."""
    return next(seed for seed in range(1, 100) if len(faults.plan_decision_faults(seed, WORK_S)) > 5)


def test_a_world_survives_exceptions_in_mid_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log obeys every invariant, and the same seed gives the same log again, whatever the process has cached."""
    raised: list[str] = []
    init = faults.Defect.__init__

    def counted(defect: faults.Defect, what: str) -> None:
        raised.append(what)
        init(defect, what)

    monkeypatch.setattr(faults.Defect, "__init__", counted)
    first, again = run_seed(struck_seed()), run_seed(struck_seed())
    assert first.violation is None
    assert first == again
    assert raised
    assert raised[: len(raised) // 2] == raised[len(raised) // 2 :]


def test_a_queue_that_rolls_back_only_completed_decisions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that a failed decision had queued stay there, and are offered without a submit."""

    @contextmanager
    def careless(state: QueueState) -> Iterator[None]:
        state.journal = []
        yield
        state.rollback()

    def forgetful(state: QueueState) -> None:
        state.journal = None

    monkeypatch.setattr(QueueState, "speculating", careless)
    monkeypatch.setattr(QueueState, "abort", forgetful)
    assert first_violation()


def test_a_placer_that_forgets_what_it_has_tried_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state then holds placements that are in no commit."""

    def careless(state: PlacerState) -> None:
        state.journal = None

    monkeypatch.setattr(PlacerState, "abort", careless)
    assert first_violation()
