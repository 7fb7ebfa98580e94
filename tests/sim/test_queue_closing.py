"""Worlds in which queues are held, drained and released all the time: nothing of a held queue starts, and nothing is lost."""

from collections import Counter

import pytest

from fairlead_queue.waiting.closures import QueueClosures
from fairlead_replay.sim import faults
from fairlead_replay.sim.invariants import Books
from fairlead_replay.sim.people import QueueClosers
from fairlead_replay.sim.world import WORK_S, Parts, run_seed
from fairlead_schemas.wire import events as ev

PARTS = Parts(people=QueueClosers)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Events that the books have taken, by type and reason."""
    found: Counter[str] = Counter()
    take = Books.take

    def noted(books: Books, event: ev.Event) -> str:
        found[f"{type(event).__name__} {getattr(event, 'reason', '')}".strip()] += 1
        return take(books, event)

    monkeypatch.setattr(Books, "take", noted)
    return found


@pytest.mark.parametrize("seed", range(1, 9))
def test_every_promise_holds_while_queues_are_held_and_drained(seed: int, counted: Counter[str]) -> None:
    """Runs, offers, claims and jobs that are submitted held continue or wait as they should; every job ends once all is released."""
    assert run_seed(seed, parts=PARTS, commands=70).violation is None
    assert counted["JobSubmitted"]


def test_offers_are_asked_back_in_these_worlds(counted: Counter[str]) -> None:
    """The worlds reach the moments that matter: open offers of a held queue, and refused submits."""
    for seed in range(1, 9):
        run_seed(seed, parts=PARTS, commands=70)
    missing = {
        "QueueHeld",
        "QueueDrained",
        "QueueReleased",
        "OfferWithdrawn queue_held",
        "JobDeferred queue_held",
        "JobReleased",
    } - set(counted)
    assert not missing


@pytest.mark.parametrize("plant", ["holding", "draining"])
def test_a_closed_queue_that_is_open_is_caught(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that forgets what is closed breaks the promise of the books."""
    monkeypatch.setattr(QueueClosures, plant, lambda *_: "")
    word = "held" if plant == "holding" else "drained"
    found = (run_seed(seed, parts=PARTS, commands=70).violation for seed in range(1, 31))
    assert f"is {word}" in next(violation for violation in found if violation)


def test_worlds_of_closed_queues_survive_exceptions_in_mid_decision() -> None:
    """Services that are struck while they decide on holds and drains obey every invariant, and the log is reproducible."""
    seeds = [seed for seed in range(1, 100) if len(faults.plan_decision_faults(seed, WORK_S)) > 5][:3]
    for seed in seeds:
        first, again = (run_seed(seed, parts=PARTS, commands=70) for _ in range(2))
        assert first.violation is None
        assert first == again
