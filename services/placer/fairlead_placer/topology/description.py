"""Validation of the node description that an agent reports."""

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
