"""Worlds in which the queues change all the time: what was found there, and that what is promised of yielding is judged."""

import pytest

from fairlead_queue.decide.preemption_candidates import CandidateFinder
from fairlead_replay.sim.people import Restless
from fairlead_replay.sim.world import Parts, run_seed

PARTS = Parts(people=Restless)


@pytest.mark.parametrize(
    ("seed", "commands"),
    [
        (1027, 150),  # a reservation under a maximum that others had used up
        (1050, 150),  # a guarantee undercut by a run that the same decision stopped
        (1437, 150),  # the same by two of which the first was on its way out
        *((seed, 70) for seed in range(1, 11)),
    ],
)
def test_every_promise_holds_while_queues_change(seed: int, commands: int) -> None:
    """Limits, pools and budgets change under what runs; queues go with what waits in them."""
    assert run_seed(seed, parts=PARTS, commands=commands).violation is None


@pytest.mark.parametrize("promise", ["_keeps_guarantee", "_protected"])
def test_preempting_protected_runs_is_caught(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue falls below its guarantee, or a run is stopped before its protection is over."""
    if promise == "_keeps_guarantee":
        monkeypatch.setattr(CandidateFinder, promise, lambda *_: True)
    else:
        begin = CandidateFinder.__init__

        def hasty(self: CandidateFinder, pool, starving, now_ns, *more) -> None:
            begin(self, pool, starving, now_ns + 3_000_000_000, *more)

        monkeypatch.setattr(CandidateFinder, "__init__", hasty)
    found = (run_seed(seed, parts=PARTS, commands=70).violation for seed in range(1, 61))
    assert "is asked to yield" in next(violation for violation in found if violation)
