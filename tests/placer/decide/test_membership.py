"""Nodes: joining, loss and return, new journals and boots, cordon and drain."""

from fairlead_bus.core import Input
from fairlead_placer.decide.reports import RefusedReport
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode, UncordonNode, Undecodable
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import SECOND, cluster, inventory, names, placed, request


def test_a_node_joins_with_its_first_report() -> None:
    """Inventory number 1 of an unknown journal makes a node; the cursor says so."""
    world = cluster(0)
    [joined] = world.join("n1", 4)
    assert isinstance(joined, ev.NodeJoined)
    assert len(joined.inventory.gpus) == 4
    assert world.log[-1].cursors == {"report.n1": 1}


def test_an_agent_that_restarts_changes_nothing() -> None:
    """The same inventory and boot again: the number moves, no event."""
    world = cluster(1)
    world.offer(request(1))
    assert world.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("n1"))) == []
    assert world.core.state.nodes["n1"].reported == 2
    assert "1.1" in world.core.state.runs


def test_a_new_inventory_is_a_change() -> None:
    """A GPU fewer: the free count follows, the running job stays."""
    world = cluster(1)
    world.offer(request(1))
    [changed] = world.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("n1", 7)))
    assert isinstance(changed, ev.NodeChanged)
    assert world.core.state.nodes["n1"].gpus_free == 6


def test_a_held_gpu_that_left_the_inventory_is_not_freed() -> None:
    """It belongs to its run until released, and to no run afterwards."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("n1", 0)))
    world.exit("n1", "1")
    node = world.core.state.nodes["n1"]
    assert (node.gpus_free, node.held) == (0, {})


def test_a_reboot_ends_what_ran_on_the_old_boot() -> None:
    """Another boot id under the same journal: the runs end as rebooted and their parts are free."""
    world = cluster(1)
    world.offer(request(8))
    events = world.report("n1", InventorySeen(n=0, boot_id="boot-2", inventory=inventory("n1")))
    assert names(events) == ["RunEnded", "NodeChanged"]
    ended = events[0]
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.released) == ("node_rebooted", ("n1",))


def test_a_new_journal_ends_the_runs_of_the_old_one() -> None:
    """A new incarnation joins again, with numbers from 1; the runs of its predecessor cannot continue."""
    world = cluster(1)
    world.offer(request(8))
    events = world.join("n1", incarnation="other")
    assert names(events) == ["RunEnded", "NodeJoined"]
    ended = events[0]
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.released) == ("exit_unknown", ("n1",))
    assert world.core.state.nodes["n1"].reported == 1


def test_a_replaced_agent_cannot_come_back() -> None:
    """Two live hosts under one name: the newest journal wins, and the older one is not taken for a newer."""
    world = cluster(0)
    world.join("n1", incarnation="old")
    world.join("n1", incarnation="new")
    assert world.join("n1", incarnation="old") == []
    assert world.core.state.nodes["n1"].incarnation == "new"


def test_only_an_inventory_numbered_1_makes_a_node() -> None:
    """Later reports of an unknown journal wait until the first has come."""
    world = cluster(1)
    world.incarnations["n1"] = "other"
    assert world.exit("n1", "1") == []
    assert world.core.state.nodes["n1"].incarnation != "other"


def test_a_silent_node_is_lost_and_its_runs_end_without_release() -> None:
    """The job may go elsewhere; what the node held stays held."""
    world = cluster(1)
    world.offer(request(1))
    events = world.silent("n1")
    assert names(events) == ["NodeLost", "RunEnded"]
    ended = events[1]
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.released) == ("node_lost", ())
    assert world.core.state.nodes["n1"].gpus_free == 7


def test_a_lost_node_gets_no_work() -> None:
    """Free GPUs of a lost node are no capacity."""
    world = cluster(1)
    world.silent("n1")
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"lost": 1}


def test_a_returned_node_gives_back_what_its_agent_reports_clean() -> None:
    """Return makes the free rest usable; the held part follows on evidence, though its run is long ended."""
    world = cluster(1, 2)
    world.offer(request(1))
    world.silent("n1")
    assert names(world.heard("n1")) == ["NodeReturned"]
    assert world.core.state.nodes["n1"].gpus_free == 1
    assert world.stops("n1") == {"1.1": "ended"}
    events = world.exit("n1", "1", outcome="stopped", exit_code=None)
    assert events == [ev.AllocationReleased(cause="report:n1:2", job="1", attempt=1, node="n1")]
    assert world.core.state.nodes["n1"].gpus_free == 2


def test_a_report_brings_a_lost_node_back() -> None:
    """Any report of its agent is a word from the node."""
    world = cluster(1)
    world.offer(request(1))
    world.silent("n1")
    assert names(world.exit("n1", "1")) == ["NodeReturned", "AllocationReleased"]


def test_a_lost_node_that_joins_again_releases_its_part() -> None:
    """A new journal (or boot) is evidence that no process remains."""
    world = cluster(1)
    world.offer(request(8))
    world.silent("n1")
    assert names(world.join("n1", boot="boot-2")) == ["AllocationReleased", "NodeJoined"]
    assert world.core.state.nodes["n1"].gpus_free == 8


def test_a_gang_that_loses_a_node_stops_on_the_others() -> None:
    """The lost rank decides the outcome; the rest is stopped and ends the run."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    assert names(world.silent("n2")) == ["NodeLost", "RankEnded"]
    assert world.stops("n1") == {"1.1": "rank_failed"}
    [ended] = world.exit("n1", "1", 0, outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.rank) == ("node_lost", 1)


