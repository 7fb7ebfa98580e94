"""Domains that a set of GPUs can be required to fit in. Kinds add up: `NVLINK | NUMA` asks for both."""

from collections.abc import Iterator
from itertools import combinations

from fairlead_placer.topology.shapes import Shape, components, reach

#: Every GPU of the set reaches every other over NVLinks between GPUs of the set.
NVLINK = 1
#: All under one PCIe switch, or a tree of them: they reach each other without the host.
SWITCH = 2
#: All on one NUMA node; GPUs whose node is not known are on none.
NUMA = 4
#: All on one socket, likewise.
SOCKET = 8

KINDS = (NVLINK, SWITCH, NUMA, SOCKET)
WORDS = {"nvlink": NVLINK, "switch": SWITCH, "numa": NUMA, "socket": SOCKET}


def areas(shape: Shape, free: int, require: int) -> tuple[int, ...]:
    """The masks of free GPUs of which one must hold the whole set; they have no GPU in common. Of each, there are sets
    of every size up to its own."""
    found = [free]
    for kind, groups in ((SWITCH, shape.switches), (NUMA, shape.numa), (SOCKET, shape.sockets)):
        if require & kind:
            found = [area & group for area in found for group in groups if area & group]
    if require & NVLINK:
        found = [group for area in found for group in components(shape.linked, area)]
    return tuple(found)


def largest(shape: Shape, free: int, require: int) -> int:
    """Return the largest number of free GPUs available within the requirement."""
    return max((area.bit_count() for area in areas(shape, free, require)), default=0)


def connected(shape: Shape, mask: int) -> bool:
    """True when the set holds together by its own NVLinks; so does a single GPU."""
    return mask == 0 or reach(shape.linked, mask & -mask, mask) == mask


def relaxed(require: int, prefer: int) -> Iterator[int]:
    """Yield the requirements to try in order: all preferences, then ever fewer of them (of equally many: the first in
    `KINDS`), at last the requirement alone.
    """
    wanted = [kind for kind in KINDS if prefer & kind & ~require]
    for count in range(len(wanted), -1, -1):
        for kept in combinations(wanted, count):
            yield require | sum(kept)
