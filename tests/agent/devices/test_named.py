"""Adapters by name, and the example of one that a package would bring (docs/reference/devices.md)."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from fairlead_agent.devices.adapters import GROUP, Machine, open_devices
from fairlead_agent.devices.port import DevicesUnfit, GpuProcess
from tests.agent.devices.amd_tree import IDS, computes, falls_off, two_cards
from tests.agent.devices.rocm_example import rocm_example
from tests.agent.placer_script import order

PACKAGE = """from fairlead_agent.devices.adapters import NoDevices

class Mine(NoDevices):
    name = "mine"

def open_devices(machine):
    assert machine.environment["COLOUR"] == "red"
    return Mine()

def half(machine):
    return object()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs packages that offer devices, as pip would leave them."""

    def package(name: str, **points: str) -> None:
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = "".join(f"{point} = {value}\n" for point, value in points.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
        (tmp_path / f"{name}.py").write_text(PACKAGE)
        importlib.metadata.MetadataPathFinder.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def machine(directory: Path) -> Machine:
    return Machine("n1", directory, {"COLOUR": "red"})


def test_a_package_brings_an_adapter(install: Any, tmp_path: Path) -> None:
    """One file, one entry point; it finds its settings in the environment. Our own names cannot be taken."""
    install("mydevices", mine="mydevices:open_devices", none="mydevices:half")
    assert open_devices("mine", machine(tmp_path)).name == "mine"
    assert open_devices("none", machine(tmp_path)).name == "none"


def test_an_unusable_adapter_is_reported(install: Any, tmp_path: Path) -> None:
    """An unknown name with the known ones; two entry points; one that does not load, or is no adapter."""
    install("some", twice="some:open_devices", broken="nothere:x", half="some:half", number="some:PACKAGE_NUMBER")
    install("other", twice="other:open_devices")
    for name, expected in (
        ("nobody", 'FAIRLEAD_DEVICES: expected one of auto, broken, half, .*, found "nobody"'),
        ("twice", "more than one package: other:open_devices, some:open_devices"),
        ("broken", "cannot be loaded: ModuleNotFoundError"),
        ("half", "lack name, simulated, gpus"),
    ):
        with pytest.raises(DevicesUnfit, match=expected):
            open_devices(name, machine(tmp_path))


def test_recorded_devices_need_a_recording(tmp_path: Path) -> None:
    """And say which setting names it."""
    with pytest.raises(DevicesUnfit, match="FAIRLEAD_RECORDING"):
        open_devices("recorded", machine(tmp_path))


def test_the_example_reads_what_the_amd_drivers_write(tmp_path: Path) -> None:
    """Of its own cards only, in the kernel's order; sensors are found whatever number hwmon gave them."""
    two_cards(tmp_path)
    devices = rocm_example().RocmDevices(tmp_path)
    assert [(gpu.uuid, gpu.model, gpu.memory_mib, gpu.numa) for gpu in devices.gpus()] == [
        (f"GPU-{IDS[0]}", "AMD INSTINCT MI250X", 65536, 0),
        (f"GPU-{IDS[1]}", "AMD INSTINCT MI250X", 65536, 1),
    ]
    sample = devices.sample({f"GPU-{IDS[1]}": "7.1"})[1]
    assert (sample.utilization_pct, sample.memory_used_mib, sample.temperature_c) == (37, 11, 41)
    assert (sample.power_mw, sample.sm_clock_mhz, sample.run) == (92_000, 1700, "7.1")
    health = devices.health()[0]
    assert (health.ecc_volatile_correctable, health.ecc_volatile_uncorrectable, health.remap_pending) == (2, 0, None)
    assert (health.pcie_width, health.pcie_generation, health.temperature_slowdown_c) == (16, 4, 100)
    assert devices.environment(order("7", "true", gpus=(f"GPU-{IDS[1]}",)), contained=False) == {
        "ROCR_VISIBLE_DEVICES": f"GPU-{IDS[1]}"
    }


def test_the_example_finds_processes_and_lost_cards(tmp_path: Path) -> None:
    """By kfd's numbers; memory without a process is evidence, too; a card that disappeared is lost."""
    tree = two_cards(tmp_path)
    devices = rocm_example().RocmDevices(tmp_path, free_mib=64)
    first, second = (gpu.uuid for gpu in devices.gpus())
    assert devices.busy([first, second]) == {}
    computes(tmp_path, 1, 4711, 900)
    assert devices.processes() == [GpuProcess(uuid=second, pid=4711, memory_mib=900)]
    assert devices.busy([first, second]) == {second: "processes on it: 4711"}
    tree._write("devices/pci0000:00/0000:00:02.0/0000:02:00.0/mem_info_vram_used", str(900 << 20))
    assert devices.busy([first]) == {first: "900 MiB in use without a process, of a free GPU at most 64"}
    falls_off(tmp_path, 0)
    assert [each.lost for each in devices.health()] == [True, False]
    assert devices.busy([first]) == {first: "the GPU does not answer: nothing in /sys"}
    assert [each.uuid for each in devices.sample({})] == [second]


def test_the_example_refuses_a_machine_without_such_gpus(tmp_path: Path) -> None:
    """And a setting that is no number."""
    with pytest.raises(DevicesUnfit, match="no AMD GPU"):
        rocm_example().RocmDevices(tmp_path)
    with pytest.raises(DevicesUnfit, match='ROCM_FREE_MIB: expected MiB as a whole number, found "many"'):
        rocm_example().open_devices(Machine("n1", tmp_path, {"ROCM_FREE_MIB": "many"}))