def test_silence_twice_is_one_loss() -> None:
    """A lost node cannot be lost again, and an unknown one cannot be lost."""
    world = cluster(1)
    world.silent("n1")
    assert world.silent("n1") == []
    assert world.silent("n9") == []
    assert world.heard("n9") == []


def test_a_cordon_keeps_runs_and_accepts_no_new_work() -> None:
    """Running jobs continue and offered jobs wait; after the uncordon they are placed."""
    world = cluster(1)
    world.offer(request(1))
    assert names(world.command(CordonNode(id="c1", user="ops", node="n1", reason="dust"))) == ["NodeCordoned"]
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"cordoned": 1}
    assert names(world.command(UncordonNode(id="c2", node="n1"))) == ["NodeUncordoned", "JobPlaced"]


def test_a_second_cordon_without_a_reason_keeps_the_first_reason() -> None:
    """A reason ends only with another reason or with the cordon, not with a second cordon."""
    world = cluster(1)
    world.command(CordonNode(id="c1", user="ops", node="n1", reason="dust"))
    world.command(CordonNode(id="c2", user="ada", node="n1"))
    assert (world.core.state.nodes["n1"].reason, world.core.state.nodes["n1"].by) == ("dust", "ada")
    world.command(CordonNode(id="c3", user="ada", node="n1", reason="fan"))
    assert world.core.state.nodes["n1"].reason == "fan"
    world.command(UncordonNode(id="c4", node="n1"))
    world.command(CordonNode(id="c5", user="ada", node="n1"))
    assert world.core.state.nodes["n1"].reason == ""


def test_every_command_is_answered() -> None:
    """An unknown node and bytes that are no command lead to an event under the command's id; the cursor moves."""
    world = cluster(1)
    events = world.command(
        CordonNode(id="c1", node="n9"),
        Undecodable(digest="ab" * 32, message="not JSON", id="c2"),
        Undecodable(digest="cd" * 32, message="not JSON"),
    )
    assert [(e.cause, e.code) for e in events if isinstance(e, ev.NodeCommandRejected)] == [
        ("cmd:c1", "not_found"),
        ("cmd:c2", "undecodable"),
        ("cmd:cdcdcdcdcdcdcdcd", "undecodable"),
    ]
    assert world.log[-1].cursors == {"CMD": 1}


