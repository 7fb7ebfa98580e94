"""Profiling metrics over NVML's GPM (Hopper and newer): which parts of a GPU were at work between two looks.

Each look takes a sample, compares it with the one before, and keeps it. A GPU or driver without GPM says nothing, and is not
asked again. Of a GPU in MIG mode the driver gives them per instance only. Not tried on a GPU yet.
"""

import contextlib
from typing import Any, NamedTuple

from fairlead_agent.devices.nvml_facts import asked

MIB = 2**20
#: nvmlGpmMetricId_t, with the field of a sample and what the value is multiplied by: percent to thousandths, MiB/s to bytes/s.
_METRICS: tuple[tuple[int, str, int], ...] = (
    (1, "engine_permille", 10), (2, "sm_permille", 10), (3, "sm_occupancy_permille", 10), (5, "tensor_permille", 10),
    (10, "dram_permille", 10), (11, "fp64_permille", 10), (12, "fp32_permille", 10), (13, "fp16_permille", 10),
    (20, "pcie_tx_bytes_s", MIB), (21, "pcie_rx_bytes_s", MIB),
)  # fmt: skip


class _Pair(NamedTuple):
    """The driver's two samples of one GPU; they change places at each look."""

    newer: Any
    older: Any


class Profiling:
    """Of all GPUs of one driver."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        #: {UUID: samples}; None for a GPU that has no GPM.
        self._pairs: dict[str, _Pair | None] = {}

    def take(self, handle: Any, uuid: str, instance: int | None = None) -> dict[str, int]:
        """{field of a sample: value} since the last look; nothing at the first one. Of a MIG instance: its GPU's handle, its
        own UUID, and the number of its GPU instance."""
        first = uuid not in self._pairs
        if first:
            self._pairs[uuid] = asked(self._nvml, None, lambda: self._open(handle, instance))
        pair = self._pairs[uuid]
        if pair is None or first:
            return {}
        pair = self._pairs[uuid] = _Pair(newer=pair.older, older=pair.newer)
        return asked(self._nvml, {}, lambda: self._compared(handle, pair, instance))

    def _open(self, handle: Any, instance: int | None) -> _Pair | None:
        nvml = self._nvml
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        newer, older = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._sample(handle, newer, instance)
        return _Pair(newer, older)

    def _sample(self, handle: Any, sample: Any, instance: int | None) -> None:
        if instance is None:
            self._nvml.nvmlGpmSampleGet(handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(handle, instance, sample)

    def _compared(self, handle: Any, pair: _Pair, instance: int | None) -> dict[str, int]:
        nvml = self._nvml
        self._sample(handle, pair.newer, instance)
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        question.sample1, question.sample2 = pair.older, pair.newer
        for at, (metric, _, _) in enumerate(_METRICS):
            question.metrics[at].metricId = metric
        answers = nvml.nvmlGpmMetricsGet(question).metrics
        return {
            name: round(answers[at].value * factor)
            for at, (_, name, factor) in enumerate(_METRICS)
            if not answers[at].nvmlReturn and answers[at].value >= 0
        }

    def close(self) -> None:
        """Give the driver its samples back."""
        for pair in self._pairs.values():
            for sample in pair or ():
                with contextlib.suppress(self._nvml.NVMLError):
                    self._nvml.nvmlGpmSampleFree(sample)
        self._pairs = {}
