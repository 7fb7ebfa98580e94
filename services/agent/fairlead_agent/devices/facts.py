"""Facts about a GPU, as its driver tells them: health, faults as they happen, and who uses it. Judges nothing.

None stands for "not known": this GPU, driver or library does not say. A zero is a zero that was read.
"""

from typing import Literal

import msgspec

#: Why clocks are held down, as far as that is a fault or may become one; a power cap that was set (`power_cap`) is none.
Slowdown = Literal[
    "power_cap",  # at the limit that is set: usual under load
    "hw_slowdown",  # hardware has halved the clocks or more: heat or power
    "hw_thermal",  # too hot for the hardware
    "hw_power_brake",  # the power supply asks for less
    "sw_thermal",  # too hot by the driver's limit
]
#: {slowdown: its bit among NVML's reasons}
SLOWDOWNS: dict[Slowdown, int] = {
    "power_cap": 0x4, "hw_slowdown": 0x8, "sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80,
}  # fmt: skip
#: What the driver asks for, in NVML's words.
Recovery = Literal["none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "other"]


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One GPU at one moment. Counters rise until the driver is loaded anew ("volatile"), or for the GPU's life."""

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
    """The driver has reported a fault of this GPU. What the number means is not said here (health/)."""

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