def test_a_drain_without_deadline_waits_for_the_runs() -> None:
    """Draining until the last part is released, then drained, caused by the command that asked."""
    world = cluster(1)
    world.offer(request(1))
    assert names(world.command(DrainNode(id="d1", user="ops", node="n1"))) == ["NodeDraining"]
    assert world.core.wake_at() is None
    assert world.stops("n1") == {"1.1": ""}
    events = world.exit("n1", "1")
    assert names(events) == ["RunEnded", "NodeDrained"]
    assert events[1].cause == "cmd:d1"


def test_an_empty_node_drains_at_once() -> None:
    """One commit holds both events."""
    world = cluster(1)
    assert names(world.command(DrainNode(id="d1", node="n1", deadline_ns=SECOND))) == ["NodeDraining", "NodeDrained"]


def test_at_its_deadline_a_drain_stops_the_runs() -> None:
    """The core wakes at the deadline, marks the orders, and the end says that a drain asked for it."""
    world = cluster(1)
    world.offer(request(1))
    world.command(DrainNode(id="d1", node="n1", deadline_ns=60 * SECOND))
    assert world.core.wake_at() == world.now + 60 * SECOND
    assert world.stops("n1") == {"1.1": ""}
    world.now += 60 * SECOND
    assert names(world.step()) == ["NodeDraining"]
    assert world.core.wake_at() is None
    assert world.stops("n1") == {"1.1": "drained"}
    events = world.exit("n1", "1", outcome="stopped", exit_code=None)
    assert names(events) == ["RunEnded", "NodeDrained"]
    assert isinstance(events[0], ev.RunEnded)
    assert events[0].drained


def test_a_cancel_outranks_a_drain() -> None:
    """A job that a person cancelled is not requeued because its node was draining."""
    world = cluster(1)
    world.offer(request(1))
    world.command(DrainNode(id="d1", node="n1", deadline_ns=SECOND))
    world.now += SECOND
    world.step()
    world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=1, reason="cancelled"))
    events = world.exit("n1", "1", outcome="stopped", exit_code=None)
    assert isinstance(events[0], ev.RunEnded)
    assert not events[0].drained


def test_cordon_and_drain_outlive_the_agent() -> None:
    """A new journal does not lift what a person has set."""
    world = cluster(1)
    world.command(CordonNode(id="c1", node="n1"))
    world.join("n1", incarnation="other")
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)


def test_refused_bytes_become_an_event() -> None:
    """An invalid report of a node is recorded by its digest."""
    world = cluster(1)
    [rejected] = world.step(Input("refused", 0, RefusedReport("n1", "wrong_node", "expected n1, found n2", "ab")))
    assert rejected == ev.ReportRejected(
        cause="clock", node="n1", code="wrong_node", message="expected n1, found n2", digest="ab"
    )


def test_a_loss_larger_than_a_commit_is_done_in_several() -> None:
    """More runs than fit one commit: each commit is bounded, wake_at asks for the next, all of them end."""
    world = cluster(1, 0, cpu=1200)
    for _ in range(12):
        world.queue(*(event for _ in range(100) for event in world.submitted(request(0, memory_gib=0))))
    assert world.core.state.nodes["n1"].live == 1200
    before = len(world.log)
    events = world.silent("n1")
    assert names(events).count("RunEnded") == 1200
    assert len(world.log) - before >= 2
    assert all(len(commit.events) <= 1000 for commit in world.log)


def test_a_new_journal_over_more_than_a_commit_takes_several() -> None:
    """The inventory report is consumed only with the last part's end; nothing is placed under the dead agent."""
    world = cluster(1, 0, cpu=1200)
    for _ in range(12):
        world.queue(*(event for _ in range(100) for event in world.submitted(request(0, memory_gib=0))))
    world.offer(request(0))
    world.join("n1", 0, incarnation="other", cpu=1200)
    assert world.core.state.nodes["n1"].incarnation != "other"
    again = Input("report", 1, world.first_batch("n1", 0, cpu=1200))
    events = [*world.step(again), *world.step(again)]
    assert world.core.state.nodes["n1"].incarnation == "other"
    assert placed(events) == {"1201": ["n1"]}
