"""Nodes that are removed for good: when that is refused, what is forgotten, and how they come back."""

import msgspec

from fairlead_placer.core import PlacerCore
from fairlead_schemas.policies.partitions import NEVER_NS, OnPartition
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import (
    DeclareNodeDead,
    DrainNode,
    RemoveNode,
    ScheduleMaintenance,
    StartRollout,
    TaintNode,
)
from fairlead_schemas.wire.reports import HealthSeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, names, placed, request

REMOVE = RemoveNode(id="r", user="ada", node="n1", reason="sold")
REMOVED = ev.NodeRemoved(cause="cmd:r", node="n1", by="ada", reason="sold")
STRICT = OnPartition(replace_after_ns=NEVER_NS)


def refused(world: PlacerWorld, code: str) -> str:
    """Return the reason why the node is not removed."""
    before = world.core.state.nodes.keys()
    [rejected] = world.command(REMOVE)
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert (rejected.code, world.core.state.nodes.keys()) == (code, before)
    return rejected.message


def test_a_node_with_a_lease_is_not_removed_and_the_refusal_has_the_command() -> None:
    """It would only join again, without the drain: its agent must have ended."""
    world = cluster(2)
    assert "fairlead drain n1, then stop its agent" in refused(world, "not_lost")
    world.command(DrainNode(id="d", node="n1"))
    message = refused(world, "not_lost")
    assert "fairlead drain" not in message and "stop its agent" in message


def test_a_lost_node_with_possible_runs_is_not_removed_without_proof() -> None:
    """A strict job waits for proof, and a gang continues elsewhere."""
    world = cluster(2)
    submitted, offered = world.submitted(request(8, nodes=2))
    world.queue(msgspec.structs.replace(submitted, on_partition=STRICT), offered)
    world.silent("n1")
    message = refused(world, "not_empty")
    assert "found job 1 on n1" in message and "fairlead declare-dead n1" in message
    world.command(DeclareNodeDead(id="d", node="n1"))
    assert "found job 1" in refused(world, "not_empty"), "its other rank is still there"
    world.exit("n2", "1", 1)
    assert names(world.command(REMOVE)) == ["AllocationReleased", "NodeRemoved"]


def test_a_removed_node_is_forgotten_with_all_its_state() -> None:
    """Devices that were never reported clean are forgotten; so are its taints, faults and plans. Other nodes are
    unchanged."""
    world = cluster(2)
    assert placed(world.offer(request(1))) == {"1": ["n1"]}
    assert placed(world.offer(request(8))) == {"2": ["n2"]}
    world.command(TaintNode(id="t", node="n1", taint="mine=yes:PreferNoSchedule"))
    starts_ns = world.now + 1000 * SECOND
    world.command(
        ScheduleMaintenance(
            id="m", name="cooling", nodes=("n1", "n2"), starts_ns=starts_ns, ends_ns=starts_ns + SECOND
        ),
        StartRollout(id="s", name="driver", every=True, budget_gpus=8),
    )
    world.report("n1", HealthSeen(n=0, gpu="n1-g7", code="thermal", evidence="seen"))
    world.silent("n1")
    held = sorted(world.core.state.nodes["n1"].held)
    released, removed, *others = world.command(REMOVE)
    assert names(others) == ["RolloutAdvanced", "NodeDraining"], "it is no more in the rollout's way"
    assert released == ev.AllocationReleased(cause="cmd:r", job=held[0].partition(".")[0], attempt=1, node="n1")
    assert removed == REMOVED
    state = world.core.state
    assert (sorted(state.nodes), list(state.removed)) == (["n2"], ["n1"])
    assert (state.windows["cooling"].nodes, state.rollouts["driver"].nodes) == (("n2",), ("n2",))
    assert all(part.node != "n1" for run in state.runs.values() for part in run.parts)
    [rejected] = world.command(REMOVE)
    assert isinstance(rejected, ev.NodeCommandRejected) and rejected.code == "not_found"


def test_the_last_node_of_a_pool_takes_the_pool_with_it() -> None:
    """Waiting jobs are refused again; a node that joins later is found."""
    world = cluster(1)
    world.silent("n1")
    [unplaceable] = world.offer(request(1))
    assert isinstance(unplaceable, ev.JobUnplaceable) and unplaceable.nodes == 1
    events = world.command(REMOVE)
    assert names(events) == ["NodeRemoved", "JobUnplaceable"]
    assert isinstance(events[1], ev.JobUnplaceable) and events[1].nodes == 0
    assert placed(world.join("n9")) == {"1": ["n9"]}


def test_a_removed_node_comes_back_under_a_new_journal_only() -> None:
    """Its old one has numbers and runs of a past that is closed; a new one clears up first, and nothing of before holds."""
    world = cluster(2)
    old = world.incarnations["n1"]
    world.command(DrainNode(id="d", node="n1"))
    world.silent("n1")
    world.command(REMOVE)
    assert world.join("n1", incarnation=old) == []
    assert world.heard("n1") == []
    assert names(world.join("n1", incarnation="new")) == ["NodeJoined"]
    node = world.core.state.nodes["n1"]
    assert (node.open, node.superseded, world.core.state.removed) == (True, (old,), {})
    assert world.join("n1", incarnation=old) == []


def test_a_removal_survives_a_snapshot_and_can_be_taken_back() -> None:
    """A try that is undone leaves the state as it was (see `PlacerWorld.decide`), and what is folded restores to itself."""
    world = PlacerWorld(PlacerCore())
    for name in ("n1", "n2"):
        world.join(name)
    world.silent("n1")
    assert names(world.command(REMOVE)) == ["NodeRemoved"]
    data = world.core.snapshot()
    again = PlacerCore.restore(data)
    assert again.snapshot() == data
    assert again.state.removed.keys() == {"n1"}


def test_a_lost_node_that_is_removed_counts_no_more_for_the_breaker() -> None:
    """A fifth of the nodes that are there is what may be lost at once."""
    world = cluster(10)
    for name in ("n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10"):
        world.silent(name)
        world.now += 61 * SECOND
        assert names(world.command(RemoveNode(id=name, node=name))) == ["NodeRemoved"]
    assert len(world.core.state.nodes) == 2
    assert world.core.state.tripped == {}
