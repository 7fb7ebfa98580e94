"""Rolling upgrades: the budget, whose turn it is, when a node is done, and who may step in."""

import msgspec

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import (
    CancelRollout,
    CordonNode,
    DrainNode,
    FinishRolloutNode,
    PauseRollout,
    ResumeRollout,
    ScheduleMaintenance,
    StartRollout,
    UncordonNode,
)
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, inventory, names, request


def start(world: PlacerWorld, budget: int, **more: object) -> list[ev.Event]:
    wish: dict[str, object] = {"every": True} | more
    return world.command(StartRollout(id="r", user="ops", name="driver", budget_gpus=budget, **wish))  # type: ignore[arg-type]


def steps(events: list[ev.Event]) -> list[tuple[str, str]]:
    """(node, step) of each advance."""
    return [(event.node, event.step) for event in events if isinstance(event, ev.RolloutAdvanced)]


def reboot(world: PlacerWorld, node: str) -> list[ev.Event]:
    """The node comes back under another boot."""
    return world.report(node, InventorySeen(n=0, boot_id=f"boot-{world.now}-2", inventory=inventory(node)))


def test_nodes_are_drained_and_returned_within_the_budget() -> None:
    """Two of four at a time; each that shows another boot makes room for the next; the last one ends it."""
    world = cluster(4)
    events = start(world, 16)
    assert steps(events) == [("n1", "draining"), ("n2", "draining")]
    assert steps(reboot(world, "n1")) == [("n1", "returned"), ("n3", "draining")]
    assert steps(reboot(world, "n3")) == [("n3", "returned"), ("n4", "draining")]
    reboot(world, "n2")
    events = reboot(world, "n4")
    assert names(events)[-2:] == ["NodeUncordoned", "RolloutEnded"]
    assert world.core.state.rollouts == {}
    assert world.core.state.closed == set()


def test_a_node_out_of_service_for_another_reason_counts() -> None:
    """The budget counts GPUs that accept no work, for any reason."""
    world = cluster(4)
    world.command(CordonNode(id="c", node="n4"))
    assert steps(start(world, 16)) == [("n1", "draining")]
    world.silent("n2")
    assert steps(reboot(world, "n1")) == [("n1", "returned")]
    assert steps(world.command(UncordonNode(id="u", node="n4"))) == [("n3", "draining")]
    assert steps(world.heard("n2")) == [("n2", "draining")]


def test_running_work_is_waited_for_and_empty_nodes_go_first() -> None:
    """Long runs are left to finish: their nodes come last, and a reboot before they are empty is not the upgrade."""
    world = cluster(2)
    world.offer(request(1))
    assert steps(start(world, 8)) == [("n2", "draining")]
    assert steps(reboot(world, "n2")) == [("n2", "returned"), ("n1", "draining")]
    assert world.stops("n1") == {"1.1": ""}
    assert world.core.wake_at() is None
    assert names(world.exit("n1", "1")) == ["RunEnded", "NodeDrained"]
    assert steps(reboot(world, "n1")) == [("n1", "returned")]


def test_a_rollout_may_stop_long_runs_at_the_deadline() -> None:
    """With their grace; they are requeued."""
    world = cluster(1)
    world.offer(request(1))
    start(world, 8, deadline_ns=60 * SECOND, stop_long=True)
    assert world.core.wake_at() == world.now + 60 * SECOND
    world.now += 60 * SECOND
    world.step()
    assert world.stops("n1") == {"1.1": "drained"}


def test_nodes_whose_runs_end_in_time_go_first() -> None:
    """By the known limit; a run without one may last indefinitely."""
    world = cluster(2)
    submitted, offered = world.submitted(request(8))
    world.queue(submitted, offered)
    submitted, offered = world.submitted(request(8))
    world.queue(msgspec.structs.replace(submitted, total_ns=60 * SECOND), offered)
    assert steps(start(world, 8, deadline_ns=600 * SECOND)) == [("n2", "draining")]


