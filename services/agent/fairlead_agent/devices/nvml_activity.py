"""Processes that compute on a GPU, with memory and part of its time, as NVML reports them.

Further parts:
- profiling metrics over NVML's GPM (Hopper and newer): which parts of a GPU were at work between two looks;
- XIDs by NVML's event set: registered when the driver is opened, so that none is missed after that.

Each look at profiling metrics takes a sample, compares it with the one before, and keeps it. A GPU or driver without GPM says nothing, and is not
asked again. Of a GPU in MIG mode the driver gives them per instance only. Not tried on a GPU yet.

What came before is in the kernel's messages alone.

Not tried on a GPU yet; the calls are those of the NVML manual, played in the tests.
"""

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead_agent.devices.nvml_readings import value_or
from fairlead_agent.devices.port import GpuProcess, Xid

MIB = 2**20


class Utilizations:
    """Each process's part of a GPU's time since the last look. The driver keeps samples of some seconds."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        #: {UUID: the driver's time of the newest sample that was seen}.
        self._seen: dict[str, int] = {}

    def take(self, handle: Any, uuid: str) -> dict[int, int]:
        """{pid: percent}, averaged over the samples since the last look; nothing where the driver has none."""
        since = self._seen.get(uuid, 0)
        samples = value_or(
            self._nvml, [], lambda: list(self._nvml.nvmlDeviceGetProcessUtilization(handle, since))
        )  # none is an error of its own
        fresh = [each for each in samples if int(each.timeStamp) > since]
        self._seen[uuid] = max((int(each.timeStamp) for each in fresh), default=since)
        parts: dict[int, list[int]] = {}
        for each in fresh:
            if each.pid:  # a row of zeros means no sample
                parts.setdefault(int(each.pid), []).append(int(each.smUtil))
        return {pid: sum(found) // len(found) for pid, found in parts.items()}


def running(nvml: Any, handle: Any) -> dict[int, int | None]:
    """Return {pid: MiB}, including processes that compute over MPS; None if the driver does not report it. Raises
    NVMLError.
    """
    listed = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    listed += value_or(nvml, [], lambda: list(nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)))
    found: dict[int, int | None] = {}
    for each in listed:
        used = getattr(each, "usedGpuMemory", None)
        known = found.get(int(each.pid))
        mib = None if used is None else int(used) // MIB
        found[int(each.pid)] = mib if known is None else known if mib is None else max(known, mib)
    return found


def processes(nvml: Any, handle: Any, uuid: str, utilizations: Utilizations) -> list[GpuProcess]:
    """Return the processes of one GPU or MIG instance, by pid; none for a device that does not answer."""
    found = value_or(nvml, {}, lambda: running(nvml, handle))
    parts = utilizations.take(handle, uuid) if found else {}
    return [
        GpuProcess(uuid=uuid, pid=pid, memory_mib=mib, utilization_pct=parts.get(pid))
        for pid, mib in sorted(found.items())
    ]


#: nvmlGpmMetricId_t, with the field of a sample and what the value is multiplied by: percent to thousandths, MiB/s to bytes/s.
_METRICS: tuple[tuple[int, str, int], ...] = (
    (1, "engine_permille", 10),
    (2, "sm_permille", 10),
    (3, "sm_occupancy_permille", 10),
    (5, "tensor_permille", 10),
    (10, "dram_permille", 10),
    (11, "fp64_permille", 10),
    (12, "fp32_permille", 10),
    (13, "fp16_permille", 10),
    (20, "pcie_tx_bytes_s", MIB),
    (21, "pcie_rx_bytes_s", MIB),
)


class _Pair(NamedTuple):
    """The driver's two samples of one GPU; they change places at each look."""

    newer: Any
    older: Any


class Profiling:
    """Profiling of all GPUs of one driver."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        #: {UUID: samples}; None for a GPU that has no GPM.
        self._pairs: dict[str, _Pair | None] = {}

    def take(self, handle: Any, uuid: str, instance: int | None = None) -> dict[str, int]:
        """{field of a sample: value} since the last look; nothing at the first one. Of a MIG instance: its GPU's handle, its
        own UUID, and the number of its GPU instance."""
        first = uuid not in self._pairs
        if first:
            self._pairs[uuid] = value_or(self._nvml, None, lambda: self._open(handle, instance))
        pair = self._pairs[uuid]
        if pair is None or first:
            return {}
        pair = self._pairs[uuid] = _Pair(newer=pair.older, older=pair.newer)
        return value_or(self._nvml, {}, lambda: self._compared(handle, pair, instance))

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


#: nvmlEventTypeXidCriticalError; a driver never changes it.
_XID = 8
#: At one look; the rest stays for the next.
XIDS_MAX = 256
#: Value that means "of no MIG instance".
_NO_INSTANCE = 0xFFFFFFFF


class XidEvents:
    """The XIDs of some GPUs, as they come."""

    def __init__(self, nvml: Any, handles: Sequence[Any], uuids: Sequence[str]) -> None:
        """A GPU or driver that cannot tell of XIDs tells of none."""
        self._nvml = nvml
        # Not asked when one comes: a GPU that fell off the bus does not say its name any more.
        self._uuids = {_address(handle): uuid for handle, uuid in zip(handles, uuids, strict=True)}
        self._set = value_or(nvml, None, lambda: nvml.nvmlEventSetCreate())
        if self._set is not None:
            for handle in handles:
                value_or(nvml, None, lambda handle=handle: nvml.nvmlDeviceRegisterEvents(handle, _XID, self._set))

    def take(self) -> list[Xid]:
        """Return the XIDs since the last call, at most XIDS_MAX."""
        found: list[Xid] = []
        while self._set is not None and len(found) < XIDS_MAX:
            event = value_or(self._nvml, None, lambda: self._nvml.nvmlEventSetWait_v2(self._set, 0))
            if event is None:  # by a time-out: there is none
                break
            uuid = self._uuids.get(_address(event.device), "")
            if uuid and int(event.eventType) == _XID:
                instance = int(event.gpuInstanceId)
                found.append(
                    Xid(
                        uuid=uuid,
                        code=int(event.eventData),
                        gpu_instance=None if instance == _NO_INSTANCE else instance,
                    )
                )
        return found

    def close(self) -> None:
        """No more of them."""
        if self._set is not None:
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None


def _address(handle: Any) -> Any:
    """Return the address that all handles of one GPU have in common."""
    return ctypes.cast(handle, ctypes.c_void_p).value if isinstance(handle, ctypes._Pointer) else handle  # noqa: SLF001
