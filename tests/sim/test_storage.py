"""Storage in simulated worlds: kills, lost and doubled messages, exceptions in mid-decision, and queues that come and go."""

from typing import Any, get_args

import pytest

import fairlead_storage.decide.decision
from fairlead_replay.sim import volumes
from fairlead_replay.sim.seeds import quiet
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.wire import events as ev

PARTS = Parts(storage=volumes.plan)
SEEDS = range(1, 9)


@pytest.fixture(autouse=True)
def quiet_services() -> None:
    """No log lines while a world is simulated."""
    quiet()


def first_violation() -> str:
    """The first violation of these seeds, "" for none."""
    return next((each for seed in SEEDS if (each := run_seed(seed, parts=PARTS, commands=4).violation)), "")


def test_a_world_with_storage_comes_to_rest_and_repeats() -> None:
    """Every kind of event occurs within a few seeds, no invariant breaks, and a seed gives the same log twice."""
    outcomes = [run_seed(seed, parts=PARTS, commands=4) for seed in SEEDS]
    assert [each.violation for each in outcomes] == [None] * len(SEEDS)
    seen = {name for each in outcomes for name in each.storage}
    assert {kind.__name__ for kind in get_args(ev.StorageEvent)} - seen - {"StorageClockStepped"} == set()
    assert run_seed(1, parts=PARTS, commands=4).digest == outcomes[0].digest


def test_a_decision_that_forgets_the_commands_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two volumes of one name in one message, or a bound that is used twice."""
    decide = fairlead_storage.decide.decision.decide

    def forgetful(state: Any, inputs: Any, now_ns: int) -> Any:
        events: list[Any] = []
        for each in inputs:
            for command in each.body:
                events += decide(state, [each._replace(body=[command])], now_ns).events
        return decide(state, inputs, now_ns)._replace(events=events)

    monkeypatch.setattr("fairlead_storage.core.decide", forgetful)
    assert first_violation()
