"""GPM of a played Hopper, by which a driver tells how busy its pipes are."""

from types import SimpleNamespace

import pynvml

from tests.agent.devices.nvml_driver import Driver
from tests.agent.devices.played_nvml import PlayedNvml


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
