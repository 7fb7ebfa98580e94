"""Health of a GPU as NVML tells it: counters by field values, in one call; the rest one by one. A call that this GPU,
driver or package has not leaves its fact unknown; one that says that the GPU is gone makes it lost.

Further parts:
- single facts of a GPU that NVML knows: ECC, MIG instances, the fabric that it is part of;
- further NVML measurements of one GPU at one moment, after the first few numbers: memory's parts, clocks, energy,
  traffic;
- links between GPUs from NVML: NVLinks and PCIe levels per pair.

Not tried on a GPU yet; the calls are those of the NVML manual, played in the tests.

A number is left out if this GPU, driver or package does not have the call. Not tried on a GPU yet: the calls
are those of the NVML manual, simulated in the tests.

A question without an answer counts as no link.
"""

import ctypes
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fairlead_agent.devices.port import SLOWDOWNS, GpuHealth, Recovery
from fairlead_agent.linux.machine import Levels, Links
from fairlead_schemas.wire.resources import NVLINKS_MAX, MigInstance, PcieLevel

_FABRIC_COMPLETED = 3


def text(value: "str | bytes") -> str:
    """Return NVML's value as text; some versions of its package give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def value_or[T](nvml: Any, absent: T, call: Callable[[], T]) -> T:
    """Return the call's result, or `absent` if this driver, package or GPU does not support it."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return absent


def ecc(nvml: Any, handle: Any) -> Literal["on", "off", ""]:
    """Return the GPU's present ECC state; "" if the GPU has no ECC."""
    mode = value_or(nvml, None, lambda: nvml.nvmlDeviceGetEccMode(handle)[0])
    return "" if mode is None else "on" if mode else "off"


def mig(nvml: Any, handle: Any) -> bool | None:
    """Return True if the GPU is in MIG mode now; None if it does not support MIG."""
    mode = value_or(nvml, None, lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return None if mode is None else bool(mode)


def instances(nvml: Any, handle: Any) -> tuple[MigInstance, ...]:
    """The MIG instances on a GPU in MIG mode, by their first memory slice."""
    count = value_or(nvml, 0, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    found = [value_or(nvml, None, lambda at=at: _instance(nvml, handle, at)) for at in range(count)]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.start, each.uuid)))


def _instance(nvml: Any, handle: Any, at: int) -> MigInstance:
    device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
    # "NVIDIA A100-SXM4-80GB MIG 3g.40gb": the name ends with the profile.
    profile = text(nvml.nvmlDeviceGetName(device)).rpartition("MIG ")[2]
    start = value_or(nvml, -1, lambda: _start(nvml, handle, device))
    return MigInstance(uuid=text(nvml.nvmlDeviceGetUUID(device)), profile=profile, start=start)


def _start(nvml: Any, handle: Any, device: Any) -> int:
    instance = nvml.nvmlDeviceGetGpuInstanceById(handle, nvml.nvmlDeviceGetGpuInstanceId(device))
    return int(nvml.nvmlGpuInstanceGetInfo(instance).placement.start)


def clique(nvml: Any, handle: Any) -> str:
    """ "<cluster's UUID>.<clique>" of a GPU whose NVLinks reach beyond its node; "" for others.

    A machine whose fabric ends at itself says a cluster of zeros: that is no name, or all of them would be one domain.
    """

    def ask() -> str:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
        return (
            f"{cluster}.{info.cliqueId}" if info.state == _FABRIC_COMPLETED and not info.status and cluster.int else ""
        )

    return value_or(nvml, "", ask)


#: Errors after which the GPU answers nothing any more: lost, and to be reset.
GONE = (15, 16)
#: Values of nvmlFieldId: a driver never changes them. Totals of bit errors: single and double, volatile; then aggregate.
_ECC = (3, 4, 5, 6)
_REMAPPED, _REMAP_PENDING, _REMAP_FAILED = (142, 143), 144, 145
#: CRC errors of flits and of data, replays, recoveries: each the total over all links.
_NVLINK = (38, 45, 52, 59)
_PCIE_REPLAYS, _RECOVERY = 94, 230
#: Nanoseconds for which clocks were held down, by power and by heat.
_POWER_HELD, _HEAT_HELD = 74, 75
_FIELDS = (
    *_ECC,
    *_REMAPPED,
    _REMAP_PENDING,
    _REMAP_FAILED,
    *_NVLINK,
    _PCIE_REPLAYS,
    _RECOVERY,
    _POWER_HELD,
    _HEAT_HELD,
)
#: nvmlDeviceGpuRecoveryAction_t; those that are not here are "other".
_RECOVERIES: dict[int, Recovery] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    7: "node_reboot",
}
#: nvmlClocksEventReasons.
_TEMPERATURE_GPU, _THRESHOLD_SLOWDOWN = 0, 1
#: Members of a field's value, by nvmlValueType_t.
VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class _Gone(Exception):
    """The GPU does not answer any more; the message is the driver's."""


