"""What NVML measures of one GPU at one moment besides the first few numbers: memory's parts, clocks, energy, traffic.

A call that this GPU, driver or package has not leaves its number out. Not tried on a GPU yet: the calls are those of the NVML
manual, played in the tests.
"""

from typing import Any

from fairlead_agent.devices.nvml_facts import asked
from fairlead_agent.devices.nvml_health import VALUES

MIB, KB = 2**20, 1000
#: Values of nvmlClockType_t and nvmlPcieUtilCounter_t, which a driver never changes.
_CLOCK_MEMORY, _PCIE_TX, _PCIE_RX = 2, 0, 1
#: (field, its name): nvmlFieldId. Of NVLink, payload without protocol.
_FIELDS: tuple[tuple[int, str], ...] = (
    (82, "memory_temperature_c"), (83, "energy_mj"), (138, "nvlink_tx_kib"), (139, "nvlink_rx_kib"),
)  # fmt: skip
_NVLINK = (138, 139)
#: As the scope of a field of links: all of them together.
_ALL_LINKS = 0xFFFFFFFF


def meters(nvml: Any, handle: Any) -> dict[str, int]:
    """{field of a sample: value} of what the GPU says."""
    found: dict[str, int | None] = {
        **memory(nvml, handle),
        "memory_busy_pct": asked(nvml, None, lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).memory)),
        "memory_clock_mhz": asked(nvml, None, lambda: int(nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY))),
        "encoder_pct": asked(nvml, None, lambda: int(nvml.nvmlDeviceGetEncoderUtilization(handle)[0])),
        "decoder_pct": asked(nvml, None, lambda: int(nvml.nvmlDeviceGetDecoderUtilization(handle)[0])),
        **asked(nvml, {}, lambda: _fields(nvml, handle)),
    }
    return {name: value for name, value in found.items() if value is not None}


def pcie_traffic(nvml: Any, handle: Any) -> dict[str, int]:
    """Bytes per second each way. The driver counts for 20 ms at each of the two questions."""
    ways = (("pcie_tx_bytes_s", _PCIE_TX), ("pcie_rx_bytes_s", _PCIE_RX))
    found = {
        name: asked(nvml, None, lambda way=way: int(nvml.nvmlDeviceGetPcieThroughput(handle, way)) * KB)
        for name, way in ways
    }
    return {name: value for name, value in found.items() if value is not None}


def memory(nvml: Any, handle: Any) -> dict[str, int | None]:
    """Of a GPU or MIG instance. Only the second version of the call keeps apart what is reserved."""

    def parts() -> dict[str, int | None]:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return {"memory_free_mib": int(memory.free) // MIB, "memory_reserved_mib": int(memory.reserved) // MIB}

    def free() -> dict[str, int | None]:
        return {"memory_free_mib": int(nvml.nvmlDeviceGetMemoryInfo(handle).free) // MIB}

    return asked(nvml, {}, parts) or asked(nvml, {}, free)


def _fields(nvml: Any, handle: Any) -> dict[str, int]:
    wanted = [(field, _ALL_LINKS if field in _NVLINK else 0) for field, _ in _FIELDS]
    values = nvml.nvmlDeviceGetFieldValues(handle, wanted)
    return {
        name: int(getattr(each.value, VALUES[each.valueType]))
        for (_, name), each in zip(_FIELDS, values, strict=True)
        if not each.nvmlReturn and each.valueType < len(VALUES)
    }
