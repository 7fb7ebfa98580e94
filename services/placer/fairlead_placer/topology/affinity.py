"""CPUs to which an attempt is pinned: those of its GPUs' NUMA nodes, or those that free GPUs need least; and NIC of each
GPU of a choice: the nearest on PCIe, found by level, never by its place in the list.

Counts are of whole CPUs, as Linux counts them (threads). The first CPUs of every NUMA node are reserved for the system,
and never given.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import mask_of, members_of, numa_of
from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.wire.resources import PCIE_LEVELS, NodeTopology, PcieLevel


class NumaCpus(NamedTuple):
    """NUMA node, with or without GPUs."""

    node: int
    socket: int  # -1: not known
    #: What may be given, in the order in which it is.
    cpus: tuple[int, ...]
    mask: int  # of the same
    gpus: int  # mask
    #: [n]: mask of the first n of its CPUs.
    first: tuple[int, ...]

    def share(self, free_gpus: int) -> int:
        """CPUs that the node's free GPUs may count on: as large a part of its CPUs as they are of its GPUs."""
        return len(self.cpus) * (self.gpus & free_gpus).bit_count() // (self.gpus.bit_count() or 1)


def numa_cpus(description: NodeTopology, reserved: int) -> tuple[NumaCpus, ...]:
    """The NUMA nodes by number; the first `reserved` CPUs of each are left out. () where no CPU list is known."""
    numa = numa_of(description)
    found: list[NumaCpus] = []
    for each in sorted(description.numa_nodes, key=lambda each: each.node):
        cpus = parse_cpus(each.cpus)[reserved:]
        gpus = mask_of(gpu for gpu, node in enumerate(numa) if node == each.node)
        first = tuple(accumulate(cpus, lambda mask, cpu: mask | 1 << cpu, initial=0))
        found.append(NumaCpus(each.node, each.socket, cpus, mask_of(cpus), gpus, first))
    return tuple(found) if any(each.cpus for each in description.numa_nodes) else ()


def beside(nodes: tuple[NumaCpus, ...], free: int, count: int, gpus: int, strict: bool, others: int) -> int | Shortage:
    """Return `count` of the free CPUs (a mask) for these GPUs, or the shortage.

    CPUs come from the GPUs' NUMA nodes first, from each in proportion to its GPUs, limited by its CPUs. Missing CPUs come
    from the other free CPUs of these nodes. Unless `strict`, those still missing come from their sockets, then from nodes
    whose GPUs left to `others` need CPUs least.
    """
    near = [node for node in nodes if node.gpus & gpus]
    if len(near) == 1 and (near[0].mask & free).bit_count() >= count:  # by far most often
        return _take(near[0], free, count)
    taken = 0
    for node, share in zip(near, _apportion(count, [(node.gpus & gpus).bit_count() for node in near]), strict=True):
        taken |= _take(node, free, share)
    if taken.bit_count() == count:
        return taken
    far = [] if strict else [node for node in nodes if not node.gpus & gpus]
    if _free([*near, *far], free) < count:
        return _short("numa_cpus" if strict else "cpus", [*near, *far], free, count)
    sockets = {node.socket for node in near if node.socket >= 0}
    far.sort(key=lambda node: (node.socket not in sockets, *_need(node, free, others)))
    return _fill(taken, [*near, *far], free, count)


def apart(nodes: tuple[NumaCpus, ...], free: int, count: int, free_gpus: int, strict: bool) -> int | Shortage:
    """`count` of the free CPUs (a mask) for work without GPUs; all on one NUMA node when `strict`.

    From one node that has so many beyond the share of its free GPUs: the one with the fewest of these, then the one that
    has least to spare. Where there is none, from what all can spare, then from the shares; from where GPUs need CPUs
    least first.
    """
    nodes = tuple(sorted(nodes, key=lambda node: _need(node, free, free_gpus)))
    enough = [node for node in nodes if _spare(node, free, free_gpus) >= count]
    if enough:
        best = min(enough, key=lambda node: ((node.gpus & free_gpus).bit_count(), _spare(node, free, free_gpus)))
        return _take(best, free, count)
    if strict:
        whole = [node for node in nodes if (node.mask & free).bit_count() >= count]
        return _take(whole[0], free, count) if whole else _short("numa_cpus", _fullest(nodes, free), free, count)
    if _free(nodes, free) < count:
        return _short("cpus", nodes, free, count)
    taken = 0
    for node in nodes:
        taken |= _take(node, free, min(count - taken.bit_count(), max(0, _spare(node, free, free_gpus))))
    return _fill(taken, nodes, free, count)


def _need(node: NumaCpus, free: int, free_gpus: int) -> tuple[int, int, int]:
    """Return the sort key for the need of the node's free GPUs for its CPUs, least first."""
    return ((node.gpus & free_gpus).bit_count(), -_spare(node, free, free_gpus), node.node)


def _spare(node: NumaCpus, free: int, free_gpus: int) -> int:
    return (node.mask & free).bit_count() - node.share(free_gpus)


def _free(nodes: tuple[NumaCpus, ...] | list[NumaCpus], free: int) -> int:
    return sum((node.mask & free).bit_count() for node in nodes)


def _fullest(nodes: tuple[NumaCpus, ...], free: int) -> list[NumaCpus]:
    return sorted(nodes, key=lambda node: (-(node.mask & free).bit_count(), node.node))[:1]


def _short(what: str, nodes: tuple[NumaCpus, ...] | list[NumaCpus], free: int, count: int) -> Shortage:
    return Shortage(what, _free(nodes, free), count, min(count, sum(len(node.cpus) for node in nodes)))


def _take(node: NumaCpus, free: int, count: int) -> int:
    """The first so many free CPUs of the node, or all that it has."""
    if count <= 0:
        return 0
    free &= node.mask
    if free.bit_count() <= count:
        return free
    return free & node.first[bisect_left(node.first, count, key=lambda first: (first & free).bit_count())]


def _fill(taken: int, nodes: tuple[NumaCpus, ...] | list[NumaCpus], free: int, count: int) -> int:
    """Take what is short, node by node."""
    for node in nodes:
        taken |= _take(node, free & ~taken, count - taken.bit_count())
    return taken


def _apportion(count: int, weights: list[int]) -> list[int]:
    """Divide `count` in proportion to `weights`; the remainder goes to the largest remainders, then to the first."""
    total = sum(weights) or 1
    shares = [count * weight // total for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda at: -(count * weights[at] % total))
    for at in by_rest[: count - sum(shares)]:
        shares[at] += 1
    return shares


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
