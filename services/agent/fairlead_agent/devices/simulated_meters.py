"""Further values of a simulated GPU, after its first few numbers: plausible, derived from these; no measurement; and
samples of simulated MIG instances: as for real ones memory and active parts, but no utilisation, power or clocks. Pure.

Energy is power over time, so it fits the shown power; traffic and pipes follow utilisation. The parts were
chosen, not measured: a training job that is bound by its tensor pipes.
"""

import re
from collections.abc import Mapping

from fairlead_schemas.wire.resources import Gpu, MigInstance
from fairlead_schemas.wire.samples import GpuSample

#: What an idle one shows as used.
IDLE_MIB = 4
#: Thousandths per percent of utilisation.
_PIPES = {
    "engine_permille": 10,
    "sm_permille": 9,
    "sm_occupancy_permille": 4,
    "tensor_permille": 4,
    "dram_permille": 3,
    "fp64_permille": 0,
    "fp32_permille": 1,
    "fp16_permille": 1,
}
#: Bytes per second and KiB per second at full use.
_PCIE_BYTES_S, _NVLINK_KIB_S = 2_000_000_000, 20 << 20
#: MHz of memory, idle and busy; a busy one is so many degrees warmer than the GPU.
_MEMORY_CLOCKS, _MEMORY_WARMER_C = (405, 1593), 6


def shown(gpu: Gpu, run: str, wave: float) -> dict[str, int]:
    """{field of a sample: value} of the first few numbers: idle, or high with a slow wave (-1 to 1) while a run holds it."""
    if not run:
        return {
            "utilization_pct": 0,
            "memory_used_mib": IDLE_MIB,
            "power_mw": 55_000,
            "temperature_c": 32,
            "sm_clock_mhz": 210,
        }
    return {
        "utilization_pct": round(88 + 8 * wave),
        "memory_used_mib": gpu.memory_mib * 3 // 5,
        "power_mw": 250_000 + round(40_000 * wave),
        "temperature_c": 58 + round(6 * wave),
        "sm_clock_mhz": 1410,
    }


def pipes(busy: int) -> dict[str, int]:
    """{field of a sample: thousandths} at so many percent of utilisation."""
    return {name: factor * busy for name, factor in _PIPES.items()}


class PlayedMeters:
    """The counters of one machine's GPUs, since it was opened."""

    def __init__(self) -> None:
        #: {UUID: (second of the last look, mJ, KiB over NVLink)}.
        self._counted: dict[str, tuple[float, int, int]] = {}

    def of(self, gpu: Gpu, shown: Mapping[str, int], second: float, *, linked: bool) -> dict[str, int]:
        """{field of a sample: value} for a GPU that shows these at that second; `linked`: it has NVLinks."""
        busy, power = shown["utilization_pct"], shown["power_mw"]
        before, energy, sent = self._counted.get(gpu.uuid, (second, 0, 0))
        passed = max(0.0, second - before)
        energy += round(power * passed)
        sent += round(_NVLINK_KIB_S * busy / 100 * passed)
        self._counted[gpu.uuid] = (second, energy, sent)
        found = {
            "memory_free_mib": max(0, gpu.memory_mib - shown["memory_used_mib"]), "memory_reserved_mib": 0,
            "memory_busy_pct": busy * 2 // 5, "memory_clock_mhz": _MEMORY_CLOCKS[busy > 0],
            "memory_temperature_c": shown["temperature_c"] + _MEMORY_WARMER_C * (busy > 0), "encoder_pct": 0, "decoder_pct": 0,
            "energy_mj": energy, "pcie_tx_bytes_s": _PCIE_BYTES_S * busy // 100, "pcie_rx_bytes_s": _PCIE_BYTES_S * busy // 50,
            **pipes(busy),
        }  # fmt: skip
        return found | ({"nvlink_tx_kib": sent, "nvlink_rx_kib": sent} if linked else {})


_GB = re.compile(r"\.(\d+)gb", re.ASCII)
#: What an idle one shows as used.
IDLE_INSTANCE_MIB = 2


def instance_samples(
    gpu: Gpu, holders: Mapping[str, str], used_mib: Mapping[str, int], busy_pct: int
) -> list[GpuSample]:
    """Return a row for each instance of the GPU.

    `used_mib`: use by {UUID}, for the instances with a reported use. `busy_pct`: activity of an instance that is
    held.
    """
    return [
        _sample(gpu, each, holders.get(each.uuid, ""), used_mib.get(each.uuid, 0), busy_pct) for each in gpu.instances
    ]


def _sample(gpu: Gpu, instance: MigInstance, run: str, reported_mib: int, busy_pct: int) -> GpuSample:
    found = _GB.search(instance.profile)
    size = int(found[1]) * 1024 if found else 0
    used = min(size, IDLE_INSTANCE_MIB + reported_mib) if reported_mib or not run else size * 3 // 5
    return GpuSample(
        uuid=instance.uuid,
        parent=gpu.uuid,
        run=run,
        memory_used_mib=used,
        memory_free_mib=size - used,
        memory_reserved_mib=0,
        **pipes(busy_pct if run else 0),
    )
