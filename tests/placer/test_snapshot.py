"""Snapshots: canonical and whole; a restored core continues identically."""

from fairlead_placer.core import PlacerCore
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode
from tests.kit.placer_world import PlacerWorld, cluster, inventory, names, request


def busy() -> PlacerWorld:
    """A little of everything."""
    world = cluster(4)
    world.offer(request(8, nodes=2))
    world.offer(request(3), spec=b'{"command":["x"]}')
    world.offer(request(64))
    world.start("n1", "1", 0)
    world.exit("n2", "1", 1, exit_code=1, clean=False)
    world.command(CordonNode(id="c", node="n4", user="ops", reason="dust"))
    world.fold("queue", list(world.submitted(request(1))))
    world.fold("queue", [ev.JobStopRequested(cause="cmd:9", job="3", attempt=1, reason="cancelled")])
    return world


def test_a_snapshot_restores_to_itself() -> None:
    """dump(load(dump)) is byte-equal."""
    shot = busy().core.snapshot()
    assert PlacerCore.restore(shot).snapshot() == shot


def test_a_restored_core_decides_alike() -> None:
    """The same next decision, the same next state."""
    world = busy()
    restored = PlacerCore.restore(world.core.snapshot())
    decision = world.decide()
    assert names(decision.events) == ["OfferReturned", "JobPlaced"]
    assert restored.decide((), world.now) == decision


def test_fold_of_the_log_is_the_live_state() -> None:
    """A new core over the same log ends in the same bytes (I7)."""
    world = busy()
    world.step()
    fresh = PlacerCore()
    for sequence, commit in enumerate(world.log, 1):
        fresh.evolve(sequence, commit)
    assert fresh.snapshot() == world.core.snapshot()


def test_reported_causes_of_a_class_survive() -> None:
    """After a restart a parked class is not reported again."""
    world = cluster(1, 1)
    world.offer(request(2))
    restored = PlacerCore.restore(world.core.snapshot())
    assert restored.decide((), world.now).events == []


def test_snapshots_do_not_depend_on_order() -> None:
    """Nodes and jobs that came in another order give the same bytes."""
    one, two = cluster(0), cluster(0)
    for world, order in ((one, ("n1", "n2", "n3")), (two, ("n3", "n1", "n2"))):
        for node in order:
            world.join(node, incarnation=f"{node}-a")
    submitted = [one.submitted(request(gpus))[0] for gpus in (1, 2, 3)]
    one.fold("queue", list(submitted))
    two.fold("queue", list(reversed(submitted)))
    assert one.core.snapshot() == two.core.snapshot()


def test_a_node_that_has_fewer_gpus_than_are_held_of_it_survives() -> None:
    """Found by the stateful test: eight are held, two are left in the inventory."""
    world = cluster(1)
    world.offer(request(8))
    world.fold("placer", [ev.NodeChanged(cause="report:n1:9", node="n1", boot_id="b1", inventory=inventory("n1", 2))])
    shot = world.core.snapshot()
    assert PlacerCore.restore(shot).snapshot() == shot
