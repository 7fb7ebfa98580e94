"""All that choosing GPUs needs of a node: the score of each pair, and the groups that GPUs form.

Nodes that differ in CPUs or NICs only have the same shape.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_placer.topology.masks import mask_of, members_of
from fairlead_schemas.wire.resources import NodeTopology

#: Score of a pair by its PCIe level, and the extra score of each NVLink between the two. Source: best-effort
#: policy of NVIDIA/go-gpuallocator (Apache-2.0). An unknown level scores nothing.
LEVEL_SCORE = {"SAME_BOARD": 60, "PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10, "X": 0, "": 0}
NVLINK_SCORE = 100
#: Levels at which two devices reach each other without the host.
SWITCHED = ("SAME_BOARD", "PIX", "PXB")


class Shape(NamedTuple):
    """Sets are masks of GPUs. Groups of one kind have no GPU in common."""

    #: [gpu][gpu]: score of the pair, 0 on the diagonal.
    scores: tuple[tuple[int, ...], ...]
    #: [gpu]: the GPUs that it has NVLinks to.
    linked: tuple[int, ...]
    #: GPUs that reach each other without the host; every GPU is in one.
    switches: tuple[int, ...]
    #: GPUs of one NUMA node; those whose node is not known are in none.
    numa: tuple[int, ...]
    #: GPUs of one socket, likewise.
    sockets: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.scores)


def shape_of(description: NodeTopology) -> Shape:
    """The shape of a node whose description was checked."""
    gpus = range(description.gpus)
    nvlinks, pcie = description.nvlinks, description.pcie
    scores = tuple(
        tuple(
            (LEVEL_SCORE[pcie[i][j]] if pcie and i != j else 0) + (NVLINK_SCORE * nvlinks[i][j] if nvlinks else 0)
            for j in gpus
        )
        for i in gpus
    )
    linked = tuple(mask_of(j for j in gpus if nvlinks and nvlinks[i][j]) for i in gpus)
    switched = [mask_of(j for j in gpus if pcie and pcie[i][j] in SWITCHED) for i in gpus]
    numa = numa_of(description)
    socket_of = {node.node: node.socket for node in description.numa_nodes}
    # A socket that is not known: below -1, so that it meets no other.
    sockets = [node if node < 0 else _socket(node, socket_of.get(node, -1)) for node in numa]
    return Shape(scores, linked, components(switched, (1 << description.gpus) - 1), _groups(numa), _groups(sockets))


def numa_of(description: NodeTopology) -> tuple[int, ...]:
    """NUMA node of each GPU. Where there is only one, Linux says -1 for every device: then it is that one."""
    if len(description.numa_nodes) > 1 or any(node >= 0 for node in description.numa):
        return description.numa
    only = description.numa_nodes[0].node if description.numa_nodes else 0
    return (only,) * description.gpus


def _socket(node: int, socket: int) -> int:
    return socket if socket >= 0 else -2 - node


def _groups(numbers: Sequence[int]) -> tuple[int, ...]:
    """GPUs with the same number together, in the order of their lowest GPU; -1 is in none."""
    found: dict[int, int] = {}
    for gpu, number in enumerate(numbers):
        if number != -1:
            found[number] = found.get(number, 0) | 1 << gpu
    return tuple(found.values())


def components(neighbours: Sequence[int], within: int) -> tuple[int, ...]:
    """Groups of those GPUs that reach each other, over others of them or not, in the order of their lowest GPU."""
    found: list[int] = []
    left = within
    while left:
        group = reach(neighbours, left & -left, left)
        found.append(group)
        left &= ~group
    return tuple(found)


def reach(neighbours: Sequence[int], start: int, within: int) -> int:
    """The GPUs of `within` that can be reached from those of `start`, these included."""
    reached, edge = start, start
    while edge:
        found = 0
        for gpu in members_of(edge):
            found |= neighbours[gpu]
        edge = found & within & ~reached
        reached |= edge
    return reached


def link_score(shape: Shape, mask: int) -> int:
    """Sum of the scores of the set's pairs."""
    members = members_of(mask)
    return sum(shape.scores[i][j] for at, i in enumerate(members) for j in members[:at])
