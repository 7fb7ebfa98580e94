"""Free GPUs by a simulated driver: no process on it, and memory below a fixed bound."""

from typing import Any, NamedTuple

import pytest

from fairlead_agent.devices.nvml import FREE_MIB, NvmlDevices
from fairlead_agent.settings import from_environment

UUID = "GPU-0"
MIB = 2**20


class Memory(NamedTuple):
    """As both versions of the call give it."""

    total: int
    used: int


class Process(NamedTuple):
    """One that computes on the GPU."""

    pid: int


class Driver:
    """The functions of pynvml that the adapter needs, with one GPU. `reserved_mib`: what version 1 counts as used."""

    class NVMLError(Exception):
        """The base of its errors."""

    nvmlMemory_v2 = 0x02000028  # noqa: N815 -- the name is NVML's

    def __init__(self, used_mib: int = 4, *, reserved_mib: int = 550, pids: tuple[int, ...] = (), old: bool = False):
        self.used_mib, self.reserved_mib, self.pids, self.old = used_mib, reserved_mib, pids, old

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Memory:  # noqa: N802 -- NVML's
        if version is None:
            return Memory(81920 * MIB, (self.used_mib + self.reserved_mib) * MIB)
        if self.old:
            raise self.NVMLError("Function Not Found")
        return Memory(81920 * MIB, self.used_mib * MIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Process]:  # noqa: N802 -- NVML's
        return [Process(pid) for pid in self.pids]

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 0,
            "nvmlDeviceGetUUID": UUID,
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetNumaNodeId": 0,
            "nvmlSystemGetDriverVersion": "550.54.15",
        }
        if name.startswith("NVML_"):
            return 0

        def answer(*_: Any) -> Any:
            if name not in answers:
                raise self.NVMLError("Not Supported")
            return answers[name]

        return answer


def test_an_idle_gpu_is_free() -> None:
    """Memory that the driver reserves for itself, half a GiB on a large one, is not a leftover."""
    assert NvmlDevices(Driver()).busy([UUID]) == {}
    assert NvmlDevices(Driver(FREE_MIB)).busy([UUID]) == {}
    assert NvmlDevices(Driver(old=True, reserved_mib=0)).busy([UUID]) == {}


def test_memory_that_was_left_behind_before_the_agent_started_is_not_free() -> None:
    """It is the first thing that this agent sees; it stays evidence until it has come down."""
    driver = Driver(40_000)
    devices = NvmlDevices(driver)
    expected = {UUID: f"40000 MiB in use without a process, of a free GPU at most {FREE_MIB}"}
    assert [devices.busy([UUID]) for _ in range(2)] == [expected] * 2
    driver.used_mib = 4
    assert devices.busy([UUID]) == {}


def test_memory_of_a_process_that_ended_during_the_agents_life_is_not_free() -> None:
    """The GPU was in use at the agent's start, so its idle memory is unknown, then and later."""
    driver = Driver(40_000, pids=(17,))
    devices = NvmlDevices(driver)
    assert devices.busy([UUID]) == {UUID: "processes on it: 17"}
    driver.pids = ()
    assert list(devices.busy([UUID])) == [UUID]


def test_the_bound_is_a_setting() -> None:
    """A GPU that drives a display holds more without any run."""
    settings = from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_GPU_FREE_MIB": "700"})
    assert NvmlDevices(Driver(600), free_mib=settings.gpu_free_mib).busy([UUID]) == {}
    assert from_environment({"FAIRLEAD_NODE": "n1"}).gpu_free_mib == FREE_MIB


@pytest.mark.parametrize("used_mib", [4, 9_000])
def test_a_sample_says_what_is_used_without_what_is_reserved(used_mib: int) -> None:
    """As nvidia-smi does."""
    (sample,) = NvmlDevices(Driver(used_mib)).sample({})
    assert sample.memory_used_mib == used_mib
