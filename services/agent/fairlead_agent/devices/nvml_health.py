"""Health of a GPU as NVML tells it: counters by field values, in one call; the rest one by one. A call that this GPU,
driver or package has not leaves its fact unknown; one that says that the GPU is gone makes it lost.

Not tried on a GPU yet; the calls are those of the NVML manual, played in the tests.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead_agent.devices.facts import SLOWDOWNS, GpuHealth, Recovery
from fairlead_agent.devices.nvml_facts import text

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
    *_ECC, *_REMAPPED, _REMAP_PENDING, _REMAP_FAILED, *_NVLINK, _PCIE_REPLAYS, _RECOVERY, _POWER_HELD, _HEAT_HELD,
)  # fmt: skip
#: nvmlDeviceGpuRecoveryAction_t; those that are not here are "other".
_RECOVERIES: dict[int, Recovery] = {
    0: "none", 1: "gpu_reset", 2: "node_reboot", 3: "drain_p2p", 4: "drain_and_reset", 7: "node_reboot",
}  # fmt: skip
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
        return _asked(nvml, call)

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


def _asked[T](nvml: Any, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except AttributeError:
        return None
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in GONE:
            raise _Gone(str(error)) from error
        return None


def _fields(nvml: Any, handle: Any) -> dict[int, int]:
    """{field: value} of those that the GPU has."""
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
