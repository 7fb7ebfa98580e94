"""Maintenance windows: notice, start, end, and who has a node in hand."""

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import (
    CancelMaintenance,
    CordonNode,
    QuarantineNode,
    UncordonNode,
)
from tests.kit.placer_world import SECOND, cluster, names, request
from tests.placer.windows import pass_time, schedule


def test_a_window_drains_at_its_notice_stops_at_its_start_and_returns_at_its_end() -> None:
    """The core wakes for each of the three; the node carries the window's reason."""
    world = cluster(2)
    world.offer(request(1))
    begun = world.now
    assert names(schedule(world, "n1")) == ["MaintenanceScheduled"]
    assert world.core.wake_at() == begun + 60 * SECOND
    assert names(pass_time(world, 60)) == ["MaintenanceStarted", "NodeDraining"]
    node = world.core.state.nodes["n1"]
    assert (node.setter, node.by, node.reason) == ("maintenance", "ops", "maintenance cooling: pump")
    assert world.stops("n1") == {"1.1": ""}
    assert world.core.wake_at() == begun + 100 * SECOND
    pass_time(world, 40)
    assert world.stops("n1") == {"1.1": "drained"}
    assert names(world.exit("n1", "1", outcome="stopped", exit_code=None)) == ["RunEnded", "NodeDrained"]
    assert names(pass_time(world, 100)) == ["MaintenanceEnded", "NodeUncordoned"]
    assert world.core.state.nodes["n1"].open
    assert world.core.state.windows == {}


def test_a_window_leaves_alone_what_a_person_has_in_hand() -> None:
    """Cordoned before, it is not drained; taken over meanwhile, it is not returned."""
    world = cluster(3)
    world.command(CordonNode(id="c", node="n1", reason="mine"))
    schedule(world, "n1", "n2", "n3")
    assert names(pass_time(world, 60)) == ["MaintenanceStarted"] + ["NodeDraining"] * 2 + ["NodeDrained"] * 2
    world.command(CordonNode(id="d", user="ops", node="n2", reason="still mine"))
    events = pass_time(world, 140)
    assert [e.node for e in events if isinstance(e, ev.NodeUncordoned)] == ["n3"]
    assert sorted(world.core.state.closed) == ["n1", "n2"]


def test_a_person_may_return_a_node_early() -> None:
    """The window does not drain it a second time."""
    world = cluster(1)
    schedule(world, "n1")
    pass_time(world, 60)
    assert names(world.command(UncordonNode(id="u", node="n1"))) == ["NodeUncordoned"]
    assert pass_time(world, 40) == []
    assert names(pass_time(world, 100)) == ["MaintenanceEnded"]


def test_windows_that_overlap_keep_the_node_until_the_last_has_ended() -> None:
    """The first one's end returns nothing that the second still needs."""
    world = cluster(1)
    schedule(world, "n1", name="a", starts=10, ends=50, notice=0)
    schedule(world, "n1", name="b", starts=20, ends=90, notice=0)
    pass_time(world, 30)
    assert names(pass_time(world, 20)) == ["MaintenanceEnded"]
    assert not world.core.state.nodes["n1"].open
    assert names(pass_time(world, 40)) == ["MaintenanceEnded", "NodeUncordoned"]


def test_a_cancelled_window_gives_back_its_nodes() -> None:
    """Before its notice there is nothing to give back."""
    world = cluster(1)
    for wait, expected in ((0, ["MaintenanceEnded"]), (70, ["MaintenanceEnded", "NodeUncordoned"])):
        schedule(world, "n1")
        pass_time(world, wait)
        assert names(world.command(CancelMaintenance(id="x", user="ops", name="cooling"))) == expected
    assert world.core.wake_at() is None


def test_a_window_that_was_missed_only_ends() -> None:
    """No decision was made between its notice and its end."""
    world = cluster(1)
    schedule(world, "n1")
    assert names(pass_time(world, 500)) == ["MaintenanceEnded"]


def test_nodes_are_chosen_by_name_or_label() -> None:
    """Unknown names, no node at all, times that cannot be and a name twice are refused."""
    world = cluster(2)
    world.join("n3", labels={"row": "2"})
    [event] = schedule(world, "n1", selector=("row=2",))
    assert isinstance(event, ev.MaintenanceScheduled)
    assert event.nodes == ("n1", "n3")
    found = [
        *schedule(world, "n1"),
        *schedule(world, "n9", name="b"),
        *schedule(world, name="c"),
        *schedule(world, "n1", name="d", ends=100),
        *schedule(world, "n1", name="e", starts=-9, ends=-1),
        *schedule(world, "n1", name="No Name"),
        *world.command(CancelMaintenance(id="x", name="z")),
    ]
    codes = [e.code for e in found if isinstance(e, ev.NodeCommandRejected)]
    assert codes == ["exists", "not_found", "bad_nodes", "bad_times", "bad_times", "bad_name", "not_found"]


def test_a_tripped_breaker_holds_the_start_and_the_core_sleeps() -> None:
    """A window that is due and held must not keep the core awake."""
    world = cluster(10)
    schedule(world, "n1")
    world.core.state.tripped["nodes"] = 1
    assert pass_time(world, 90) == []
    assert world.core.wake_at() is None
    world.command(QuarantineNode(id="q", node="n2"))
    assert world.core.state.nodes["n1"].open
