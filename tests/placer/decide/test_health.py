"""Nodes and GPUs by health reports, the taints that health sets, and ends that a node's own check made."""

import msgspec
import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DrainNode, QuarantineNode, ResetBreaker, RestoreGpu, UntaintNode
from fairlead_schemas.wire.health import xid_catalog, xid_decision
from fairlead_schemas.wire.reports import ExitSeen, HealthSeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, names, placed, request

TAINT = "fairlead/unhealthy=xid79:NoSchedule"


def sick(world: PlacerWorld, node: str, gpu: int = 0, code: str = "thermal") -> list[ev.Event]:
    return world.report(node, HealthSeen(n=0, gpu=f"{node}-g{gpu}", code=code, evidence="seen"))


def test_a_faulted_gpu_is_neither_free_nor_used() -> None:
    """The node offers the other GPUs only; a repeated report of the fault is no event."""
    world = cluster(1, 2)
    assert names(sick(world, "n1")) == ["GpuFaulted"]
    assert sick(world, "n1") == []
    assert world.core.state.nodes["n1"].gpus_free == 1
    [event] = world.offer(request(1))
    assert isinstance(event, ev.JobPlaced)
    assert event.parts[0].gpus == ("n1-g1",)
    [refused] = world.offer(request(2))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"gpu_faulted": 1}


def test_a_gpu_that_is_well_again_is_used_again() -> None:
    """By its agent's word or a person's; what waits for it is placed with that commit."""
    for restored in (
        lambda world: world.report("n1", HealthSeen(n=0, gpu="n1-g0")),
        lambda world: world.command(RestoreGpu(id="r", user="ops", node="n1", gpu="n1-g0")),
    ):
        world = cluster(1, 1)
        sick(world, "n1")
        world.offer(request(1))
        assert names(restored(world)) == ["GpuRestored", "JobPlaced"]


def test_a_held_gpu_that_faults_is_not_freed() -> None:
    """A mild fault lets the run continue; the GPU that it releases is not usable."""
    world = cluster(1, 1)
    world.offer(request(1))
    sick(world, "n1")
    assert world.stops("n1") == {"1.1": ""}
    world.exit("n1", "1")
    assert world.core.state.nodes["n1"].gpus_free == 0


def test_a_grave_fault_stops_the_run_and_taints_the_node() -> None:
    """XID 79: the run is requeued without blame, the other runs of the node continue, and no new work arrives. It is no
    drain."""
    world = cluster(1)
    world.offer(request(1))
    world.offer(request(1))
    assert names(sick(world, "n1", 0, "xid79")) == ["GpuFaulted", "NodeTainted"]
    assert world.stops("n1") == {"1.1": "gpu_fault", "2.1": ""}
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"taint": 1}
    ended = world.exit("n1", "1", outcome="stopped", exit_code=None)[0]
    assert isinstance(ended, ev.RunEnded)
    assert (ended.gpu_fault, ended.drained) == ("xid79", False)
    assert world.core.state.nodes["n1"].taints == (TAINT,)


@pytest.mark.parametrize(("code", "signal"), [(1, None), (None, 7)])
def test_a_program_that_crashes_on_a_faulted_gpu_is_not_to_blame(code: int | None, signal: int | None) -> None:
    """It mostly ends before the stop arrives: the fault is the reason all the same, and no failure of job or node."""
    world = cluster(2)
    world.offer(request(1))
    world.start("n1", "1")
    sick(world, "n1", 0, "ecc_uncorrectable")
    crash = ExitSeen(n=0, job="1", attempt=1, rank=0, outcome="exited", exit_code=code, signal=signal, clean=True)
    ended = world.report("n1", crash)[0]
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.gpu_fault) == ("exited", "ecc_uncorrectable")
    state = world.core.state
    assert (state.failing, state.failed_on) == ({}, {})
    requeued = ev.JobRequeued(cause="clock", job="1", reason="gpu_fault", attempt=2)
    assert placed(world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))) == {"1": ["n2"]}
    assert state.runs["1.2"].restarted == "gpu_fault"


