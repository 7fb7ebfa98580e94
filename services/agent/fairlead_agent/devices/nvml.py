"""Real GPUs over NVML (the package nvidia-ml-py, whose module is called pynvml).

A GPU counts as free when no process is on it and its memory is down; one that does not answer counts as
busy. Imported only where NVML is asked for.

NVIDIA's Multi-Process Service: where its daemon runs, the driver itself enforces the limits of shares of a GPU. Without the daemon,
processes take turns on the GPU (time slicing) and only the memory guard protects them from each other. Not tried on a GPU yet; names
and forms of the variables are those of NVIDIA's MPS documentation.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from fairlead_agent.devices import nvml_readings
from fairlead_agent.devices.labels import driver_labels, gpu_labels, inside_labels
from fairlead_agent.devices.memory_guard import is_share
from fairlead_agent.devices.nvml_activity import Profiling, Utilizations, XidEvents, processes, running
from fairlead_agent.devices.nvml_mig import NvmlCutter, tables
from fairlead_agent.devices.nvml_readings import health, memory, meters, nvlinks, pcie_levels, pcie_traffic, text
from fairlead_agent.devices.port import DevicesUnfit, GpuHealth, GpuProcess, Xid
from fairlead_agent.devices.repartition import MigTable, carry_out
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import address_of, describe, read_text
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
PIPE_DIRECTORY_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108 -- where the daemon puts it
#: By which way a run shares its GPU: mps or time-slicing.
SHARING = "FAIRLEAD_GPU_SHARING"


def pipe_directory(env: Mapping[str, str]) -> str:
    """Return the directory of the daemon's control pipe; "" while no daemon runs."""
    directory = env.get(PIPE_DIRECTORY) or PIPE_DIRECTORY_DEFAULT
    try:
        return directory if stat.S_ISFIFO(os.stat(f"{directory}/control").st_mode) else ""  # noqa: PTH116 -- one call
    except OSError:
        return ""


def share_environment(order: RunOrder, pipes: str) -> dict[str, str]:
    """For a share: its part of the threads, its memory on each GPU that it sees (by CUDA's numbers, from 0); how it shares.
    Nothing for a whole GPU or a MIG instance."""
    if not is_share(order):
        return {}
    if not pipes:
        return {SHARING: "time-slicing"}
    return {
        SHARING: "mps",
        PIPE_DIRECTORY: pipes,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, order.gpu_milli // 10)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(f"{n}={order.gpu_memory_mib}M" for n in range(len(order.gpus))),
    }


#: Memory that may be in use on a free GPU in addition to the driver's reserve: an idle GPU shows a few MiB.
#: The bound is fixed and not taken from the first reading: an agent that starts after a crash may see a dead
#: run's memory.
FREE_MIB = 64
#: As the kernel shortens its name.
MPS_SERVER = "nvidia-cuda-mps"


