"""The cost of a state, and the permitted uses of its GPUs."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.openb.cluster import Cluster
from fairlead_placer.packing.policies import POLICIES
from fairlead_placer.packing.policy import POINTS, NodeState, Policy, RequestShape, TypicalWork, columns_of
from fairlead_placer.packing.rows import Grain, Lattice
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX
from tests.placer.packing.anew import choices_of
from tests.placer.packing.play import MACHINES

GPUS = st.lists(st.sampled_from([190, 330, 500, 670, 1000]), max_size=8).map(lambda each: tuple(sorted(each)))
#: Amounts are below 0 where an inventory has shrunk.
STATES = st.builds(NodeState, st.integers(-9_000, 130_000), st.integers(-9_000, 600_000), st.sampled_from([1, 2]), GPUS)


def learned(name: str, more: RequestShape | None = None) -> Policy:
    """A policy that has seen some work on these machines."""
    policy, work, rng = POLICIES[name](), TypicalWork(), random.Random(3)
    if more is not None:
        work.observe(more)
    for _ in range(200):
        count = rng.choice([1, 1, 1, 2, 4, 8])
        milli = rng.choice([330, 500, 1000]) if count == 1 else 1000
        work.observe(
            RequestShape(rng.randint(1, 9_000) * count, rng.randint(0, 40_000), count, milli, rng.choice([(), ("A",)]))
        )
    policy.learn(Cluster(MACHINES, name, []).pool, work)
    return policy


@pytest.mark.parametrize("policy", [learned(name) for name in POLICIES], ids=list(POLICIES))
@settings(max_examples=40, deadline=None)
@given(st.lists(STATES, min_size=1, max_size=30))
def test_one_state_costs_what_it_costs_among_others(policy: Policy, states: list[NodeState]) -> None:
    """`held_by` has the very figures of `held`."""
    held = policy.held(columns_of(states, 8))
    assert [policy.held_by(state) for state in states] == list(
        zip(held.fixed.tolist(), held.slots.tolist(), strict=True)
    )


@pytest.mark.parametrize("much", [2**20, 2**27, 2**30, 2**33, 2**40], ids=str)
@pytest.mark.parametrize("count", [1, 8])
def test_a_job_that_requests_more_than_exists_is_learned(much: int, count: int) -> None:
    """The costs of states stay defined after it."""
    rng = random.Random(much)
    states = [
        NodeState(
            rng.randint(-9_000, 130_000),
            rng.randint(-9_000, 600_000),
            1,
            tuple(sorted(rng.choices([1, 500, 1000], k=8))),
        )
        for _ in range(50)
    ]
    for shape in (RequestShape(much, much, count, 1000), RequestShape(much, 1, 1, 1), RequestShape(1, much, 1, 1)):
        policy = learned("fragmentation", shape)
        held = policy.held(columns_of(states, TOPOLOGY_GPUS_MAX))
        assert [policy.held_by(state) for state in states] == list(
            zip(held.fixed.tolist(), held.slots.tolist(), strict=True)
        )
        assert all(
            0 <= fixed <= 4 * 2 * POINTS * sum(state.gpus)
            for fixed, state in zip(held.fixed.tolist(), states, strict=True)
        )


@settings(deadline=None)
@given(
    GPUS, st.sampled_from([(0, 0), (1, 190), (1, 330), (1, 500), (1, 1000), (2, 330), (2, 1000), (3, 500), (8, 1000)])
)
def test_gpus_have_the_choices_that_differ(rests: tuple[int, ...], wanted: tuple[int, int]) -> None:
    """Each once, the fullest GPU first."""
    lattice = Lattice()
    gpus = lattice.gpus(1, Grain(), rests)
    for _ in range(2):  # worked out, and looked up
        assert [(rest, after.rests) for rest, after in gpus.choices(*wanted)] == choices_of(rests, *wanted)
    assert all(after is lattice.gpus(1, Grain(), after.rests) for _, after in gpus.choices(*wanted))
