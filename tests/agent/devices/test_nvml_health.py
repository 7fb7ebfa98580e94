"""Health, XIDs and processes over NVML, by a simulated driver."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import GpuHealth, GpuProcess, Xid
from tests.agent.devices.played_nvml import PlayedNvml


@pytest.fixture
def driver() -> PlayedNvml:
    """Two GPUs."""
    return PlayedNvml()


@pytest.fixture
def devices(driver: PlayedNvml, tmp_path: Path) -> NvmlDevices:
    """Opened over it."""
    return NvmlDevices(driver, sys=tmp_path)


def test_a_counter_that_a_gpu_lacks_is_unknown(devices: NvmlDevices) -> None:
    """Not zero: silence is not health."""
    assert devices.health()[1] == GpuHealth(
        uuid="GPU-1",
        slowdowns=(),
        temperature_c=61,
        temperature_slowdown_c=92,
        pcie_bus_id="00000000:02:00.0",
        pcie_width=8,
        pcie_width_max=16,
        pcie_generation=1,
        pcie_generation_max=4,
    )


def test_counters_are_reported_unchanged(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """Of memory, rows, links and the driver's requests; clocks with all reasons for their throttling."""
    driver.fields[0] = {
        3: 7,
        4: 1,
        5: 70,
        6: 2,
        142: 3,
        143: 1,
        144: 1,
        145: 0,
        38: 5,
        52: 6,
        94: 9,
        230: 1,
        74: 8_000,
        75: 9_000,
    }
    driver.reasons = 0x1 | 0x4 | 0x40
    assert devices.health()[0] == GpuHealth(
        uuid="GPU-0",
        ecc_volatile_correctable=7,
        ecc_volatile_uncorrectable=1,
        ecc_aggregate_correctable=70,
        ecc_aggregate_uncorrectable=2,
        rows_remapped=4,
        rows_remapped_uncorrectable=1,
        remap_pending=True,
        remap_failed=False,
        slowdowns=("power_cap", "hw_thermal"),
        temperature_c=61,
        temperature_slowdown_c=92,
        pcie_width=8,
        pcie_width_max=16,
        pcie_generation=1,
        pcie_generation_max=4,
        pcie_replays=9,
        nvlink_errors=11,
        recovery="gpu_reset",
        power_held_ns=8_000,
        heat_held_ns=9_000,
        pcie_bus_id="00000000:01:00.0",
    )
    driver.fields[0] = {230: 99}
    assert devices.health()[0].recovery == "other", "an action of a later driver is no reason to think it well"


def test_an_older_gpu_retires_pages_and_an_older_driver_says_throttle(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """Both mean what newer ones call otherwise."""
    driver.answers["nvmlDeviceGetRetiredPagesPendingStatus"] = lambda i: 1
    del driver.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    driver.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = lambda i: 0x80
    health = devices.health()[0]
    assert (health.remap_pending, health.slowdowns) == (True, ("hw_power_brake",))


def test_a_gpu_that_fell_off_the_bus_is_lost_and_alone_in_that(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """It is still in the inventory; it is not measured, not free, and has no processes that anybody knows of."""
    driver.running = {0: {17: 100}, 1: {18: 200}}
    driver.lost = {0}
    assert devices.health()[0] == GpuHealth(uuid="GPU-0", lost=True, why="GPU is lost")
    assert not devices.health()[1].lost
    assert [gpu.uuid for gpu in devices.gpus()] == ["GPU-0", "GPU-1"]
    assert [sample.uuid for sample in devices.sample({})] == ["GPU-1"]
    assert devices.busy(["GPU-0"]) == {"GPU-0": "the GPU does not answer: GPU is lost"}
    assert devices.processes() == [GpuProcess(uuid="GPU-1", pid=18, memory_mib=200)]


def test_xids_are_reported_once_also_for_a_gpu_lost_by_them(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """The driver no longer names the GPU, so it was recorded before."""
    assert driver.registered == [0, 1]
    assert devices.xids() == []
    driver.events, driver.lost = [(1, 79), (0, 13)], {1}
    assert devices.xids() == [Xid(uuid="GPU-1", code=79), Xid(uuid="GPU-0", code=13)]
    assert devices.xids() == []


def test_a_driver_without_events_reports_none(driver: PlayedNvml, tmp_path: Path) -> None:
    """XIDs from before the subscription are not reported either."""
    del driver.answers["nvmlEventSetCreate"]
    devices = NvmlDevices(driver, sys=tmp_path)
    driver.events = [(0, 79)]
    assert devices.xids() == []
    devices.close()


def test_processes_have_memory_and_their_part_of_the_time(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """Averaged since the last look; where the driver does not say, it is not known."""
    driver.running = {0: {17: 100, 18: None}}
    driver.utilizations = {0: [(10, 17, 40), (20, 17, 60), (20, 0, 0)]}
    assert devices.processes() == [
        GpuProcess(uuid="GPU-0", pid=17, memory_mib=100, utilization_pct=50),
        GpuProcess(uuid="GPU-0", pid=18),
    ]
    driver.utilizations[0].append((30, 17, 90))
    assert [each.utilization_pct for each in devices.processes()] == [90, None]
    assert [each.utilization_pct for each in devices.processes()] == [None, None]


def test_a_process_over_mps_is_a_process_too(driver: PlayedNvml, devices: NvmlDevices) -> None:
    """Listed apart by the driver, or twice."""
    driver.running = {0: {17: 100}}
    driver.answers["nvmlDeviceGetMPSComputeRunningProcesses"] = lambda i: (
        [SimpleNamespace(pid=17, usedGpuMemory=300 << 20), SimpleNamespace(pid=19, usedGpuMemory=5 << 20)]
        if i == 0
        else []
    )
    assert [(each.pid, each.memory_mib) for each in devices.processes()] == [(17, 300), (19, 5)]


def test_an_mps_server_does_not_make_a_gpu_busy(
    driver: PlayedNvml, devices: NvmlDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays for the next run that uses it."""
    driver.running = {0: {17: 30}}
    assert list(devices.busy(["GPU-0"])) == ["GPU-0"]
    monkeypatch.setattr("fairlead_agent.linux.machine.program", lambda pid: "nvidia-cuda-mps")
    assert devices.busy(["GPU-0"]) == {}
