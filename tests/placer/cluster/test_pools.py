"""Gains: which waiting jobs look again when a node has more than before."""

from fairlead_placer.cluster.pools import Pools
from tests.kit.placer_world import request
from tests.placer.cluster.capacity.ground import Ground, machine


def test_a_node_that_gained_and_moved_does_not_belong_to_its_old_pool() -> None:
    """In the old pool its row may be missing: a search there does not fail and does not find the node."""
    ground = Ground()
    pools: Pools = ground.state.pools
    ground.join(machine("a", 1))
    moving = ground.join(machine("b", 1))
    for name, gpus in (("x", 2), ("y", 4), ("z", 8)):
        ground.join(machine(name, gpus, labels={"fairlead/pool": "big"}))
    whole = request(1)
    pools.of(whole)
    pools.gained(moving)
    ground.state.change(moving, inventory=machine("b", 1, labels={"fairlead/pool": "big"}))
    pools.of(request(1, pool="big"))
    assert moving.row > 0
    version = pools.version
    pools.gained(ground.state.nodes["a"])
    assert pools.gained_since(whole, ground.state.work_of(whole), version)
    assert not pools.gained_since(whole, ground.state.work_of(whole), pools.version)
