"""Further measurements over NVML, by a simulated driver: parts of memory, clocks, energy, traffic, and pipes if it has
GPM."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_schemas.wire.samples import GpuSample
from tests.agent.devices.gpm import Gpm
from tests.agent.devices.played_nvml import RESERVED_MIB, PlayedNvml


@pytest.fixture
def driver() -> PlayedNvml:
    """One GPU."""
    return PlayedNvml(1)


def sampled(driver: PlayedNvml, sys: Path, looks: int = 1) -> GpuSample:
    """The last of so many samples."""
    devices = NvmlDevices(driver, sys=sys)
    return [devices.sample({}) for _ in range(looks)][-1][0]


def test_values_that_an_old_gpu_lacks_are_unknown(driver: PlayedNvml, tmp_path: Path) -> None:
    """Not zero: no encoder, no energy, no links, no pipes."""
    sample = sampled(driver, tmp_path, looks=2)
    assert (sample.memory_free_mib, sample.memory_reserved_mib) == (40960 - 4 - RESERVED_MIB, RESERVED_MIB)
    assert (sample.memory_busy_pct, sample.memory_clock_mhz) == (37, 1410)
    unknown = (sample.encoder_pct, sample.energy_mj, sample.nvlink_tx_kib, sample.pcie_tx_bytes_s, sample.sm_permille)
    assert unknown == (None,) * 5


def test_counters_come_by_field_with_links_summed_by_the_driver(driver: PlayedNvml, tmp_path: Path) -> None:
    """Energy in mJ, NVLink in KiB over all links; traffic over PCIe is asked for way by way, in KB/s."""
    driver.fields[0] = {82: 66, 83: 12_345, 138: 700, 139: 800}
    driver.answers["nvmlDeviceGetPcieThroughput"] = lambda i, way: (3, 5)[way]
    driver.answers["nvmlDeviceGetEncoderUtilization"] = lambda i: [4, 100_000]
    sample = sampled(driver, tmp_path)
    assert (sample.memory_temperature_c, sample.energy_mj) == (66, 12_345)
    assert (sample.nvlink_tx_kib, sample.nvlink_rx_kib) == (700, 800)
    assert (sample.pcie_tx_bytes_s, sample.pcie_rx_bytes_s, sample.encoder_pct) == (3000, 5000, 4)


def test_profiling_compares_each_look_with_the_one_before(driver: PlayedNvml, tmp_path: Path) -> None:
    """Nothing at the first look; a metric that fails is left out; the driver gets its samples back."""
    driver.NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION  # pyright: ignore[reportAttributeAccessIssue]
    gpm = Gpm(driver)
    devices = NvmlDevices(driver, sys=tmp_path)
    assert devices.sample({})[0].sm_permille is None
    samples = [devices.sample({})[0] for _ in range(3)]
    assert gpm.compared == [(1, 2), (2, 3), (3, 4)]
    last = samples[-1]
    assert (last.engine_permille, last.sm_permille, last.sm_occupancy_permille, last.tensor_permille) == (
        900,
        800,
        412,
        377,
    )
    assert (last.dram_permille, last.fp64_permille, last.fp32_permille, last.fp16_permille) == (301, 0, None, 12)
    assert (last.pcie_tx_bytes_s, last.pcie_rx_bytes_s) == (2 << 20, 4 << 20)
    devices.close()
    assert sorted(gpm.freed) == [1, 2]


def test_a_gpu_without_profiling_is_asked_once(driver: PlayedNvml, tmp_path: Path) -> None:
    """An A100's driver says no, and is left in peace."""
    asked: list[int] = []

    def no(gpu: int) -> SimpleNamespace:
        asked.append(gpu)
        return SimpleNamespace(isSupportedDevice=0)

    driver.answers["nvmlGpmQueryDeviceSupport"] = no
    assert sampled(driver, tmp_path, looks=3).sm_permille is None
    assert asked == [0]
