"""A played NVML with health, XIDs and processes, over GPUs that are numbers. What is not set raises as an old driver does."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pynvml

from tests.agent.devices.nvml_driver import Driver

NOT_SUPPORTED, TIMEOUT, LOST = 3, 10, 15
RESERVED_MIB = 639


class PlayedNvml(Driver):
    """Some A100s, as a driver shows them; the fields are what a test turns."""

    class NVMLError(Driver.NVMLError):
        """As pynvml's: with a number."""

        def __init__(self, value: Any) -> None:
            super().__init__(
                {NOT_SUPPORTED: "Not Supported", TIMEOUT: "Timeout", LOST: "GPU is lost"}.get(value, value)
            )
            self.value = value

    nvmlMemory_v2 = 0x02000028  # noqa: N815 -- the name is NVML's
    c_nvmlGpuInstancePlacement_t = pynvml.c_nvmlGpuInstancePlacement_t  # noqa: N815 -- the name is NVML's
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    def __init__(self, gpus: int = 2) -> None:
        super().__init__([f"0000:{at:02x}:00.0" for at in range(1, gpus + 1)])
        self.lost: set[int] = set()
        #: {GPU: {pid: MiB}}; {GPU: {field: value}}; {GPU: [(driver's time, pid, percent)]}; [(GPU, XID)].
        self.running: dict[int, dict[int, int | None]] = {}
        self.fields: dict[int, dict[int, int]] = {}
        self.utilizations: dict[int, list[tuple[int, int, int]]] = {}
        self.events: list[tuple[int, int]] = []
        self.registered: list[int] = []
        self.reasons = 0
        self.answers |= {
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetComputeRunningProcesses": self._running,
            "nvmlDeviceGetUtilizationRates": lambda i: SimpleNamespace(gpu=93, memory=37),
            "nvmlDeviceGetPowerUsage": lambda i: 251_000,
            "nvmlDeviceGetTemperature": lambda i, sensor: 61,
            "nvmlDeviceGetTemperatureThreshold": lambda i, which: {1: 92}[which],
            "nvmlDeviceGetClockInfo": lambda i, clock: 1410,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda i: self.reasons,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda i: 8,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda i: 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda i: 1,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda i: 4,
            "nvmlDeviceGetFieldValues": self._values,
            "nvmlDeviceGetProcessUtilization": self._utilization,
            "nvmlEventSetCreate": lambda: "set",
            "nvmlDeviceRegisterEvents": lambda i, kinds, events: self.registered.append(i),
            "nvmlEventSetWait_v2": self._wait,
            "nvmlEventSetFree": lambda events: None,
            "nvmlShutdown": lambda: None,
        }

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any, **_: Any) -> Any:
            if name not in self.answers:
                raise self.NVMLError(NOT_SUPPORTED)
            if arguments and isinstance(arguments[0], int) and arguments[0] in self.lost:
                raise self.NVMLError(LOST)
            return self.answers[name](*arguments)

        return answer

    def _memory(self, gpu: int, version: int = 0) -> SimpleNamespace:
        used = sum(mib or 0 for mib in self.running.get(gpu, {}).values())
        return SimpleNamespace(
            total=40960 << 20,
            used=(4 + used) << 20,
            free=(40960 - 4 - used - RESERVED_MIB) << 20,
            reserved=RESERVED_MIB << 20,
        )

    def _running(self, gpu: int) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib << 20)
            for pid, mib in self.running.get(gpu, {}).items()
        ]

    def _values(self, gpu: int, fields: Sequence[int | tuple[int, int]]) -> Any:
        found = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for each, asked in zip(found, fields, strict=True):
            field = asked if isinstance(asked, int) else asked[0]
            known = self.fields.get(gpu, {})
            each.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            each.nvmlReturn = 0 if field in known else NOT_SUPPORTED
            each.value.ullVal = known.get(field, 0)
        return found

    def _utilization(self, gpu: int, since: int) -> list[SimpleNamespace]:
        rows = self.utilizations.get(gpu, [])
        return [SimpleNamespace(timeStamp=at, pid=pid, smUtil=percent) for at, pid, percent in rows if at > since]

    def _wait(self, _: str, timeout_ms: int) -> SimpleNamespace:
        if not self.events:
            raise self.NVMLError(TIMEOUT)
        gpu, code = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventType=8, eventData=code, gpuInstanceId=0xFFFFFFFF)
