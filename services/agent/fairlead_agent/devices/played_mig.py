"""What simulated MIG instances show: as of real ones memory and parts at work, but no utilisation, power or clocks. Pure."""

import re
from collections.abc import Mapping

from fairlead_agent.devices.played_meters import pipes
from fairlead_schemas.resources import Gpu, MigInstance
from fairlead_schemas.samples import GpuSample

_GB = re.compile(r"\.(\d+)gb", re.ASCII)
#: What an idle one shows as used.
IDLE_MIB = 2


def instance_samples(
    gpu: Gpu, holders: Mapping[str, str], used_mib: Mapping[str, int], busy_pct: int
) -> list[GpuSample]:
    """A row for each instance of the GPU. `used_mib`: {UUID} of those whose use somebody has told; `busy_pct`: what one that
    is held does."""
    return [
        _sample(gpu, each, holders.get(each.uuid, ""), used_mib.get(each.uuid, 0), busy_pct) for each in gpu.instances
    ]


def _sample(gpu: Gpu, instance: MigInstance, run: str, told_mib: int, busy_pct: int) -> GpuSample:
    found = _GB.search(instance.profile)
    size = int(found[1]) * 1024 if found else 0
    used = min(size, IDLE_MIB + told_mib) if told_mib or not run else size * 3 // 5
    return GpuSample(
        uuid=instance.uuid, parent=gpu.uuid, run=run, memory_used_mib=used, memory_free_mib=size - used, memory_reserved_mib=0,
        **pipes(busy_pct if run else 0),
    )  # fmt: skip