def test_a_run_on_a_faulted_gpu_that_succeeds_or_was_stopping_keeps_its_own_reason() -> None:
    """Its work was done, or its stop was under way; a drain gives way to the fault."""
    world = cluster(1)
    for _ in range(3):
        world.offer(request(1))
    world.queue(ev.JobStopRequested(cause="cmd:9", job="2", attempt=1, reason="cancelled"))
    world.command(DrainNode(id="d", node="n1", deadline_ns=1))
    world.now += SECOND
    world.step()
    for gpu in range(3):
        sick(world, "n1", gpu, "xid79")
    assert world.stops("n1") == {"1.1": "gpu_fault", "2.1": "cancelled", "3.1": "gpu_fault"}
    found: list[str] = []
    ends: tuple[tuple[str, ev.RunOutcome, int], ...] = (
        ("1", "exited", 0),
        ("2", "stopped", 143),
        ("3", "stopped", 143),
    )
    for job, outcome, code in ends:
        ended = world.exit("n1", job, outcome=outcome, exit_code=code)[0]
        assert isinstance(ended, ev.RunEnded)
        found.append(ended.gpu_fault)
    assert found == ["", "", "xid79"]


def test_only_health_removes_the_health_taint() -> None:
    """A user cannot remove it while the GPU is unhealthy, and need not once it is healthy."""
    world = cluster(1)
    sick(world, "n1", 0, "xid79")
    [rejected] = world.command(UntaintNode(id="u", node="n1", taint="fairlead/unhealthy"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_yours"
    assert names(world.report("n1", HealthSeen(n=0, gpu="n1-g0"))) == ["GpuRestored", "NodeUntainted"]
    assert world.core.state.nodes["n1"].taints == ()


def test_notes_and_programs_errors_change_nothing() -> None:
    """A remapped row or a program's own fault is no reason to take a GPU away."""
    world = cluster(1)
    notes = [number for number in xid_catalog() if xid_decision(number) in ("nothing", "note")]
    assert {13, 31, 63, 94} <= set(notes)
    for number in notes:
        assert sick(world, "n1", 0, f"xid{number}") == []
    assert world.core.state.nodes["n1"].gpus_free == 8


def test_a_report_of_what_is_not_there_is_refused() -> None:
    """Another node's GPU, and a code that is no word."""
    world = cluster(2)
    for report, code in (
        (HealthSeen(n=0, gpu="n2-g0", code="xid79"), "unknown_gpu"),
        (HealthSeen(n=0, gpu="n1-g0", code="XID 79!"), "bad_code"),
    ):
        [rejected] = world.report("n1", report)
        assert isinstance(rejected, ev.ReportRejected)
        assert rejected.code == code
    [rejected] = world.command(RestoreGpu(id="r", node="n1", gpu="n1-g0"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_faulted"


def test_a_gpu_that_comes_back_after_a_reboot_is_still_faulted() -> None:
    """Off the bus, then on it again: its agent must say that it is well."""
    world = cluster(1, 2)
    sick(world, "n1", 0)
    world.join("n1", 0, boot="boot-2")
    world.join("n1", 2, boot="boot-3")
    assert world.core.state.nodes["n1"].gpus_free == 1


def test_the_breaker_holds_the_second_taint_but_no_gpu() -> None:
    """Of ten nodes one in five minutes: the second trips it, its GPU is out of use all the same, the taint comes with
    the reset."""
    world = cluster(10)
    sick(world, "n1", 0, "xid79")
    assert names(sick(world, "n2", 0, "xid79")) == ["GpuFaulted", "BreakerTripped"]
    assert names(sick(world, "n3", 0, "xid79")) == ["GpuFaulted"]
    assert world.core.state.nodes["n2"].taints == ()
    events = world.command(ResetBreaker(id="b", user="ops"))
    assert names(events) == ["BreakerReset", "NodeTainted", "BreakerTripped"]
    assert placed(world.offer(request(8))) != {}


def ill(world: PlacerWorld, node: str, code: str, *, over: bool = False) -> list[ev.Event]:
    return world.report(node, HealthSeen(n=0, gpu="", code=code, over=over, evidence="seen"))


def test_an_unhealthy_node_gets_no_new_work_until_it_is_healthy() -> None:
    """Its runs continue; a repeated report is no event; the taint goes with its last fault."""
    world = cluster(1)
    world.offer(request(1))
    assert ill(world, "n1", "disk_full")[0] == ev.NodeUnhealthy(
        cause="report:n1:2", node="n1", code="disk_full", reason="seen", closes=True
    )
    assert ill(world, "n1", "disk_full") == []
    assert names(ill(world, "n1", "engine_gone")) == ["NodeUnhealthy"]
    assert world.stops("n1") == {"1.1": ""}
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"taint": 1}
    assert names(ill(world, "n1", "disk_full", over=True)) == ["NodeRecovered", "NodeTainted"]  # the other one is named
    assert names(ill(world, "n1", "engine_gone", over=True)) == ["NodeRecovered", "NodeUntainted", "JobPlaced"]
    assert ill(world, "n1", "engine_gone", over=True) == []


def test_informational_faults_close_nothing() -> None:
    """A note is in the log for users, and the node takes work."""
    world = cluster(1)
    assert names(ill(world, "n1", "clock_step")) == ["NodeUnhealthy"]
    assert "JobPlaced" in names(world.offer(request(1)))
    assert names(ill(world, "n1", "clock_step", over=True)) == ["NodeRecovered"]


def test_a_code_of_no_nodes_health_is_refused() -> None:
    """The table is closed: what it does not have would never be undone, either."""
    [rejected] = ill(cluster(1), "n1", "moody")
    assert isinstance(rejected, ev.ReportRejected)
    assert rejected.code == "bad_code"


def test_a_person_restores_a_node() -> None:
    """Without a GPU, all that is wrong with the node itself is over; GPUs stay as they are."""
    world = cluster(1)
    ill(world, "n1", "disk_full")
    ill(world, "n1", "clock_step")
    sick(world, "n1")
    restored = world.command(RestoreGpu(id="r", user="ops", node="n1"))
    assert names(restored) == ["NodeRecovered", "NodeRecovered", "NodeUntainted"]
    assert world.core.state.nodes["n1"].faulted == {"n1-g0": "thermal"}
    [rejected] = world.command(RestoreGpu(id="s", node="n1"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.message == "expected one of the faulted GPUs of n1: n1-g0 (thermal)"


def test_a_restore_that_finds_nothing_to_do_names_what_keeps_work_away() -> None:
    """A node in quarantine is not called well: the refusal names the command that ends the quarantine."""
    world = cluster(1)
    [nothing] = world.command(RestoreGpu(id="r", node="n1"))
    assert isinstance(nothing, ev.NodeCommandRejected) and nothing.message.endswith("found n1 well")
    world.command(QuarantineNode(id="q", user="ops", node="n1"))
    [rejected] = world.command(RestoreGpu(id="s", node="n1"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.message.endswith("found n1 in quarantine only: fairlead unquarantine n1")


def test_a_health_fault_outlives_the_agents_journal() -> None:
    """A node that returns with a new journal stays unhealthy until a report clears it."""
    world = cluster(1)
    ill(world, "n1", "disk_full")
    world.join("n1", boot="boot-2")
    assert world.core.state.nodes["n1"].ills == ("disk_full",)
    assert not placed(world.offer(request(1)))


def test_a_failed_check_before_a_start_speaks_against_the_node_and_not_the_job() -> None:
    """The job goes elsewhere, however many nodes fail theirs; the third such end on a node puts it in quarantine."""
    world = cluster(4)
    world.offer(request(8))
    for attempt, node in enumerate(("n1", "n2", "n3"), 1):
        [ended] = world.exit(node, "1", attempt=attempt, outcome="preflight", exit_code=None)
        assert isinstance(ended, ev.RunEnded)
        assert ended.alike == ()
        requeued = ev.JobRequeued(cause="clock", job="1", reason="preflight", attempt=attempt + 1)
        again = world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=attempt + 1, rank=1))
        assert placed(again) == {"1": [f"n{attempt + 1}"]}
    assert sorted(world.core.state.failing) == ["n1", "n2", "n3"]


def test_a_rank_that_blames_a_node_makes_only_its_job_avoid_it() -> None:
    """The job avoids that node, which takes other work; a rank that does not exist is ignored."""
    world = cluster(3)
    world.offer(request(8, nodes=2))
    blaming = ExitSeen(
        n=0, job="1", attempt=1, rank=0, outcome="preflight", message="rank 1 is cut off", clean=True, blames=1
    )
    [ended] = world.report("n1", blaming)
    assert isinstance(ended, ev.RankEnded)
    assert ended.blames == 1
    run_ended, *_ = world.exit("n2", "1", 1, outcome="stopped", exit_code=None)
    assert isinstance(run_ended, ev.RunEnded)
    assert (run_ended.rank, run_ended.blames, run_ended.outcome) == (0, 1, "preflight")
    state = world.core.state
    assert ([each.node for each in state.failed_on["1"]], state.failing) == (["n2"], {})
    requeued = ev.JobRequeued(cause="clock", job="1", reason="preflight", attempt=2)
    again = world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))
    assert placed(again) == {"1": ["n1", "n3"]}
    [ended] = world.report("n1", msgspec.structs.replace(blaming, attempt=2, blames=7))
    assert isinstance(ended, ev.RankEnded)
    assert ended.blames is None
