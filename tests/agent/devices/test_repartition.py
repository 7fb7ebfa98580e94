"""Layout orders carried out on played GPUs: done whole or taken back, once, and never under a run."""

from pathlib import Path

from fairlead_agent.core.ledger import Cut, Ledger
from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.core.steps import RepartitionGpu, StartRun
from fairlead_agent.devices.adapters import NoDevices
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.launch.plan import NodePlace, Program, plan
from fairlead_schemas.wire.desired import Desired, LayoutOrder, RunOrder
from fairlead_schemas.wire.reports import InventorySeen
from fairlead_schemas.wire.resources import Inventory, MigInstance, MigPlace
from tests.agent.placer_script import order
from tests.kit.agent_core import CoreNode


def devices(kept: Path | None = None) -> SimulatedDevices:
    """A played machine with eight GPUs that can be cut."""
    return SimulatedDevices("n1", "dgx-a100", kept=kept)


def places(*texts: str) -> tuple[MigPlace, ...]:
    """`places("3g.20gb@4")`."""
    return tuple(MigPlace(profile=text.partition("@")[0], start=int(text.partition("@")[2])) for text in texts)


def layout(made: SimulatedDevices) -> list[str] | None:
    """The first GPU's instances; None where MIG mode is off."""
    gpu = made.gpus()[0]
    return [f"{each.profile}@{each.start}" for each in gpu.instances] if gpu.mig else None


def cut(made: SimulatedDevices, number: int, *create: str, mode: str = "", destroy: tuple[int, ...] = ()) -> str:
    """Cut the first GPU; `destroy` names instances by their position."""
    gpu = made.gpus()[0]
    return made.cut(
        LayoutOrder(
            gpu=gpu.uuid,
            plan=number,
            mode=mode,
            destroy=tuple(gpu.instances[at] for at in destroy),
            create=places(*create),
        )
    )


def profiles() -> tuple[str, str]:
    """A small and a half profile of the played GPU, whose memory the machine's profile says."""
    gb = devices().gpus()[0].memory_mib // 1024
    return f"1g.{gb // 8}gb", f"3g.{gb // 2}gb"


def test_a_gpu_is_repartitioned_and_made_whole_again() -> None:
    """Labels count the instances; UUIDs are equal for equal histories, and new for new instances."""
    one, half = profiles()
    made = devices()
    assert cut(made, 5, f"{one}@0", f"{half}@4", mode="on") == ""
    assert layout(made) == [f"{one}@0", f"{half}@4"]
    assert made.labels()[f"nvidia.com/mig-{half}.count"] == "1"
    first = made.gpus()[0].instances
    assert made.busy([each.uuid for each in first]) == {}
    again = devices()
    cut(again, 5, f"{one}@0", f"{half}@4", mode="on")
    assert again.gpus()[0].instances == first
    assert cut(made, 6, f"{half}@4", destroy=(1,)) == ""
    assert made.gpus()[0].instances[0] == first[0]
    assert made.gpus()[0].instances[1].uuid != first[1].uuid
    assert cut(made, 7, mode="off", destroy=(0, 1)) == ""
    assert layout(made) is None
    assert "nvidia.com/mig.strategy" not in made.labels()


def test_a_step_that_the_driver_refuses_is_rolled_back() -> None:
    """Removed instances are there again, new ones are gone, MIG mode is as before."""
    one, half = profiles()
    made = devices()
    made.refused = {half}
    assert cut(made, 5, f"{one}@0", f"{half}@4", mode="on") == f"{half} at 4: Insufficient Resources (simulated)"
    assert layout(made) is None
    made.refused = set()
    cut(made, 6, f"{one}@0", f"{half}@4", mode="on")
    made.refused = {one}
    assert "Insufficient Resources" in cut(made, 7, f"{one}@4", f"{one}@5", destroy=(1,))
    assert layout(made) == [f"{one}@0", f"{half}@4"]


def test_orders_that_do_not_fit_the_gpu_are_refused() -> None:
    """Another GPU's instance, an overlap, a mode that is on already, a GPU in use made whole."""
    one, half = profiles()
    made = devices()
    cut(made, 5, f"{half}@4", mode="on")
    stranger = LayoutOrder(gpu=made.gpus()[0].uuid, plan=6, destroy=(MigInstance(uuid="MIG-x", profile=one, start=0),))
    assert made.cut(stranger) == "there is no instance MIG-x"
    assert "Insufficient Resources" in cut(made, 7, f"{one}@5")
    assert cut(made, 8, mode="off") == "other instances are on the GPU"
    assert layout(made) == [f"{half}@4"]
    assert made.cut(LayoutOrder(gpu="GPU-x", plan=9)) == "this node has no GPU GPU-x"
    assert NoDevices().cut(LayoutOrder(gpu="GPU-x", plan=9)) == "this node has no GPU GPU-x"


def test_a_played_driver_allows_the_places_that_drivers_list() -> None:
    """Of an A100 with 80 GB; elsewhere it refuses, as a driver does."""
    allowed = {
        "1g.10gb": [0, 1, 2, 3, 4, 5, 6],
        "1g.20gb": [0, 2, 4, 6],
        "2g.20gb": [0, 2, 4],
        "3g.40gb": [0, 4],
        "4g.40gb": [0],
        "7g.80gb": [0],
    }
    for profile, starts in allowed.items():
        found = [start for start in range(8) if not cut(devices(), 5, f"{profile}@{start}", mode="on")]
        assert (profile, starts) == (profile, found)


