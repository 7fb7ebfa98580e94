"""What an agent says of its node's inside: links, NUMA nodes, CPUs, NICs. Plain data; `checked` says if it makes sense.

GPUs stand in the order of the node's inventory, in every list here.
"""

from typing import Literal, get_args

import msgspec

from fairlead_placer.topology.cpulists import parse_cpus

#: What lies between two devices on PCIe, nearest first, in nvidia-smi's words: one board, one bridge (PIX), several
#: bridges (PXB), the host bridge (PHB), several of one NUMA node (NODE), across NUMA nodes (SYS). "X" is the device
#: itself; "" is not known.
Level = Literal["SAME_BOARD", "PIX", "PXB", "PHB", "NODE", "SYS", "X", ""]
LEVELS: tuple[str, ...] = get_args(Level)

#: A node has no more of each: an agent that says otherwise is not believed.
GPUS_MAX = 32
NICS_MAX = 128
NUMA_NODES_MAX = 64
NVLINKS_MAX = 64


class TopologyError(ValueError):
    """A description that makes no sense; the message names the field, what was expected and what was found."""


class NumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One NUMA node, with or without GPUs."""

    node: int
    #: As Linux writes it, "0-19,40-59"; "" is not known. CPUs are given in this order: who knows which threads share
    #: a core lists them side by side ("0,40,1,41,…"), so that two jobs share no core.
    cpus: str = ""
    socket: int = -1  # -1: not known; the node is then taken for a socket of its own


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The inside of a node. Hashable: equal nodes have equal descriptions."""

    #: NUMA node of each GPU, -1 where it is not known. As long as the node has GPUs.
    numa: tuple[int, ...] = ()
    #: [gpu][gpu]: NVLinks between the two, 0 on the diagonal. (): there are none.
    nvlinks: tuple[tuple[int, ...], ...] = ()
    #: [gpu][gpu]: PCIe level. (): not known.
    pcie: tuple[tuple[Level, ...], ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    nics: tuple[str, ...] = ()
    #: [gpu][nic]: PCIe level. (): not known.
    nic_levels: tuple[tuple[Level, ...], ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.numa)


def checked(description: Description) -> Description:
    """The same description. Raises TopologyError when it makes no sense."""
    gpus = description.gpus
    _at_most("numa", gpus, GPUS_MAX)
    _at_most("nics", len(description.nics), NICS_MAX)
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
    unknown = sorted({level for row in rows for level in row} - set(LEVELS))
    if unknown:
        raise TopologyError(f'{field}: expected one of {", ".join(LEVELS[:-2])}, X or "", found "{unknown[0]}"')


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
