"""A pool's packing policy, as the queue file sets it: which of the nodes that could take a job gets it."""

import pytest

from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.core import PlacerCore
from fairlead_placer.packing.policies import POLICIES
from fairlead_schemas.queuefile.settings import PACKINGS, POOL_LABEL, Packing, PoolSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import PlacerWorld, inventory, placed, request


def configured(packing: Packing, pool: str = "default") -> ev.PoolConfigured:
    """The pool is set so, and otherwise as usual."""
    return ev.PoolConfigured(cause="cmd:q", pool=pool, settings=PoolSettings(packing=packing))


def two_nodes() -> PlacerWorld:
    """Two nodes of 4 GPUs; a has a job of one."""
    world = PlacerWorld()
    for name in "ab":
        world.join(name, 4)
    assert placed(world.offer(request(1))) == {"1": ["a"]}
    return world


def policy_of(world: PlacerWorld, pool: str = "default") -> str:
    """Return the pool's policy."""
    return world.core.state.pools.each()[pool].policy


def test_names_of_policies_equal_the_contract() -> None:
    """Each name that a queue file may contain exists."""
    assert tuple(POLICIES) == PACKINGS


@pytest.mark.parametrize("name", PACKINGS)
def test_each_places_jobs(name: Packing) -> None:
    """By its own costs: spread takes the empty node, the tightest fit is the other."""
    world = two_nodes()
    world.queue(configured(name))
    assert policy_of(world) == name
    node = placed(world.offer(request(1)))["2"]
    assert node == ["b"] if name == "spread" else node in (["a"], ["b"])
    if name in ("most_allocated", "weights"):
        assert node == ["a"]


def test_a_change_voids_what_the_old_one_cost() -> None:
    """The next job goes by the new one, and by the old one again when it is set back or the pool is removed."""
    world = two_nodes()
    assert placed(world.offer(request(1))) == {"2": ["a"]}
    world.queue(configured("spread"))
    assert placed(world.offer(request(1))) == {"3": ["b"]}
    world.queue(configured("most_allocated"))
    assert placed(world.offer(request(1))) == {"4": ["a"]}
    world.queue(configured("spread"))
    world.queue(ev.PoolRemoved(cause="cmd:q", pool="default"))
    assert (policy_of(world), world.core.state.packings) == ("fragmentation", {})


def test_a_job_may_say_otherwise() -> None:
    """Its own `placement` goes before the pool's."""
    world = two_nodes()
    world.queue(configured("spread"))
    assert placed(world.offer(request(1, packing="pack"))) == {"2": ["a"]}


def test_of_that_pool_alone() -> None:
    """Also when its nodes come later, and when the last of them has left and another comes."""
    world = two_nodes()
    world.queue(configured("spread", "side"))
    for name in "xy":
        world.join(name, 4, labels={POOL_LABEL: "side"})
    assert (policy_of(world), policy_of(world, "side")) == ("fragmentation", "spread")
    for name in "xy":
        world.report(name, InventorySeen(n=0, boot_id="b", inventory=inventory(name, 4)))
    assert "side" not in world.core.state.pools.each()
    assert policy_of(world) == "fragmentation"
    world.report("y", InventorySeen(n=0, boot_id="b", inventory=inventory("y", 4, labels={POOL_LABEL: "side"})))
    assert policy_of(world, "side") == "spread"


def test_it_is_in_the_snapshot() -> None:
    """A restored placer decides alike."""
    world = two_nodes()
    world.queue(configured("spread"))
    restored = PlacerCore.restore(world.core.snapshot())
    assert restored.snapshot() == world.core.snapshot()
    assert restored.state.pools.each()["default"].policy == "spread"
    world.core = restored
    assert placed(world.offer(request(1))) == {"2": ["b"]}


def test_speculative_changes_are_undone() -> None:
    """Like every change of the state."""
    state: ClusterState = two_nodes().core.state
    with state.trying():
        state.pack("default", "spread")
        assert state.pools.each()["default"].policy == "spread"
    assert (state.pools.each()["default"].policy, state.packings) == ("fragmentation", {})