def test_one_step_that_cannot_be_undone_keeps_no_other() -> None:
    """The other steps are undone, and the message names this one."""
    one, half = profiles()
    made = devices()
    cut(made, 5, f"{one}@0", f"{half}@4", mode="on")
    made.refused = {half}
    failure = cut(made, 6, f"{half}@0", destroy=(0, 1))
    assert failure == (
        f"{half} at 0: Insufficient Resources (simulated); and what was there could not be put back: "
        f"{half} at 4: Insufficient Resources (simulated)"
    )
    assert layout(made) == [f"{one}@0"]


def test_a_simulated_gpu_stays_partitioned_over_a_restart(tmp_path: Path) -> None:
    """Like a real one."""
    one, _ = profiles()
    made = devices(tmp_path / "mig.json")
    cut(made, 5, f"{one}@3", mode="on")
    assert devices(tmp_path / "mig.json").gpus() == made.gpus()
    (tmp_path / "mig.json").write_text("{")
    assert layout(devices(tmp_path / "mig.json")) is None


def test_a_program_sees_its_instances_and_not_their_gpus() -> None:
    """In CUDA's words."""
    wanted = order("7", "true", gpus=("GPU-a", "GPU-a"), instances=("MIG-1", "MIG-2"))
    launch = plan(wanted, Program(command=["true"]), NodePlace("n1", "10.0.0.1", {}, gpus_simulated=False))
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "MIG-1,MIG-2"
    assert launch.env["GPUS_PER_NODE"] == "2"


# ------------------------------------------------------------------ the core


def desired(sequence: int, *layouts: LayoutOrder, runs: tuple[RunOrder, ...] = ()) -> Desired:
    """The list of the one node."""
    return Desired(node="n1", incarnation="inc", sequence=sequence, runs=list(runs), layouts=list(layouts))


ORDER = LayoutOrder(gpu="GPU-a", plan=5, destroy=(MigInstance(uuid="MIG-1", profile="3g.20gb", start=0),))


def test_an_order_is_journalled_executed_once_and_answered() -> None:
    """Repeated under a higher sequence, it is not executed again, also after a restart."""
    node = CoreNode()
    step = node.do(node.core.desired(desired(6, ORDER), 0, 0))
    assert step.instructions == [RepartitionGpu(ORDER, "")]
    assert Cut(plan=5) in step.records
    assert node.do(node.core.desired(desired(7, ORDER), 0, 0)).instructions == []
    (report,) = node.do(node.core.was_cut(5, "no", Inventory(hostname="h"))).reports
    assert report == InventorySeen(n=2, boot_id="boot-1", inventory=Inventory(hostname="h"), plan=5, failure="no")
    (first,) = node.boot("boot-1", {}).reports
    assert isinstance(first, InventorySeen) and first.plan == 0
    node.do(node.core.desired(desired(8, ORDER), 0, 0))
    assert not [each for each in node.boot("boot-1", {}).instructions if isinstance(each, RepartitionGpu)]


def test_a_repartition_interrupted_by_a_crash_is_answered_by_the_next_inventory() -> None:
    """It has the current instances; a half-done repartition is not started again."""
    node = CoreNode()
    node.do(node.core.desired(desired(6, ORDER), 0, 0))
    (report,) = node.boot("boot-1", {}).reports
    assert isinstance(report, InventorySeen) and (report.plan, report.failure) == (5, "")


def test_compaction_keeps_what_was_begun() -> None:
    """Answered or not."""
    for answered in (False, True):
        node = CoreNode()
        node.do(node.core.desired(desired(6, ORDER), 0, 0))
        if answered:
            node.do(node.core.was_cut(5, "", Inventory()))
        again = Ledger()
        for record in node.core.ledger.records():
            again.apply(record)
        assert (again.cut, again.cut_answered) == (5, 5 if answered else 0)


def test_no_gpu_is_repartitioned_without_a_lease_or_under_a_run() -> None:
    """The lease prevents the execution of an old order; runs in use are read from the journal."""
    node = CoreNode(lease=False)
    assert node.do(node.core.desired(desired(6, ORDER), 0, 0)).instructions == []
    node = CoreNode()
    run = order("7", "true", gpus=("GPU-a",), instances=("MIG-1",))
    step = node.do(node.core.desired(desired(6, ORDER, runs=(run,)), 0, 0))
    assert step.instructions == [StartRun(run), RepartitionGpu(ORDER, "it is in use by 7.1.0")]
    key = RunKey("7", 1, 0)
    node.do(node.core.started(key, 0, 0))
    node.do(node.core.exited(key, Exit(code=0), False, 0))
    later = LayoutOrder(gpu="GPU-a", plan=8, mode="off")
    assert node.do(node.core.desired(desired(9, later), 0, 0)).instructions == [
        RepartitionGpu(later, "it is in use by 7.1.0")
    ]
