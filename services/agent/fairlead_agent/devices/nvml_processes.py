"""Who computes on a GPU, with memory and part of its time, as NVML tells it."""

from typing import Any

from fairlead_agent.devices.facts import GpuProcess
from fairlead_agent.devices.nvml_facts import asked

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
        samples = asked(
            self._nvml, [], lambda: list(self._nvml.nvmlDeviceGetProcessUtilization(handle, since))
        )  # none is an error of its own
        fresh = [each for each in samples if int(each.timeStamp) > since]
        self._seen[uuid] = max((int(each.timeStamp) for each in fresh), default=since)
        parts: dict[int, list[int]] = {}
        for each in fresh:
            if each.pid:  # a row of zeros stands for no sample
                parts.setdefault(int(each.pid), []).append(int(each.smUtil))
        return {pid: sum(found) // len(found) for pid, found in parts.items()}


def running(nvml: Any, handle: Any) -> dict[int, int | None]:
    """{pid: MiB}, also of those that compute over MPS; None where the driver does not say. Raises NVMLError."""
    listed = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    listed += asked(nvml, [], lambda: list(nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)))
    found: dict[int, int | None] = {}
    for each in listed:
        used = getattr(each, "usedGpuMemory", None)
        known = found.get(int(each.pid))
        mib = None if used is None else int(used) // MIB
        found[int(each.pid)] = mib if known is None else known if mib is None else max(known, mib)
    return found


def processes(nvml: Any, handle: Any, uuid: str, utilizations: Utilizations) -> list[GpuProcess]:
    """Of one GPU or MIG instance, by pid; none of one that does not answer."""
    found = asked(nvml, {}, lambda: running(nvml, handle))
    parts = utilizations.take(handle, uuid) if found else {}
    return [
        GpuProcess(uuid=uuid, pid=pid, memory_mib=mib, utilization_pct=parts.get(pid))
        for pid, mib in sorted(found.items())
    ]
