"""Runs of a lost node: each ends there when its job says so, strict ones with proof alone."""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_bus.memory import MemoryHub
from fairlead_placer.core import PlacerCore
from fairlead_placer.decide.fencing import next_after_ns
from fairlead_placer.shell.node_link import ReportSource
from fairlead_placer.shell.publisher import DesiredStatePublisher
from fairlead_schemas.policies.partitions import NEVER_NS, OnPartition
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DeclareNodeDead
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, names, request

STRICT = OnPartition(replace_after_ns=NEVER_NS)
LATER = OnPartition(stop_after_ns=200 * SECOND, replace_after_ns=300 * SECOND)


def offer(world: PlacerWorld, job: str, policy: OnPartition, *, nodes: int = 1) -> None:
    """A job with its word about partitions, running."""
    submitted, offered = world.submitted(request(1, nodes=nodes, selector=()), job=job)
    world.queue(msgspec.structs.replace(submitted, on_partition=policy), offered)
    for name, node in list(world.core.state.nodes.items()):
        if f"{job}.1" in node.held:
            world.start(name, job, node.held[f"{job}.1"])


def ended(events: list[ev.Event]) -> list[tuple[str, str]]:
    """(job, outcome) of the runs that ended."""
    return [(e.job, e.outcome) for e in events if isinstance(e, ev.RunEnded)]


@pytest.fixture
def world() -> PlacerWorld:
    """One node, three jobs: as the cluster does, later, strict."""
    made = cluster(1)
    offer(made, "1", OnPartition())
    offer(made, "2", LATER)
    offer(made, "3", STRICT)
    return made


def test_orders_carry_the_lease_of_the_run(world: PlacerWorld) -> None:
    """The time that a run may live without a lease; 0 means the node's own."""
    stops = {run: order.stop_after_ns for run, order in world.orders("n1").items()}
    assert stops == {"1.1": 0, "2.1": 200 * SECOND, "3.1": 0}


def test_each_run_ends_in_its_own_time(world: PlacerWorld) -> None:
    """Counted as it was measured, not by any clock of the log."""
    assert ended(world.silent("n1")) == [("1", "node_lost")]
    state = world.core.state
    assert next_after_ns(state, state.nodes["n1"]) == 300 * SECOND
    world.now += 10**6 * SECOND
    assert world.step() == []
    assert world.step(Input("silent", 0, ("n1", 300 * SECOND - 1))) == []
    assert ended(world.step(Input("silent", 0, ("n1", 300 * SECOND)))) == [("2", "node_lost")]
    assert next_after_ns(state, state.nodes["n1"]) is None
    assert world.step(Input("silent", 0, ("n1", 10**18))) == []


