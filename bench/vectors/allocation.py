"""Published examples of choosing GPUs inside a node: the shape of their tables, and the answers of our code.

A table function raises ValueError when a case makes no sense. Other keys of a case are ignored.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from bench.vectors.fairshare import Case, named
from bench.vectors.gpu_policies import best_effort, simple
from fairlead_placer.topology.device_selection import NodeDevicesTable
from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import mask_of, members_of
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX, NodeTopology, NumaNode, PcieLevel

NODES = Path(__file__).parents[2] / "tests" / "data" / "topology" / "node_topologies.json"

type Gpu = Annotated[int, msgspec.Meta(ge=0, lt=TOPOLOGY_GPUS_MAX)]
#: "fairlead" is our own choice, the others are other people's.
type Policy = Literal["best-effort", "simple", "fairlead"]


class Node(msgspec.Struct, frozen=True):
    """A kind of node, as tests/data/topology/node_topologies.json has it."""

    gpus: int
    nvlink_count: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...]
    pcie_level_vector: tuple[tuple[PcieLevel, ...], ...] = ()
    pcie_level_matrix: tuple[tuple[PcieLevel, ...], ...] = ()
    #: CPU list of each GPU's NUMA node.
    cpu_affinity: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    gpu_nic_level: tuple[tuple[PcieLevel, ...], ...] = ()


class _Nodes(msgspec.Struct, frozen=True):
    nodes: dict[str, Node]


class PolicyCase(msgspec.Struct, frozen=True):
    node: str
    policy: Policy
    name: str
    available: list[Gpu]
    size: int
    expect: list[int]
    required: list[Gpu] = []


class Step(msgspec.Struct, frozen=True):
    size: int
    expect: list[int]


class SequenceCase(msgspec.Struct, frozen=True):
    node: str
    policy: Policy
    steps: list[Step]
    name: str = ""


@cache
def descriptions(path: Path = NODES) -> Mapping[str, NodeTopology]:
    """{kind of node: its description}. Raises OSError and ValueError."""
    nodes = msgspec.json.decode(path.read_bytes(), type=_Nodes).nodes
    return {name: description_of(node) for name, node in nodes.items()}


def description_of(node: Node) -> NodeTopology:
    """The node as an agent would describe it, where that is known."""
    cpus = dict(zip(node.numa, node.cpu_affinity or ("",) * node.gpus, strict=True))
    return NodeTopology(
        numa=node.numa,
        nvlinks=node.nvlink_count,
        pcie=node.pcie_level_vector or node.pcie_level_matrix,
        numa_nodes=tuple(NumaNode(node=number, cpus=cpus[number]) for number in sorted(cpus)),
        nics=node.nics,
        nic_levels=node.gpu_nic_level,
    )


def allocate(node: str, policy: Policy, available: int, required: int, size: int) -> int | None:
    """The GPUs (a mask) that the policy chooses, None where it refuses. Raises ValueError for what is not there."""
    if node not in descriptions():
        raise ValueError(f'no kind of node is called "{node}"')
    inside = NodeDevicesTable().of(descriptions()[node])
    beyond = (available | required) & ~inside.all_gpus
    if beyond:
        raise ValueError(f"{node} has no GPU {members_of(beyond)[0]}")
    match policy:
        case "simple":
            return simple(available, required, size)
        case "best-effort":
            return best_effort(inside.choices.shape, available, required, size)
        case "fairlead":
            if required:
                raise ValueError('"fairlead" knows no required GPUs')
            found = inside.choices.choose(available, size)
            return None if isinstance(found, Shortage) else found


def policy_cases(cases: list[PolicyCase]) -> Iterator[Case]:
    """The GPUs chosen out of some."""
    for case in cases:
        with named(case.name):
            found = allocate(case.node, case.policy, mask_of(case.available), mask_of(case.required), case.size)
        yield Case(case.name, sorted(case.expect), list(members_of(found or 0)))


def sequences(cases: list[SequenceCase]) -> Iterator[Case]:
    """The GPUs chosen one after the other on a node that nothing is given back to."""
    for case in cases:
        name = case.name or f"{case.node} {case.policy} {'+'.join(str(step.size) for step in case.steps)}"
        got: list[list[int]] = []
        with named(name):
            free = mask_of(range(descriptions()[case.node].gpus)) if case.node in descriptions() else 0
            for step in case.steps:
                found = allocate(case.node, case.policy, free, 0, step.size) or 0
                free &= ~found
                got.append(list(members_of(found)))
        yield Case(name, [sorted(step.expect) for step in case.steps], got)
