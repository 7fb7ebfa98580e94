"""What is measured besides over NVML, told by a played driver: memory's parts, clocks, energy, traffic, and pipes where it has GPM."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_schemas.samples import GpuSample
from tests.agent.devices.played_nvml import RESERVED_MIB, PlayedNvml
from tests.agent.inside.test_nvml_inside import Driver


@pytest.fixture
def driver() -> PlayedNvml:
    """One GPU."""
    return PlayedNvml(1)


def sampled(driver: PlayedNvml, sys: Path, looks: int = 1) -> GpuSample:
    """The last of so many samples."""
    devices = NvmlDevices(driver, sys=sys)
    return [devices.sample({}) for _ in range(looks)][-1][0]


def test_what_an_old_gpu_does_not_say_is_unknown(driver: PlayedNvml, tmp_path: Path) -> None:
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


class Gpm:
    """GPM of a Hopper: percent and MiB/s by metric, and which samples were compared."""

    def __init__(self, driver: PlayedNvml | Driver) -> None:
        self.values = {1: 90.0, 2: 80.04, 3: 41.2, 5: 37.7, 10: 30.1, 11: 0.0, 13: 1.2, 20: 2.0, 21: 4.0}
        self.compared: list[tuple[int, int]] = []
        self.taken: dict[int, int] = {}
        self.freed: list[int] = []
        samples = iter(range(1, 99))
        driver.answers |= {
            "nvmlGpmQueryDeviceSupport": lambda i: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": lambda: next(samples),
            "nvmlGpmSampleGet": self._take,
            "nvmlGpmMetricsGet": self._metrics,
            "nvmlGpmSampleFree": self.freed.append,
            "c_nvmlGpmMetricsGet_t": lambda: SimpleNamespace(
                metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(40)]
            ),
        }

    def _take(self, gpu: int, sample: int) -> None:
        self.taken[sample] = max(self.taken.values(), default=0) + 1

    def _metrics(self, question: SimpleNamespace) -> SimpleNamespace:
        assert question.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        self.compared.append((self.taken[question.sample1], self.taken[question.sample2]))
        for each in question.metrics[: question.numMetrics]:
            each.nvmlReturn = 0 if each.metricId in self.values else 3
            each.value = self.values.get(each.metricId, 0.0)
        return question


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