def health(nvml: Any, handle: Any, uuid: str) -> GpuHealth:
    """Everything that the driver knows of one GPU's health."""
    try:
        return _health(nvml, handle, uuid)
    except _Gone as error:
        return GpuHealth(uuid=uuid, lost=True, why=str(error))


def _health(nvml: Any, handle: Any, uuid: str) -> GpuHealth:
    def ask[T](call: Callable[[], T]) -> T | None:
        return _value_or_none(nvml, call)

    ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    counted = ask(lambda: _fields(nvml, handle)) or {}
    pending = counted.get(_REMAP_PENDING)
    if pending is None:  # before Ampere, pages are retired instead of rows remapped, and wait for a reset alike
        pending = ask(lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    failed, recovery = counted.get(_REMAP_FAILED), counted.get(_RECOVERY)
    reasons = ask(lambda: _reasons(nvml, handle))
    return GpuHealth(
        uuid=uuid,
        ecc_volatile_correctable=counted.get(_ECC[0]),
        ecc_volatile_uncorrectable=counted.get(_ECC[1]),
        ecc_aggregate_correctable=counted.get(_ECC[2]),
        ecc_aggregate_uncorrectable=counted.get(_ECC[3]),
        rows_remapped=_sum(counted, _REMAPPED),
        rows_remapped_uncorrectable=counted.get(_REMAPPED[1]),
        remap_pending=None if pending is None else bool(pending),
        remap_failed=None if failed is None else bool(failed),
        slowdowns=None if reasons is None else tuple(name for name, bit in SLOWDOWNS.items() if reasons & bit),
        temperature_c=ask(lambda: int(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU))),
        temperature_slowdown_c=ask(lambda: int(nvml.nvmlDeviceGetTemperatureThreshold(handle, _THRESHOLD_SLOWDOWN))),
        temperature_margin_c=ask(lambda: int(nvml.nvmlDeviceGetMarginTemperature(handle))),
        pcie_width=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))),
        pcie_width_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
        pcie_generation=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))),
        pcie_generation_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
        pcie_replays=counted.get(_PCIE_REPLAYS),
        nvlink_errors=_sum(counted, _NVLINK),
        power_held_ns=counted.get(_POWER_HELD),
        heat_held_ns=counted.get(_HEAT_HELD),
        pcie_bus_id=ask(lambda: text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        recovery=None if recovery is None else _RECOVERIES.get(recovery, "other"),
    )


