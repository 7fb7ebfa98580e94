"""Services in simulated worlds: kills, lost and doubled messages, exceptions in mid-decision, and nodes that drain and die under replicas."""

from typing import Any

import pytest

import fairlead_queue.waiting.services as planning
from fairlead_replay.sim import services
from fairlead_replay.sim.seeds import quiet
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.wire import events as ev

PARTS = Parts(served=services.plan)
SEEDS = range(1, 9)
SEEN = {
    "ServiceApplied",
    "ServiceScaled",
    "ServiceLoad",
    "ServiceStopped",
    "ReplicaRetired",
}


@pytest.fixture(autouse=True)
def quiet_services() -> None:
    """No log lines while a world is simulated."""
    quiet()


def first_violation() -> str:
    """The first violation of these seeds, "" for none."""
    return next((each for seed in SEEDS if (each := run_seed(seed, parts=PARTS, commands=4).violation)), "")


def test_a_world_with_services_comes_to_rest_and_repeats() -> None:
    """Every kind of event occurs within a few seeds, no invariant breaks, and a seed gives the same log twice."""
    outcomes = [run_seed(seed, parts=PARTS, commands=4) for seed in SEEDS]
    assert [each.violation for each in outcomes] == [None] * len(SEEDS)
    seen = {name for each in outcomes for name in each.services}
    assert SEEN - seen == set() and ev.ServiceApplied.__name__ in seen
    assert run_seed(1, parts=PARTS, commands=4).digest == outcomes[0].digest


def test_a_plan_that_takes_out_what_is_needed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """All old replicas at once, before others serve."""
    plan_of = planning.plan_of

    def hasty(service: Any, state_of: Any, is_drained: Any, now_ns: int) -> Any:
        plan = plan_of(service, state_of, is_drained, now_ns)
        if service.is_stopped or plan.scale is not None:
            return plan
        old = [each for each in service.replicas.values() if each.revision != service.revision]
        left = [each.job for each in old if not each.retired_ns and each.is_ready and state_of(each.job) == "running"]
        return plan._replace(retire=tuple((job, "revision") for job in left))

    monkeypatch.setattr("fairlead_queue.state.plan_of", hasty)
    assert "are needed" in first_violation()


def test_a_plan_that_forgets_the_surge_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many new replicas as are wanted, next to all the old ones."""
    plan_of = planning.plan_of

    def eager(service: Any, state_of: Any, is_drained: Any, now_ns: int) -> Any:
        plan = plan_of(service, state_of, is_drained, now_ns)
        return plan._replace(submit=plan.submit and plan.submit + 3)

    monkeypatch.setattr("fairlead_queue.state.plan_of", eager)
    assert "at most" in first_violation()
