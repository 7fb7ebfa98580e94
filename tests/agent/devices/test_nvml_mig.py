"""Repartition over NVML, by a simulated driver: the calls in their order, verified afterwards, rolled back on failure."""

from pathlib import Path

import pytest

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import MigInstance, MigPlace
from tests.agent.devices.mig_driver import MigDriver


@pytest.fixture
def driver() -> MigDriver:
    """A GPU in MIG mode without instances."""
    return MigDriver()


def devices(driver: MigDriver, sys: Path) -> NvmlDevices:
    return NvmlDevices(driver, sys=sys)


def order(*create: str, destroy: tuple[MigInstance, ...] = (), mode: str = "") -> LayoutOrder:
    """For the GPU; `order("3g.20gb@4")`."""
    places = tuple(MigPlace(profile=each.partition("@")[0], start=int(each.partition("@")[2])) for each in create)
    return LayoutOrder(gpu="GPU-0", plan=5, mode=mode, destroy=destroy, create=places)


def layout(made: NvmlDevices) -> list[str]:
    return [f"{each.profile}@{each.start}" for each in made.gpus()[0].instances]


def test_instances_are_made_where_they_shall_be(driver: MigDriver, tmp_path: Path) -> None:
    """Each with its compute instance; the inventory and labels show them, and each can be asked whether it is free."""
    made = devices(driver, tmp_path)
    assert made.cut(order("1g.5gb+me@0", "3g.20gb@4")) == ""
    assert driver.calls == ["create 1g.5gb+me@0", "fill", "create 3g.20gb@4", "fill"]
    assert layout(made) == ["1g.5gb+me@0", "3g.20gb@4"]
    assert made.labels()["nvidia.com/mig-1g.5gb.me.count"] == "1"
    assert made.busy(["MIG-1", "MIG-2"]) == {}
    assert list(made.busy(["MIG-3"])) == ["MIG-3"]


def test_instances_go_before_others_are_made(driver: MigDriver, tmp_path: Path) -> None:
    """The compute instance first; what is not named stays."""
    made = devices(driver, tmp_path)
    made.cut(order("1g.5gb@0", "3g.20gb@4"))
    driver.calls.clear()
    assert made.cut(order("2g.10gb@4", destroy=made.gpus()[0].instances[1:])) == ""
    assert driver.calls == ["empty 3g.20gb@4", "destroy", "create 2g.10gb@4", "fill"]
    assert [(each.uuid, each.profile) for each in made.gpus()[0].instances] == [
        ("MIG-1", "1g.5gb"),
        ("MIG-3", "2g.10gb"),
    ]


def test_a_refused_step_is_rolled_back(driver: MigDriver, tmp_path: Path) -> None:
    """Removed instances are created again at their place (with another UUID, since NVML repeats none), and new ones are
    removed."""
    made = devices(driver, tmp_path)
    made.cut(order("3g.20gb@4"))
    driver.refused = {"1g.5gb@5"}
    failure = made.cut(order("1g.5gb@4", "1g.5gb@5", destroy=made.gpus()[0].instances))
    assert failure == "1g.5gb at 5: Insufficient Resources"
    assert layout(made) == ["3g.20gb@4"]
    driver.refused = {"fill"}
    assert made.cut(order("1g.5gb@0")) == "1g.5gb at 0: Insufficient Resources"
    assert layout(made) == ["3g.20gb@4"]
    assert len(driver.whole) == 1, "no instance without its compute instance is left"


def test_an_instance_that_cannot_go_stays_usable(driver: MigDriver, tmp_path: Path) -> None:
    """Its compute instance is made again."""
    made = devices(driver, tmp_path)
    made.cut(order("3g.20gb@4"))
    driver.refused = {"destroy"}
    assert made.cut(order("1g.5gb@4", destroy=made.gpus()[0].instances)) == "3g.20gb at 4: Insufficient Resources"
    assert layout(made) == ["3g.20gb@4"]


def test_a_step_that_cannot_be_rolled_back_is_reported(driver: MigDriver, tmp_path: Path) -> None:
    """The inventory has the actual instances."""
    made = devices(driver, tmp_path)
    made.cut(order("3g.20gb@4"))
    driver.refused = {"create"}
    failure = made.cut(order("1g.5gb@4", destroy=made.gpus()[0].instances))
    assert "; and what was there could not be put back: 3g.20gb at 4: Insufficient Resources" in failure
    assert layout(made) == []


def test_the_drivers_state_counts_and_not_its_answer(driver: MigDriver, tmp_path: Path) -> None:
    """A destroyed instance that still exists or a created one that does not: the fault is reported, and the rest rolled
    back."""
    made = devices(driver, tmp_path)
    made.cut(order("3g.20gb@4"))
    driver.answers["nvmlGpuInstanceDestroy"] = lambda whole: whole.update(filled=True)
    failure = made.cut(order("1g.5gb@0", destroy=made.gpus()[0].instances))
    assert failure.startswith("3g.20gb was destroyed, and is still at 4")
    assert "3g.20gb@4" in layout(made)
    driver.answers["nvmlGpuInstanceDestroy"] = driver._destroy
    made.cut(order(destroy=made.gpus()[0].instances))
    driver.answers["nvmlGpuInstanceCreateComputeInstance"] = lambda whole, kind: None
    assert made.cut(order("2g.10gb@2")) == "2g.10gb was made, and is not at 2"


def test_mig_mode_is_turned_on_and_off(driver: MigDriver, tmp_path: Path) -> None:
    """A mode that would wait for a reset is a failure, and is taken back."""
    driver.mode = 0
    made = devices(driver, tmp_path)
    assert made.cut(order("3g.20gb@4", mode="on")) == ""
    assert made.gpus()[0].mig
    assert made.cut(order(destroy=made.gpus()[0].instances, mode="off")) == ""
    assert (made.gpus()[0].mig, made.gpus()[0].instances) == (False, ())
    driver.waits_for_reset = True
    driver.calls.clear()
    assert "not active" in made.cut(order("3g.20gb@4", mode="on"))
    assert driver.calls == ["mode 1", "mode 0"]


def test_orders_that_no_driver_can_execute_are_refused(driver: MigDriver, tmp_path: Path) -> None:
    """A profile, a start, a GPU."""
    made = devices(driver, tmp_path)
    assert made.cut(order("5g.30gb@0")) == "5g.30gb at 0: the driver knows no profile 5g.30gb"
    assert made.cut(order("3g.20gb@1")) == "3g.20gb at 1: the driver allows none at 1"
    assert made.cut(LayoutOrder(gpu="GPU-9", plan=5)) == "this node has no GPU GPU-9"
