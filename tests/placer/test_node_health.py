"""GPUs by health reports, and the taints that health sets."""

from fairlead_placer.nodes.health import MEANINGS
from fairlead_schemas import events as ev
from fairlead_schemas.commands import ResetBreaker, RestoreGpu, UntaintNode
from fairlead_schemas.reports import HealthSeen
from tests.placer.world import World, cluster, names, placed, request

TAINT = "fairlead/unhealthy=xid79:NoSchedule"


def sick(world: World, node: str, gpu: int = 0, code: str = "thermal") -> list[ev.Event]:
    return world.report(node, HealthSeen(n=0, gpu=f"{node}-g{gpu}", code=code, evidence="seen"))


def test_a_faulted_gpu_is_neither_free_nor_used() -> None:
    """The node gives the other GPUs only; said again, the fault is no event."""
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


def test_a_held_gpu_that_faults_does_not_come_free() -> None:
    """A mild fault lets the run go on; what it gives back is not usable."""
    world = cluster(1, 1)
    world.offer(request(1))
    sick(world, "n1")
    assert world.stops("n1") == {"1.1": ""}
    world.exit("n1", "1")
    assert world.core.state.nodes["n1"].gpus_free == 0


def test_a_grave_fault_stops_the_run_and_taints_the_node() -> None:
    """XID 79: the run goes elsewhere without blame, the others of the node go on, nothing new comes."""
    world = cluster(1)
    world.offer(request(1))
    world.offer(request(1))
    assert names(sick(world, "n1", 0, "xid79")) == ["GpuFaulted", "NodeTainted"]
    assert world.stops("n1") == {"1.1": "drained", "2.1": ""}
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"taint": 1}
    ended = world.exit("n1", "1", outcome="stopped", exit_code=None)[0]
    assert isinstance(ended, ev.RunEnded)
    assert ended.drained
    assert world.core.state.nodes["n1"].taints == (TAINT,)


def test_health_takes_back_its_taint_and_nobody_else_does() -> None:
    """A person cannot remove it while the GPU is sick, and need not when it is well."""
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
    for code in sorted(code for code, meaning in MEANINGS.items() if not meaning.fault):
        assert sick(world, "n1", 0, code) == []
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