def _value_or_none[T](nvml: Any, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except AttributeError:
        return None
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in GONE:
            raise _Gone(str(error)) from error
        return None


def _fields(nvml: Any, handle: Any) -> dict[int, int]:
    """Return {field: value} for the fields that the GPU has."""
    found = nvml.nvmlDeviceGetFieldValues(handle, list(_FIELDS))
    return {
        field: int(getattr(each.value, VALUES[each.valueType]))
        for field, each in zip(_FIELDS, found, strict=True)
        if not each.nvmlReturn and each.valueType < len(VALUES)
    }


def _reasons(nvml: Any, handle: Any) -> int:
    """Under the name that the driver has; the older one came first."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in GONE:
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _sum(counted: dict[int, int], fields: Sequence[int]) -> int | None:
    known = [counted[field] for field in fields if field in counted]
    return sum(known) if known else None


MIB, KB = 2**20, 1000
#: Values of nvmlClockType_t and nvmlPcieUtilCounter_t, which a driver never changes.
_CLOCK_MEMORY, _PCIE_TX, _PCIE_RX = 2, 0, 1
#: (field, its name): nvmlFieldId. Of NVLink, payload without protocol.
_METER_FIELDS: tuple[tuple[int, str], ...] = (
    (82, "memory_temperature_c"),
    (83, "energy_mj"),
    (138, "nvlink_tx_kib"),
    (139, "nvlink_rx_kib"),
)
_LINK_FIELDS = (138, 139)
#: As the scope of a field of links: all of them together.
_ALL_LINKS = 0xFFFFFFFF


def meters(nvml: Any, handle: Any) -> dict[str, int]:
    """{field of a sample: value} of what the GPU says."""
    found: dict[str, int | None] = {
        **memory(nvml, handle),
        "memory_busy_pct": value_or(nvml, None, lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).memory)),
        "memory_clock_mhz": value_or(nvml, None, lambda: int(nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY))),
        "encoder_pct": value_or(nvml, None, lambda: int(nvml.nvmlDeviceGetEncoderUtilization(handle)[0])),
        "decoder_pct": value_or(nvml, None, lambda: int(nvml.nvmlDeviceGetDecoderUtilization(handle)[0])),
        **value_or(nvml, {}, lambda: _meter_fields(nvml, handle)),
    }
    return {name: value for name, value in found.items() if value is not None}


def pcie_traffic(nvml: Any, handle: Any) -> dict[str, int]:
    """Bytes per second each way. The driver counts for 20 ms at each of the two questions."""
    ways = (("pcie_tx_bytes_s", _PCIE_TX), ("pcie_rx_bytes_s", _PCIE_RX))
    found = {
        name: value_or(nvml, None, lambda way=way: int(nvml.nvmlDeviceGetPcieThroughput(handle, way)) * KB)
        for name, way in ways
    }
    return {name: value for name, value in found.items() if value is not None}


def memory(nvml: Any, handle: Any) -> dict[str, int | None]:
    """Return the memory values of a GPU or MIG instance. Only the second version of the call separates reserved
    memory.
    """

    def parts() -> dict[str, int | None]:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return {"memory_free_mib": int(memory.free) // MIB, "memory_reserved_mib": int(memory.reserved) // MIB}

    def free() -> dict[str, int | None]:
        return {"memory_free_mib": int(nvml.nvmlDeviceGetMemoryInfo(handle).free) // MIB}

    return value_or(nvml, {}, parts) or value_or(nvml, {}, free)


def _meter_fields(nvml: Any, handle: Any) -> dict[str, int]:
    wanted = [(field, _ALL_LINKS if field in _LINK_FIELDS else 0) for field, _ in _METER_FIELDS]
    values = nvml.nvmlDeviceGetFieldValues(handle, wanted)
    return {
        name: int(getattr(each.value, VALUES[each.valueType]))
        for (_, name), each in zip(_METER_FIELDS, values, strict=True)
        if not each.nvmlReturn and each.valueType < len(VALUES)
    }


#: Values of nvmlGpuTopologyLevel_t and nvmlNvLinkDeviceType_t; a driver never changes them.
_LEVELS: dict[int, PcieLevel] = {0: "SAME_BOARD", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_TO_GPU, _TO_SWITCH = 0, 2
#: Links that a GPU may have; asking for one that is not there costs little.
_LINKS_MAX = 36


def pcie_levels(nvml: Any, handles: Sequence[Any]) -> Levels:
    """[gpu][gpu], "" where the driver does not say (in many virtual machines)."""

    def level(i: int, j: int) -> PcieLevel:
        if i == j:
            return "X"
        try:
            return _LEVELS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(handles[i], handles[j]), "")
        except nvml.NVMLError:
            return ""

    # One triangle is asked, so that both ways are the same.
    count = range(len(handles))
    return tuple(tuple(level(min(i, j), max(i, j)) for j in count) for i in count)


def nvlinks(nvml: Any, handles: Sequence[Any], bus_ids: Sequence[str]) -> Links:
    """[gpu][gpu] active links between the two; () where there are none. `bus_ids` as NVML writes them.

    Two GPUs on NVSwitches reach each other over as many links as the one with fewer of them has.
    """
    direct = [[0] * len(handles) for _ in handles]
    switched = [0] * len(handles)
    index = {bus_id.lower(): i for i, bus_id in enumerate(bus_ids)}
    for i, handle in enumerate(handles):
        for link in range(_LINKS_MAX):
            end = _far_end(nvml, handle, link)
            if end == _TO_SWITCH:
                switched[i] += 1
            elif isinstance(end, str) and (j := index.get(end, i)) != i:
                direct[i][j] += 1
    count = range(len(handles))
    rows = tuple(
        tuple(
            0 if i == j else min(NVLINKS_MAX, min(direct[i][j], direct[j][i]) + min(switched[i], switched[j]))
            for j in count
        )
        for i in count
    )
    return rows if any(map(any, rows)) else ()


def _far_end(nvml: Any, handle: Any, link: int) -> int | str | None:
    """_TO_SWITCH, a GPU's bus id, or None for a link that is down, absent, or leads elsewhere."""
    try:
        if not nvml.nvmlDeviceGetNvLinkState(handle, link):
            return None
        kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        if kind != _TO_GPU:
            return kind if kind == _TO_SWITCH else None
        bus_id = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
    except nvml.NVMLError:
        return None
    return (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
