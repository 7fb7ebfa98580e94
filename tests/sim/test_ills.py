"""Machines that are not well in the simulated world."""

import pytest

from fairlead_replay.sim import health
from fairlead_replay.sim.machine import UNFIT, SimMachine, Starts
from fairlead_replay.sim.world import run_seed
from fairlead_schemas.wire.health import OF_NODES, is_code


def test_a_seed_plans_the_same_ailments_every_time() -> None:
    """Of codes that there are; half of all seeds have some, and other faults are drawn as ever."""
    plans = [health.plan(seed, 60.0) for seed in range(40)]
    assert plans == [health.plan(seed, 60.0) for seed in range(40)]
    assert 10 <= sum(map(bool, plans)) <= 30
    for ill in (each for plan in plans for each in plan):
        assert is_code(ill.code) if ill.gpu >= 0 else ill.code in (*OF_NODES, UNFIT)


def test_an_agent_says_what_is_new_and_what_is_over() -> None:
    """Compared with what its journal says; one thing at a time of a GPU."""
    from random import Random

    machine = SimMachine("n0", 2, Random(1), Starts(10.0), 0.0)
    gpu = machine.inventory.gpus[1].uuid
    machine.ills |= {(gpu, "xid79"), (gpu, "thermal"), ("", "disk_full"), ("", UNFIT)}
    assert [(each.gpu, each.code) for each in health.changes(machine, {})] == [(gpu, "xid79"), ("", "disk_full")]
    assert health.introduced(machine).taints == (health.TAINT,)
    reported = {(gpu, "xid79"): "b", ("", "disk_full"): "b"}
    assert health.changes(machine, reported) == []
    machine.ills.clear()
    assert [(each.gpu, each.code, each.over) for each in health.changes(machine, reported)] == [
        (gpu, "", False),
        ("", "disk_full", True),
    ]
    assert health.introduced(machine).taints == ()


@pytest.mark.parametrize("seed", [seed for seed in range(200) if len(health.plan(seed, 60.0)) == 9][:4])
def test_worlds_with_many_ailments_come_to_rest(seed: int) -> None:
    """Every job ends, nothing runs twice, all folds agree."""
    assert run_seed(seed).violation is None
