"""The inside of a node in one line."""

import pytest
from msgspec.structs import replace

from fairlead_agent.devices.profiles import played_inside
from fairlead_gateway.routes.documents import node_document, topology_summary
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, MigInstance, NodeTopology, NumaNode
from tests.gateway.world import inventory


@pytest.mark.parametrize(
    ("profile", "line"),
    [
        ("dgx-a100", "12 NVLinks between all 8 GPUs, on 4 of 8 NUMA nodes, 12 NICs"),
        ("dgx-h100", "18 NVLinks between all 8 GPUs, 2 NUMA nodes, 12 NICs"),
        ("dgx-1", "1 to 2 NVLinks between 16 of 28 pairs of GPUs, 2 NUMA nodes"),
        ("rtx8000x4", "2 NVLinks between 2 of 6 pairs of GPUs, 2 NUMA nodes"),
        ("rtx4090x8", "no NVLinks, 2 NUMA nodes, 2 NICs"),
    ],
)
def test_machines_are_described_by_their_differences(profile: str, line: str) -> None:
    """One line for each kind of machine."""
    assert topology_summary(played_inside(profile)) == line


def test_unknown_facts_are_left_out() -> None:
    """No topology at all; a node without GPUs; one GPU on the only NUMA node known."""
    assert topology_summary(UNKNOWN_TOPOLOGY) == ""
    assert topology_summary(NodeTopology(numa_nodes=(NumaNode(node=0, cpus="0-3"),))) == "1 NUMA node"
    assert topology_summary(NodeTopology(numa=(0,), nics=("mlx5_0",))) == "on 1 NUMA node, 1 NIC"
    assert topology_summary(NodeTopology(numa=(-1, -1), nvlinks=((0, 1), (1, 0)))) == "1 NVLink between all 2 GPUs"


def test_mig_instances_are_listed_by_gpu() -> None:
    """Equal ones are counted; a GPU in MIG mode is not free, partitioned or not."""
    halves = tuple(MigInstance(uuid=f"MIG-{at}", profile="3g.20gb", start=at) for at in (0, 4))
    small = MigInstance(uuid="MIG-9", profile="1g.5gb", start=0)
    gpus = [
        replace(gpu, mig=gpu.index != 1, instances={0: halves, 2: (small,)}.get(gpu.index, ()))
        for gpu in inventory("n1").gpus[:4]
    ]
    told = replace(inventory("n1"), gpus=tuple(gpus))
    found = node_document(Views(), NodeRow("n1", told, "boot", "i1"))
    assert found.mig == "0: 2x 3g.20gb; 2: 1g.5gb; 3: nothing"
    assert (found.gpus, found.gpus_free) == (4, 1)


def test_a_nodes_document_has_the_line_and_the_taints() -> None:
    """As the agent reported them; nothing of an agent that did not."""
    told = replace(inventory("n1"), inside=played_inside("dgx-h100"), taints=("team=vision:NoSchedule",))
    rows = [NodeRow("n1", found, "boot", "i1") for found in (told, inventory("n1"))]
    first, second = (node_document(Views(), row) for row in rows)
    assert first.inside == "18 NVLinks between all 8 GPUs, 2 NUMA nodes, 12 NICs"
    assert (first.taints, second.inside, second.taints) == (["team=vision:NoSchedule"], "", [])
