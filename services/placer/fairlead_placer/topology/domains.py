"""What a set of GPUs may be required to lie in. Kinds add up: `NVLINK | NUMA` asks for both."""

from collections.abc import Iterator
from itertools import combinations

from fairlead_placer.topology.shapes import Shape, reach

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


def areas(shape: Shape, require: int) -> tuple[int, ...]:
    """The masks of GPUs of which one must hold the whole set; they have no GPU in common. NVLINK says nothing here."""
    found = [(1 << shape.gpus) - 1]
    for kind, groups in ((SWITCH, shape.switches), (NUMA, shape.numa), (SOCKET, shape.sockets)):
        if require & kind:
            found = [area & group for area in found for group in groups if area & group]
    return tuple(found)


def connected(shape: Shape, mask: int) -> bool:
    """True when the set holds together by its own NVLinks; so does a single GPU."""
    return mask == 0 or reach(shape.linked, mask & -mask, mask) == mask


def relaxed(require: int, prefer: int) -> Iterator[int]:
    """What to try one after the other: all that is preferred, then ever less of it (of equally much: what comes first
    in `KINDS`), at last what is required alone."""
    wanted = [kind for kind in KINDS if prefer & kind & ~require]
    for count in range(len(wanted), -1, -1):
        for kept in combinations(wanted, count):
            yield require | sum(kept)
