"""Worlds in which people work on the nodes all the time: taints, quarantine, windows, rolling upgrades."""

import pytest

from fairlead_replay.sim.people import Operators
from fairlead_replay.sim.world import Parts, run_seed


@pytest.mark.parametrize("seed", range(1, 9))
def test_every_promise_holds_while_nodes_are_worked_on(seed: int) -> None:
    """Nodes drain, return and are tainted under what runs; every job still reaches its end."""
    assert run_seed(seed, parts=Parts(people=Operators)).violation is None
