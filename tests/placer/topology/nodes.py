"""Insides to try: the published kinds of node, and ones that hypothesis makes up."""

from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.topology.device_selection import NodeDevices, NodeDevicesTable
from fairlead_placer.topology.gpu_topology import GpuTopology, shape_of
from fairlead_schemas.wire.resources import NodeTopology, NumaNode, PcieLevel

NAMES = tuple(descriptions())
EIGHT = tuple(name for name in NAMES if descriptions()[name].gpus <= 8)


def inside(name: str, reserved: int = 0) -> NodeDevices:
    """A published kind of node."""
    return NodeDevicesTable(reserved).of(descriptions()[name])


def shape(name: str) -> GpuTopology:
    """Its shape."""
    return shape_of(descriptions()[name])


LINKS: tuple[PcieLevel, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS", "")


@st.composite
def any_description(draw: st.DrawFn, least: int = 1, most: int = 8) -> NodeTopology:
    """Links without any order, and up to three NUMA nodes on up to two sockets."""
    gpus = draw(st.integers(least, most))
    pairs = [(i, j) for i in range(gpus) for j in range(i)]
    nvlinks = [[0] * gpus for _ in range(gpus)]
    pcie: list[list[PcieLevel]] = [["X"] * gpus for _ in range(gpus)]
    for i, j in pairs:
        nvlinks[i][j] = nvlinks[j][i] = draw(st.sampled_from([0, 0, 0, 1, 2]))
        pcie[i][j] = pcie[j][i] = draw(st.sampled_from(LINKS))
    numa = draw(st.lists(st.integers(-1, 2), min_size=gpus, max_size=gpus))
    sockets = draw(st.lists(st.integers(-1, 1), min_size=3, max_size=3))
    return NodeTopology(
        numa=tuple(numa),
        nvlinks=tuple(map(tuple, nvlinks)),
        pcie=tuple(map(tuple, pcie)),
        numa_nodes=tuple(
            NumaNode(node=node, socket=socket, cpus=f"{node * 8}-{node * 8 + 7}") for node, socket in enumerate(sockets)
        ),
    )


def switched_sixteen() -> NodeTopology:
    """All NVLinks equal, as on a DGX-2, with its PCIe tree: pairs under a bridge, fours under a switch."""
    gpus = range(16)

    def level(i: int, j: int) -> PcieLevel:
        if i == j:
            return "X"
        return "PIX" if i // 2 == j // 2 else "PXB" if i // 4 == j // 4 else "NODE" if i // 8 == j // 8 else "SYS"

    return NodeTopology(
        numa=tuple(i // 8 for i in gpus),
        nvlinks=tuple(tuple(0 if i == j else 6 for j in gpus) for i in gpus),
        pcie=tuple(tuple(level(i, j) for j in gpus) for i in gpus),
    )