class NvmlDevices:
    """The GPUs that the NVIDIA driver shows."""

    name = "nvml"
    simulated = False

    def __init__(self, pynvml: Any = None, *, free_mib: int = FREE_MIB, sys: Path = Path("/sys")) -> None:
        """Opens NVML. Raises DevicesUnfit where there is no driver. `pynvml`: another module with its functions;
        `sys`: where to read what the kernel says."""
        self._free_mib = free_mib
        self._machine = read_text(sys / "class/dmi/id/product_name")
        if pynvml is None:
            pynvml = _import()
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handles: list[Any] = [
                pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())
            ]
            self._inside = self._look_inside(sys)
            self._gpus = tuple(self._describe(index, handle) for index, handle in enumerate(self._handles))
            self._labels = self._label()
            self._by_uuid = self._find()
            self._xids = XidEvents(pynvml, self._handles, [gpu.uuid for gpu in self._gpus])
            self._utilizations = Utilizations(pynvml)
            self._profiling = Profiling(pynvml)
        except pynvml.NVMLError as error:
            raise DevicesUnfit(f"NVML cannot be used: {error}; is the NVIDIA driver installed and loaded?") from error

    def _find(self) -> dict[str, Any]:
        """{UUID: handle} of GPUs and of MIG instances; an instance that cannot be found has None."""
        found: dict[str, Any] = dict(zip((gpu.uuid for gpu in self._gpus), self._handles, strict=True))
        for each in [each for gpu in self._gpus for each in gpu.instances]:
            found[each.uuid] = self._ask(self._nvml.nvmlDeviceGetHandleByUUID, each.uuid, None)
        return found

    def mig_tables(self) -> dict[str, tuple[MigTable, ...]]:
        """Return {UUID: possible MIG profiles} for the GPUs that can be cut. The driver lists more in MIG mode than
        without it.
        """
        nvml = self._nvml
        found = {gpu.uuid: tables(nvml, handle) for gpu, handle in zip(self._gpus, self._handles, strict=True)}
        return {uuid: each for uuid, each in found.items() if each}

    def cut(self, order: LayoutOrder) -> str:
        """Repartition a GPU through the driver, then read all devices again. Returns the reason of a failure, "" if none."""
        nvml, handle = self._nvml, self._by_uuid.get(order.gpu)
        if handle is None:
            return f"this node has no GPU {order.gpu}"
        failure = carry_out(NvmlCutter(nvml, handle), order)
        try:
            self._gpus = tuple(self._describe(index, each) for index, each in enumerate(self._handles))
            self._labels, self._by_uuid = self._label(), self._find()
        except nvml.NVMLError as error:
            return failure or f"the driver does not answer: {error}"
        return failure

    def _describe(self, index: int, handle: Any) -> Gpu:
        nvml = self._nvml
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        mig = bool(nvml_readings.mig(nvml, handle))
        return Gpu(
            uuid=text(nvml.nvmlDeviceGetUUID(handle)),
            index=index,
            model=text(nvml.nvmlDeviceGetName(handle)),
            memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20,
            compute_capability=major * 10 + minor,
            numa=self._inside.numa[index] if self._inside.numa else -1,
            ecc=nvml_readings.ecc(nvml, handle),
            mig=mig,
            instances=nvml_readings.instances(nvml, handle) if mig else (),
        )

    def _look_inside(self, sys: Path) -> NodeTopology:
        nvml = self._nvml
        bus_ids = [
            self._ask(lambda h: text(nvml.nvmlDeviceGetPciInfo(h).busId), handle, "") for handle in self._handles
        ]
        return describe(
            sys,
            machine.cpus(),
            [address_of(bus_id) for bus_id in bus_ids],
            nvlinks=nvlinks(nvml, self._handles, bus_ids),
            pcie=pcie_levels(nvml, self._handles),
        )

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs in the driver's order."""
        return self._gpus

    def inside(self) -> NodeTopology:
        """Return the description that NVML and the kernel gave when the adapter was opened."""
        return self._inside

    def labels(self) -> dict[str, str]:
        """GPU feature discovery's, with the versions of driver and CUDA."""
        return self._labels

    def _label(self) -> dict[str, str]:
        nvml = self._nvml
        cliques = {nvml_readings.clique(nvml, handle) for handle in self._handles}
        capable = any(nvml_readings.mig(nvml, handle) is not None for handle in self._handles)
        mps = bool(pipe_directory(os.environ))
        cuda = nvml_readings.value_or(nvml, 0, lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
        return {
            **gpu_labels(
                self._gpus,
                self._machine,
                mig_capable=capable,
                clique=cliques.pop() if len(cliques) == 1 else "",
                mps=mps,
            ),
            **driver_labels(text(nvml.nvmlSystemGetDriverVersion()), cuda),
            **inside_labels(self._inside),
            **({"fairlead/gpu-sharing": "mps" if mps else "time-slicing"} if self._gpus else {}),
        }

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """Return the MPS variables that limit a share of a GPU."""
        return share_environment(order, "" if contained else pipe_directory(os.environ))

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Return the driver's present values. A value that a GPU does not report is None; a GPU or instance that does not
        answer is left out.
        """
        samples: list[GpuSample] = []
        for gpu, handle in zip(self._gpus, self._handles, strict=True):
            with contextlib.suppress(self._nvml.NVMLError):
                samples.append(self._sample(gpu, handle, holders.get(gpu.uuid, "")))
            for each in gpu.instances:
                with contextlib.suppress(self._nvml.NVMLError):
                    samples += self._sample_instance(gpu, handle, each.uuid, holders.get(each.uuid, ""))
        return samples

    def _sample_instance(self, gpu: Gpu, handle: Any, uuid: str, run: str) -> list[GpuSample]:
        """Memory and profiling are all that the driver tells of a MIG instance: power and clocks are the GPU's."""
        part = self._by_uuid.get(uuid)
        if part is None:
            return []
        number = self._ask(self._nvml.nvmlDeviceGetGpuInstanceId, part, None)
        return [
            GpuSample(
                uuid=uuid,
                parent=gpu.uuid,
                run=run,
                memory_used_mib=self._used_mib(part),
                **memory(self._nvml, part),
                **({} if number is None else self._profiling.take(handle, uuid, int(number))),
            )
        ]

    def _sample(self, gpu: Gpu, handle: Any, run: str) -> GpuSample:
        nvml = self._nvml
        utilization = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle, None)
        return GpuSample(
            uuid=gpu.uuid,
            parent="",
            utilization_pct=None if utilization is None else int(utilization.gpu),
            memory_used_mib=self._used_mib(handle),
            power_mw=self._ask(nvml.nvmlDeviceGetPowerUsage, handle, None),
            temperature_c=self._ask(
                lambda h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU), handle, None
            ),
            sm_clock_mhz=self._ask(lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM), handle, None),
            run=run,
            **self._more(gpu, handle),
        )

    def _more(self, gpu: Gpu, handle: Any) -> dict[str, int]:
        """Traffic over PCIe is counted for us where there is profiling; elsewhere asking for it takes the driver a while."""
        profiled = {} if gpu.mig else self._profiling.take(handle, gpu.uuid)
        traffic = {} if "pcie_tx_bytes_s" in profiled else pcie_traffic(self._nvml, handle)
        return {**meters(self._nvml, handle), **traffic, **profiled}

    def health(self) -> list[GpuHealth]:
        """Return every GPU's health, as the driver reports it."""
        return [health(self._nvml, handle, gpu.uuid) for gpu, handle in zip(self._gpus, self._handles, strict=True)]

    def xids(self) -> list[Xid]:
        """By the driver's events, since this was opened."""
        return self._xids.take()

    def processes(self) -> list[GpuProcess]:
        """Return the processes of every GPU, and for a GPU that is cut those of its instances that can be queried."""
        parts = [each.uuid for gpu in self._gpus for each in (gpu.instances if gpu.mig else (gpu,))]
        handles = [(uuid, self._by_uuid.get(uuid)) for uuid in parts]
        return [
            each
            for uuid, handle in handles
            if handle is not None
            for each in processes(self._nvml, handle, uuid, self._utilizations)
        ]

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """Compute processes on the GPU, or memory that has not come down."""
        return {uuid: evidence for uuid in uuids if (evidence := self._occupied(uuid))}

    def _occupied(self, uuid: str) -> str:
        handle = self._by_uuid.get(uuid)
        if handle is None:
            return "this node has no such GPU" if uuid not in self._by_uuid else "the MIG instance cannot be asked"
        try:
            pids, used_mib = self._pids(handle), self._used_mib(handle)
        except self._nvml.NVMLError as error:
            return f"the GPU does not answer: {error}"
        if pids:
            return "processes on it: " + ", ".join(map(str, pids[:8]))
        if used_mib > self._free_mib:
            return f"{used_mib} MiB in use without a process, of a free GPU at most {self._free_mib}"
        return ""

    def _pids(self, handle: Any) -> list[int]:
        """Return the GPU's process ids without the MPS server, which stays on its GPUs regardless of its clients."""
        return [pid for pid in running(self._nvml, handle) if machine.program(pid) != MPS_SERVER]

    def _used_mib(self, handle: Any) -> int:
        """Without what the driver reserves for itself, which the first version of this call counts as used where the
        second one exists; where it does not, nothing reserved is in the total."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used // 2**20
        except nvml.NVMLError:
            return nvml.nvmlDeviceGetMemoryInfo(handle).used // 2**20

    def _ask(self, call: Callable[[Any], Any], handle: Any, absent: Any) -> Any:
        try:
            return call(handle)
        except (self._nvml.NVMLError, AttributeError):
            return absent

    def close(self) -> None:
        """Let go of the driver."""
        self._xids.close()
        self._profiling.close()
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def _import() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise DevicesUnfit("the package nvidia-ml-py is not installed: pip install 'nvidia-ml-py>=13'") from error
    return pynvml
