"""NIC of each GPU of a choice: the nearest on PCIe, found by level, never by its place in the list."""

from typing import NamedTuple

from fairlead_placer.topology.masks import members_of
from fairlead_schemas.wire.resources import PCIE_LEVELS, NodeTopology, PcieLevel


class GpuNic(NamedTuple):
    """A GPU and the place of its NIC in the description's `nics`."""

    gpu: int
    nic: int
    level: PcieLevel


def nearest(description: NodeTopology, gpus: int) -> tuple[GpuNic, ...]:
    """A NIC for each GPU of the mask, in rising order of GPUs; () where levels are not known.

    Always one of the nearest of its GPU. Where several are equally near, GPUs share as little as possible: a maximum
    matching of GPUs and NICs, then another of the GPUs left over, until each has one. Ties go to the NIC named first.
    """
    if not description.nics or not description.nic_levels:
        return ()
    near = {gpu: _near(description.nic_levels[gpu]) for gpu in members_of(gpus)}
    found: dict[int, int] = {}
    while len(found) < len(near):
        holder: dict[int, int] = {}
        for gpu in near:
            if gpu not in found:
                _match(gpu, near, holder, set())
        found |= {gpu: nic for nic, gpu in holder.items()}
    return tuple(GpuNic(gpu, found[gpu], description.nic_levels[gpu][found[gpu]]) for gpu in near)


def _near(levels: tuple[PcieLevel, ...]) -> list[int]:
    """The NICs at the nearest level; a level that is not known is farther than any."""
    far = [PCIE_LEVELS.index(level) for level in levels]
    return [nic for nic, level in enumerate(far) if level == min(far)]


def _match(gpu: int, near: dict[int, list[int]], holder: dict[int, int], seen: set[int]) -> bool:
    """Give the GPU a NIC, moving others where that helps (augmenting paths, Kuhn 1955); False where it gets none."""
    for nic in near[gpu]:
        if nic not in holder:
            holder[nic] = gpu
            return True
    for nic in near[gpu]:
        if nic not in seen:
            seen.add(nic)
            if _match(holder[nic], near, holder, seen):
                holder[nic] = gpu
                return True
    return False
