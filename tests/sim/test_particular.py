"""Worlds in which people ask for all that a job may ask for: what was found there, and that the machines notice what is wrong."""

import pytest

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import take
from fairlead_replay.sim.seeds import people_of
from fairlead_replay.sim.world import Parts, run_seed

PARTICULAR = Parts(people=people_of(particular=True))


@pytest.mark.parametrize(
    ("seed", "people"),
    [
        (12, {}),  # a gang that failed avoided nodes without which no rack took it
        (71, {}),  # a gang for which no GPU was made whole
        (45, {}),  # a guest of kept nodes that wanted one for itself
        (64, {}),  # tasks of shares, counted as if they could share a GPU
        (159, {}),  # instances for which nothing was cut beside one that was there
        (187, {}),  # simulated agents that forgot who had typed
        (212, {}),  # a declined plea whose nodes were counted under other causes than they have
        (161, {}),  # a node kept for a job that had failed on it, and went to another that takes work by now
        (224, {}),  # a run asked back on demand after its lease, and not seen any more: it may count as active again
        (77, {"restless": True}),  # an array's second element born before its first, and offered again and again
        (90, {"restless": True}),  # an agent that took a new placer's older value for a log that went backwards
        *((seed, {}) for seed in range(1, 6)),
        *((seed, {"restless": True}) for seed in range(1, 4)),
        *((seed, {"operators": True}) for seed in range(1, 4)),
    ],
)
def test_every_promise_holds_whatever_is_asked_for(seed: int, people: dict[str, bool]) -> None:
    """Shares, instances, replicas, tasks, elastic gangs, topology, tolerations, several kinds."""
    assert run_seed(seed, parts=Parts(people=people_of(particular=True, **people))).violation is None


def first_violation() -> str:
    found = (run_seed(seed, parts=PARTICULAR).violation for seed in range(1, 41))
    return next((violation for violation in found if violation), "")


def test_shares_beyond_a_whole_gpu_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the placer's own invariants, or by a machine."""
    monkeypatch.setattr(FreeResources, "_share", lambda *_: None)
    assert "I1" in first_violation() or "I2" in first_violation()


def test_an_instance_allocated_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug does not record its holder."""
    assert take is not None
    monkeypatch.setattr(FreeResources, "_hold", lambda *_: None)
    assert "I1" in first_violation()
