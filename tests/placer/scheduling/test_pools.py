"""Pools: a node belongs to one by its label, a request names one, and the two must be the same."""

import pytest

from fairlead_placer.core import PlacerCore
from fairlead_placer.scheduling import allocate
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import PlacerWorld, inventory, names, placed, request

BIG = {POOL_LABEL: "big"}


def two_pools() -> PlacerWorld:
    """a and b in the default pool, x in "big"."""
    world = PlacerWorld()
    world.join("a", 2)
    world.join("b", 2)
    world.join("x", 8, labels=BIG)
    return world


@pytest.mark.parametrize(("pool", "node"), [("", "a"), ("default", "a"), ("big", "x")])
def test_a_request_is_placed_in_its_pool_only(pool: str, node: str) -> None:
    """The default pool has every node without the label, under both of its names."""
    world = two_pools()
    assert placed(world.offer(request(2, pool=pool))) == {"1": [node]}


def test_capacity_of_other_pools_does_not_count() -> None:
    """A job that would fit elsewhere waits, and the refusal names only the request's pool."""
    world = two_pools()
    [refused] = world.offer(request(8))
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.nodes, refused.reasons) == (2, {"gpus": 2})
    assert (refused.gpu_milli_free, refused.gpu_milli_total) == (4000, 4000)
    [refused] = world.offer(request(8, nodes=2, pool="big"))
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.nodes, refused.fitting, refused.gpu_milli_total) == (1, 1, 8000)


def test_a_pool_without_nodes_is_reported_as_such() -> None:
    """No node and no reason are given; the job is placed with the first node that joins."""
    world = two_pools()
    [refused] = world.offer(request(1, pool="new"))
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.nodes, refused.reasons, refused.gpu_milli_total) == (0, {}, 0)
    assert placed(world.join("n", labels={POOL_LABEL: "new"})) == {"1": ["n"]}


def test_constraints_hold_within_the_pool() -> None:
    """A label of the selector on a node of another pool does not help."""
    world = two_pools()
    world.join("y", 8, labels={**BIG, "disk": "nvme"})
    assert placed(world.offer(request(1, pool="big", selector=("disk=nvme",)))) == {"1": ["y"]}
    [refused] = world.offer(request(1, selector=("disk=nvme",)))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"selector": 2}


def test_a_node_moves_to_another_pool() -> None:
    """Its label changed: what runs stays, what is free is the other pool's, and who waits there is placed."""
    world = two_pools()
    world.offer(request(1))
    world.offer(request(2, nodes=2, pool="big"))
    moved = InventorySeen(n=0, boot_id="boot-1", inventory=inventory("b", 2, labels=BIG))
    events = world.report("b", moved)
    assert names(events) == ["NodeChanged", "JobPlaced"]
    assert placed(events) == {"2": ["b", "x"]}
    assert "1.1" in world.core.state.runs
    [refused] = world.offer(request(2))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.nodes == 1


def test_a_closed_node_moves_too() -> None:
    """A cordoned node that held something changes its pool and gives back there; no trace is left in the old one."""
    world = two_pools()
    world.offer(request(2))
    world.offer(request(2))
    world.command(CordonNode(id="c", node="a"))
    world.report("a", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("a", 2, labels={POOL_LABEL: "small"})))
    world.exit("a", "1")
    [refused] = world.offer(request(2, pool="small"))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"cordoned": 1}


def test_jobs_of_a_pool_that_loses_its_last_node_are_refused_again() -> None:
    """The new refusal counts no node."""
    world = two_pools()
    world.offer(request(16, pool="big"))
    events = world.report("x", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("x", 8)))
    assert names(events) == ["NodeChanged", "JobUnplaceable"]
    assert isinstance(events[1], ev.JobUnplaceable)
    assert events[1].nodes == 0


def test_pools_survive_a_restart() -> None:
    """They follow from the inventories."""
    world = two_pools()
    world.core = PlacerCore.restore(world.core.snapshot())
    assert placed(world.offer(request(1, pool="big"))) == {"1": ["x"]}


def test_another_pools_gain_retries_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is tried again only if its own pool has gained."""
    world = two_pools()
    world.offer(request(8, pool="big"))
    world.offer(request(2))
    world.offer(request(3, pool="big"))
    tried: list[str] = []
    find = allocate.find
    monkeypatch.setattr(allocate, "find", lambda state, wanted: tried.append(wanted.pool) or find(state, wanted))
    world.exit("a", "2")
    assert tried == []
    world.exit("x", "1")
    assert "big" in tried
