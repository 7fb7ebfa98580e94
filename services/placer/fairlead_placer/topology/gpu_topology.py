"""All that choosing GPUs needs of a node: the score of each pair, and the groups that GPUs form.

Further parts:
- sets of GPUs or CPUs as one int: bit i represents member i;
- domains that a set of GPUs can be required to fit in;
- validation of the node description that an agent reports.

Nodes that differ in CPUs or NICs only have the same shape.

Sets of equal size have an order, "earlier": by their members in rising order, so {0, 3} comes before {1, 2}.

Kinds add up: `NVLINK | NUMA` asks for both.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.wire.resources import (
    NIC_CHARS_MAX,
    NUMA_NODES_MAX,
    NVLINKS_MAX,
    PCIE_LEVELS,
    TOPOLOGY_GPUS_MAX,
    TOPOLOGY_NICS_MAX,
    NodeTopology,
    NumaNode,
)

#: Sets whose members are remembered: nodes of a kind have the same few again and again.
MASKS_MAX = 1 << 12


def mask_of(members: Iterable[int]) -> int:
    """The set of these members; saying one twice changes nothing."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


@lru_cache(MASKS_MAX)
def members_of(mask: int) -> tuple[int, ...]:
    """The members in rising order."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)


def subsets(mask: int, size: int) -> Iterator[int]:
    """Every subset of that size, earlier ones first."""
    return map(sum, combinations([1 << member for member in members_of(mask)], size))


#: Score of a pair by its PCIe level, and the extra score of each NVLink between the two. Source: best-effort
#: policy of NVIDIA/go-gpuallocator (Apache-2.0). An unknown level scores nothing.
LEVEL_SCORE = {"SAME_BOARD": 60, "PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10, "X": 0, "": 0}
NVLINK_SCORE = 100
#: Levels at which two devices reach each other without the host.
SWITCHED = ("SAME_BOARD", "PIX", "PXB")


class GpuTopology(NamedTuple):
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


def shape_of(description: NodeTopology) -> GpuTopology:
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
    return GpuTopology(
        scores, linked, components(switched, (1 << description.gpus) - 1), _groups(numa), _groups(sockets)
    )


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


def link_score(shape: GpuTopology, mask: int) -> int:
    """Sum of the scores of the set's pairs."""
    members = members_of(mask)
    return sum(shape.scores[i][j] for at, i in enumerate(members) for j in members[:at])


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


def areas(shape: GpuTopology, free: int, require: int) -> tuple[int, ...]:
    """The masks of free GPUs of which one must hold the whole set; they have no GPU in common. Of each, there are sets
    of every size up to its own."""
    found = [free]
    for kind, groups in ((SWITCH, shape.switches), (NUMA, shape.numa), (SOCKET, shape.sockets)):
        if require & kind:
            found = [area & group for area in found for group in groups if area & group]
    if require & NVLINK:
        found = [group for area in found for group in components(shape.linked, area)]
    return tuple(found)


def largest(shape: GpuTopology, free: int, require: int) -> int:
    """Return the largest number of free GPUs available within the requirement."""
    return max((area.bit_count() for area in areas(shape, free, require)), default=0)


def connected(shape: GpuTopology, mask: int) -> bool:
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


class TopologyError(ValueError):
    """A description that makes no sense; the message names the field, what was expected and what was found."""


def checked(description: NodeTopology) -> NodeTopology:
    """The same description. Raises TopologyError when it makes no sense."""
    gpus = description.gpus
    _at_most("numa", gpus, TOPOLOGY_GPUS_MAX)
    _at_most("nics", len(description.nics), TOPOLOGY_NICS_MAX)
    _at_most("numa_nodes", len(description.numa_nodes), NUMA_NODES_MAX)
    if any(node < -1 for node in description.numa):
        raise TopologyError(f"numa: expected NUMA nodes, or -1 where not known, found {min(description.numa)}")
    _square("nvlinks", description.nvlinks, gpus)
    for i, row in enumerate(description.nvlinks):
        if row[i] != 0 or not all(0 <= count <= NVLINKS_MAX for count in row):
            raise TopologyError(
                f"nvlinks: expected 0 to {NVLINKS_MAX} links and none to itself, found {row} in row {i}"
            )
    _square("pcie", description.pcie, gpus)
    _levels("pcie", description.pcie)
    _rows("nic_levels", description.nic_levels, gpus, len(description.nics))
    _levels("nic_levels", description.nic_levels)
    if not all(0 < len(nic) <= NIC_CHARS_MAX for nic in description.nics):
        raise TopologyError(f"nics: expected names of 1 to {NIC_CHARS_MAX} characters")
    if len(set(description.nics)) != len(description.nics):
        raise TopologyError(f"nics: expected a name for each, found {description.nics}")
    _check_cpus(description.numa_nodes)
    return description


def _at_most(field: str, found: int, most: int) -> None:
    if found > most:
        raise TopologyError(f"{field}: expected at most {most}, found {found}")


def _rows(field: str, rows: tuple[tuple[object, ...], ...], height: int, width: int) -> None:
    if rows and (len(rows) != height or any(len(row) != width for row in rows)):
        raise TopologyError(f"{field}: expected {height} rows of {width}, found rows of {[len(row) for row in rows]}")


def _square(field: str, rows: tuple[tuple[object, ...], ...], gpus: int) -> None:
    _rows(field, rows, gpus, gpus)
    for i, row in enumerate(rows):
        for j in range(i):
            if row[j] != rows[j][i]:
                raise TopologyError(
                    f"{field}: expected the same both ways, found {row[j]!r} from {i} to {j} and {rows[j][i]!r} back"
                )


def _levels(field: str, rows: tuple[tuple[str, ...], ...]) -> None:
    unknown = sorted({level for row in rows for level in row} - set(PCIE_LEVELS))
    if unknown:
        raise TopologyError(f'{field}: expected one of {", ".join(PCIE_LEVELS[:-2])}, X or "", found "{unknown[0]}"')


def _check_cpus(numa_nodes: tuple[NumaNode, ...]) -> None:
    holder: dict[int, int] = {}
    seen: set[int] = set()
    for numa in numa_nodes:
        if numa.node < 0 or numa.node in seen:
            raise TopologyError(f"numa_nodes: expected each node once, numbered from 0, found {numa.node}")
        seen.add(numa.node)
        try:
            cpus = parse_cpus(numa.cpus)
        except ValueError as error:
            raise TopologyError(f"numa_nodes: node {numa.node}: {error}") from error
        for cpu in cpus:
            if holder.setdefault(cpu, numa.node) != numa.node:
                raise TopologyError(f"numa_nodes: CPU {cpu} is of node {holder[cpu]} and of node {numa.node}")