def test_wanted_labels_say_what_is_done() -> None:
    """One that has them already has no turn; another boot without them is not enough."""
    world = cluster(2)
    world.join("n3", labels={"driver": "580"})
    assert steps(start(world, 8, want=("driver=580",))) == [("n1", "draining")]
    assert steps(reboot(world, "n1")) == []
    done = InventorySeen(n=0, boot_id="b9", inventory=inventory("n1", labels={"driver": "580"}))
    assert steps(world.report("n1", done)) == [("n1", "returned"), ("n2", "draining")]
    done = InventorySeen(n=0, boot_id="b9", inventory=inventory("n2", labels={"driver": "580"}))
    events = world.report("n2", done)
    assert steps(events) == [("n2", "returned"), ("n3", "skipped")]
    assert names(events)[-1] == "RolloutEnded"


def test_a_person_says_that_a_node_is_done() -> None:
    """Not before it is empty."""
    world = cluster(2)
    world.offer(request(1))
    start(world, 16)
    [rejected] = world.command(FinishRolloutNode(id="f", name="driver", node="n1"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_drained"
    events = world.command(FinishRolloutNode(id="f", name="driver", node="n2"))
    assert names(events) == ["RolloutAdvanced", "NodeUncordoned"]
    assert events[1].cause == "cmd:f"


def test_a_person_may_take_a_node_out_of_its_hands() -> None:
    """Drained or returned by a person, it is left to that person."""
    world = cluster(3)
    start(world, 24)
    assert ("n1", "left") in steps(world.command(DrainNode(id="d", node="n1")))
    assert ("n2", "left") in steps(world.command(UncordonNode(id="u", node="n2")))
    assert ("n3", "left") in steps(world.command(CordonNode(id="c", user="ops", node="n3")))
    assert world.core.state.rollouts == {}
    assert sorted(world.core.state.closed) == ["n1", "n3"]


def test_a_paused_rollout_begins_nothing_and_a_cancelled_one_returns_nodes() -> None:
    """Nodes in progress are returned when they are done, paused or not."""
    world = cluster(3)
    start(world, 8)
    world.command(PauseRollout(id="p", name="driver"))
    assert steps(reboot(world, "n1")) == [("n1", "returned")]
    assert steps(world.command(ResumeRollout(id="q", name="driver"))) == [("n2", "draining")]
    events = world.command(CancelRollout(id="x", user="ops", name="driver"))
    assert names(events) == ["RolloutEnded", "NodeUncordoned"]
    assert world.core.state.closed == set()


def test_the_number_of_nodes_in_progress_is_bounded() -> None:
    """In addition to the budget of GPUs, for nodes without any."""
    world = cluster(3, 0)
    assert steps(start(world, 0, nodes_max=2)) == [("n1", "draining"), ("n2", "draining")]


def test_a_window_holds_what_a_rollout_would_return() -> None:
    """Upgraded during the maintenance, it comes back with its end."""
    world = cluster(2)
    start(world, 8)
    world.command(
        ScheduleMaintenance(
            id="m", name="m", nodes=("n1",), starts_ns=world.now + SECOND, ends_ns=world.now + 100 * SECOND
        )
    )
    world.now += SECOND
    world.step()
    assert steps(reboot(world, "n1")) == []
    world.now += 100 * SECOND
    assert ("n1", "returned") in steps(world.step())


def test_invalid_rollouts_are_refused() -> None:
    """A budget below one node's GPUs, a duplicated name, nodes that wait in another, one that does not run."""
    world = cluster(2)
    found = start(world, 7)
    start(world, 8)
    found += start(world, 8)
    again = StartRollout(id="s", name="other", budget_gpus=8, nodes=("n2",))
    found += world.command(again, PauseRollout(id="p", name="x"), ResumeRollout(id="q", name="driver"))
    found += world.command(CancelRollout(id="c", name="x"), FinishRolloutNode(id="f", name="x", node="n1"))
    codes = [e.code for e in found if isinstance(e, ev.NodeCommandRejected)]
    assert codes == ["budget_too_small", "exists", "exists", "not_found", "not_found", "not_found", "not_found"]
