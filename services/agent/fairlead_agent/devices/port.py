"""Interface of a device adapter; and facts about a GPU, as its driver reports them: health, faults as they happen, and its
processes. Adapters: NVML, simulated, recorded, none, and those of installed packages (`adapters.py`); one contract
suite for all.

`busy` is the evidence on which GPUs are released: an exit message alone frees nothing.

Judges nothing.

None means unknown: this GPU, driver or library does not report it. A zero is a zero that was read.
"""

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import msgspec

from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample

#: Reason why clocks are held down, if that is a fault or may become one. A configured power cap (`power_cap`)
#: is no fault.
Slowdown = Literal[
    "power_cap",  # at the limit that is set: usual under load
    "hw_slowdown",  # hardware has halved the clocks or more: heat or power
    "hw_thermal",  # too hot for the hardware
    "hw_power_brake",  # the power supply asks for less
    "sw_thermal",  # too hot by the driver's limit
]
#: {slowdown: its bit among NVML's reasons}
SLOWDOWNS: dict[Slowdown, int] = {
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
#: What the driver asks for, in NVML's words.
Recovery = Literal["none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "other"]


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Health of one GPU at one moment. Counters rise until the driver is reloaded ("volatile"), or for the GPU's life."""

    uuid: str
    #: It does not answer any more: fallen off the bus, or to be reset. Then nothing else is known but `why`.
    lost: bool = False
    #: Of a lost one: the driver's words.
    why: str = ""
    ecc_volatile_correctable: int | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_correctable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    #: Rows of memory that were remapped since the GPU was made; a remapping waits for a reset; one has failed.
    rows_remapped: int | None = None
    #: Of these, for an error that could not be corrected.
    rows_remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    #: () while clocks are as they should be.
    slowdowns: tuple[Slowdown, ...] | None = None
    #: For how long power, and heat, have held clocks down since the driver was loaded.
    power_held_ns: int | None = None
    heat_held_ns: int | None = None
    temperature_c: int | None = None
    #: From here on the hardware slows down; many GPUs of today say a margin only.
    temperature_slowdown_c: int | None = None
    temperature_margin_c: int | None = None
    #: As the driver writes it: "00000000:07:00.0".
    pcie_bus_id: str | None = None
    #: PCIe lanes and generation. An idle GPU lowers its generation to save power: only under load is a low one a fault.
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_replays: int | None = None
    #: Replays, recoveries and CRC errors of all NVLinks together.
    nvlink_errors: int | None = None
    recovery: Recovery | None = None


class Xid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fault of a GPU that the driver has reported. The number's meaning is defined elsewhere (health/)."""

    uuid: str
    code: int
    #: Of a MIG instance, as NVML numbers them.
    gpu_instance: int | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A process on a GPU or a MIG instance."""

    uuid: str
    pid: int
    memory_mib: int | None = None
    #: Its part of the GPU's time in the last sample period.
    utilization_pct: int | None = None


class DevicesUnfit(Exception):
    """The devices cannot be used on this machine; the message names the missing part."""


class Devices(Protocol):
    """The GPUs of one node."""

    #: "simulated", "recorded", "nvml", "none", or that of an installed package.
    name: str
    #: True where the GPUs are played.
    simulated: bool

    def gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU, by rising index. The answer stays the same while the machine is up, except for changes by
        `cut`.
        """
        ...

    def inside(self) -> NodeTopology:
        """Links, NUMA nodes, CPUs and NICs, a place for each GPU in the order of `gpus`; UNKNOWN where nothing is known."""
        ...

    def labels(self) -> dict[str, str]:
        """Node labels in GPU-feature-discovery's words; none where there is no GPU."""
        ...

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """Return the variables that a run on these devices needs in addition to those of every run; a job cannot change
        them.

        `contained`: the run is in a container, without the machine's files and pipes.
        """
        ...

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Return one moment of every GPU, each followed by its MIG instances.

        `holders`: {uuid: "<job>.<attempt>"} of granted GPUs and instances.
        """
        ...

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """Return {uuid: evidence} for those GPUs or MIG instances that are still occupied; empty when all are free. A
        device that cannot be queried counts as busy.
        """
        ...

    def health(self) -> list[GpuHealth]:
        """Return every GPU's health, in the order of `gpus`; a lost GPU is included and marked as lost."""
        ...

    def xids(self) -> list[Xid]:
        """Faults that the driver has reported since the last call, oldest first; never waits for one."""
        ...

    def processes(self) -> list[GpuProcess]:
        """Return the processes that compute on the GPUs, by GPU and pid. A GPU that does not report its processes has none
        in the list.
        """
        ...

    def cut(self, order: LayoutOrder) -> str:
        """Repartition a GPU on which everything that is removed is unused. Returns "", or the reason for a failure; `gpus`
        then shows the present state.
        """
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