async def test_the_source_says_it_again_when_it_is_time(world: PlacerWorld) -> None:
    """By the clock of silence; the service's own jumps by years meanwhile. A node that speaks is silent no more."""
    hub = MemoryHub()
    actor, clock = DesiredStatePublisher(hub.connect()), [0]
    source = ReportSource(actor, 120 * SECOND, lambda: clock[0])
    await source.open(hub.connect(), world.core, 0, lambda: None)
    taken: list[tuple[int, int]] = []
    for second in range(1, 500, 10):
        clock[0] = second * SECOND
        for item in source.take(second * 10**5 * SECOND):
            taken.append((second, item.body[1] // SECOND))
            world.step(item)
        if not world.core.state.nodes["n1"].lost:
            continue
        wake = source.wake_at()
        assert wake is not None and wake <= second * 10**5 * SECOND + 30 * SECOND
    assert taken == [(121, 120), (301, 300)]
    await source.close()


def test_the_nodes_own_report_is_proof(world: PlacerWorld) -> None:
    """It may return while a strict run is still its own and report the outcome; nothing was ended meanwhile."""
    world.silent("n1")
    assert names(world.heard("n1")) == ["NodeReturned"]
    assert ended(world.exit("n1", "3", outcome="node_lost", exit_code=None)) == [("3", "node_lost")]
    assert world.stops("n1")["2.1"] == ""


def test_a_run_that_is_never_stopped_continues(world: PlacerWorld) -> None:
    """The node returns, and its order never contained a stop."""
    offer(world, "4", OnPartition(stop_after_ns=NEVER_NS, replace_after_ns=NEVER_NS))
    world.silent("n1")
    world.heard("n1")
    assert world.stops("n1")["4.1"] == ""
    assert ended(world.exit("n1", "4")) == [("4", "exited")]


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_reboot_and_a_new_journal_are_proof(world: PlacerWorld, boot: str) -> None:
    """Both end everything that ran there."""
    world.silent("n1")
    outcome = "exit_unknown" if boot == "boot-1" else "node_rebooted"
    assert ended(world.join("n1", boot=boot)) == [("2", outcome), ("3", outcome)]


def test_a_users_declaration_is_proof(world: PlacerWorld) -> None:
    """All waiting runs end; their devices are not free before the agent reports them clean. It counts once."""
    world.silent("n1")
    events = world.command(DeclareNodeDead(id="c1", user="ada", node="n1", reason="its plug is pulled"))
    assert isinstance(events[0], ev.NodeDeclaredDead)
    assert (events[0].by, events[0].reason, events[0].cause) == ("ada", "its plug is pulled", "cmd:c1")
    assert ended(events) == [("2", "node_lost"), ("3", "node_lost")]
    assert len(world.core.state.nodes["n1"].held) == 3
    world.heard("n1")
    assert not world.core.state.nodes["n1"].dead


def test_a_node_that_is_not_lost_is_not_dead(world: PlacerWorld) -> None:
    """A node with a lease is not declared dead. The refusal does not claim recent contact: the node may be silent."""
    (refused,) = world.command(DeclareNodeDead(id="c1", user="ada", node="n1"))
    assert isinstance(refused, ev.NodeCommandRejected) and refused.code == "not_lost"
    assert "n1, whose lease still runs: wait until" in refused.message and "fairlead drain n1" in refused.message


def test_a_job_that_ends_anyway_waits_for_nothing(world: PlacerWorld) -> None:
    """Cancelled, it is started nowhere again: no second of it can be."""
    world.silent("n1")
    stop = ev.JobStopRequested(cause="cmd:c2", job="3", attempt=1, reason="cancelled")
    assert ended(world.queue(stop)) == [("3", "node_lost")]


def test_a_strict_gang_waits_for_its_lost_rank() -> None:
    """Its other rank ends when it ends; the run only with proof of the lost one."""
    world = cluster(2, gpus=1)
    offer(world, "1", STRICT, nodes=2)
    world.silent("n2")
    run = world.core.state.runs["1.1"]
    rank = world.core.state.nodes["n1"].held[run.key]
    assert names(world.exit("n1", "1", rank, exit_code=1)) == ["RankEnded"]
    assert ended(world.command(DeclareNodeDead(id="c1", node="n2"))) == [("1", "exited")]


def test_too_many_losses_withhold_every_end() -> None:
    """It may be us who cannot hear: no deadline of a job counts until a person has looked."""
    world = cluster(10)
    for number in range(10):
        offer(world, str(number + 1), LATER)
    for node in ("n1", "n2", "n3", "n4"):
        world.silent(node)
    assert "loss" in world.core.state.tripped
    state = world.core.state
    assert ended(world.step(Input("silent", 0, ("n1", 1000 * SECOND)))) == []
    assert next_after_ns(state, state.nodes["n1"]) is None


def test_a_snapshot_keeps_runs_that_wait_for_proof(world: PlacerWorld) -> None:
    """The wait is folded state."""
    world.silent("n1")
    shot = world.core.snapshot()
    again = PlacerCore.restore(shot)
    assert again.snapshot() == shot
    (node,) = again.state.nodes.values()
    assert next_after_ns(again.state, node) == 300 * SECOND
