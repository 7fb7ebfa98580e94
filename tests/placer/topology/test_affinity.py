"""CPUs near the GPUs, or where free GPUs need them least; never the system's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.topology.affinity import NumaCpus, apart, beside, numa_cpus
from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import mask_of, members_of
from fairlead_schemas.units.hardware import format_cpus, parse_cpus
from fairlead_schemas.wire.resources import NodeTopology, NumaNode
from tests.placer.topology.nodes import any_description

#: Two sockets of eight CPUs and four GPUs each.
TWO = numa_cpus(
    NodeTopology(
        numa=(0, 0, 0, 0, 1, 1, 1, 1), numa_nodes=(NumaNode(node=0, cpus="0-7"), NumaNode(node=1, cpus="8-15"))
    ),
    0,
)
ALL = 0xFFFF


def cpus(found: int | Shortage) -> str | Shortage:
    """As Linux writes them."""
    return found if isinstance(found, Shortage) else format_cpus(members_of(found))


def test_the_first_cpus_of_each_numa_node_are_the_systems() -> None:
    """Two of each: of a DGX H100's 56 cores of a socket, with a thread each beyond."""
    low, high = numa_cpus(descriptions()["dgx-h100"], 2)
    assert format_cpus(low.cpus) == "2-55,112-167"
    assert format_cpus(high.cpus) == "58-111,168-223"
    assert (low.gpus, high.gpus) == (0x0F, 0xF0)
    assert all(not node.cpus for node in numa_cpus(descriptions()["dgx-h100"], 1000))


def test_without_a_cpu_list_nothing_is_pinned() -> None:
    """Nothing is pinned."""
    assert numa_cpus(descriptions()["rtx8000x4"], 1) == ()
    assert numa_cpus(NodeTopology(numa=(0,)), 0) == ()


def test_cpus_are_given_in_the_order_of_the_list() -> None:
    """An agent that knows which threads share a core lists them side by side."""
    (only,) = numa_cpus(NodeTopology(numa=(0,), numa_nodes=(NumaNode(node=0, cpus="0,4,1,5,2,6,3,7"),)), 2)
    assert only.cpus == (1, 5, 2, 6, 3, 7)
    assert cpus(beside((only,), 0xFF, 2, 1, True, 0)) == "1,5"
    assert cpus(beside((only,), 0xFF & ~(1 << 5), 3, 1, True, 0)) == "1-2,6"


@pytest.mark.parametrize(
    ("gpus", "count", "free", "expect"),
    [
        (0b0000_0001, 4, ALL, "0-3"),
        (0b0001_0000, 4, ALL, "8-11"),
        (0b0001_0001, 4, ALL, "0-1,8-9"),
        (0b0001_0111, 8, ALL, "0-5,8-9"),
        (0b0001_0001, 5, ALL, "0-2,8-9"),
        # One of the two nodes is short: the other gives more.
        (0b0001_0001, 6, 0xFF01, "0,8-12"),
        # Both are needed, whole; and where one is too small the rest comes from afar.
        (0b0000_0001, 12, ALL, "0-11"),
        (0b0000_0001, 3, 0xFF80, "7-9"),
        (0b0000_0001, 0, ALL, ""),
    ],
)
def test_cpus_are_split_by_the_gpus_of_each_numa_node(gpus: int, count: int, free: int, expect: str) -> None:
    """As long as there are CPUs."""
    assert cpus(beside(TWO, free, count, gpus, False, 0)) == expect


def test_strict_cpus_come_from_the_gpus_numa_nodes_only() -> None:
    """The shortage gives the number that is free and the number that could be."""
    assert cpus(beside(TWO, ALL, 8, 0b1, True, 0)) == "0-7"
    assert beside(TWO, ALL & ~0b11, 8, 0b1, True, 0) == Shortage("numa_cpus", 6, 8, 8)
    assert beside(TWO, ALL, 9, 0b1, True, 0) == Shortage("numa_cpus", 8, 9, 8)
    assert beside(TWO, ALL, 17, 0b1, False, 0) == Shortage("cpus", 16, 17, 16)


def test_missing_cpus_come_from_the_same_socket_then_from_the_least_needed() -> None:
    """Four NUMA nodes, two on each socket; nodes 1 and 2 have free GPUs, 3 has none."""
    nodes = numa_cpus(
        NodeTopology(
            numa=(0, 1, 2),
            numa_nodes=tuple(NumaNode(node=n, cpus=f"{4 * n}-{4 * n + 3}", socket=n // 2) for n in range(4)),
        ),
        0,
    )
    assert cpus(beside(nodes, ALL, 6, 0b001, False, 0b110)) == "0-5"
    assert cpus(beside(nodes, ALL & ~0xF0, 6, 0b001, False, 0b110)) == "0-3,12-13"


def test_without_gpus_where_free_gpus_need_cpus_least() -> None:
    """The node whose GPUs are taken; or what all can spare; at last the shares of free GPUs."""
    assert cpus(apart(TWO, ALL, 4, 0b1111_0000, False)) == "0-3"
    assert cpus(apart(TWO, ALL, 4, 0b0000_1111, False)) == "8-11"
    assert cpus(apart(TWO, ALL, 8, 0b0001_0011, False)) == "0-1,8-13"
    assert cpus(apart(TWO, ALL, 12, 0b0001_0011, False)) == "0-3,8-15"
    assert cpus(apart(TWO, ALL, 4, 0b1111_1111, False)) == "0-3"
    assert apart(TWO, ALL, 17, 0, False) == Shortage("cpus", 16, 17, 16)
    assert cpus(apart(TWO, ALL, 0, 0, False)) == ""


def test_without_gpus_the_tightest_node_that_can_spare_them() -> None:
    """So that the other can hold something larger."""
    assert cpus(apart(TWO, ALL & ~0xF00, 4, 0, False)) == "12-15"


def test_without_gpus_on_one_node() -> None:
    """Also out of the shares of free GPUs, but never from two nodes."""
    assert cpus(apart(TWO, ALL, 8, 0b0001_0011, True)) == "8-15"
    assert apart(TWO, ALL & ~0x101, 8, 0, True) == Shortage("numa_cpus", 7, 8, 8)
    assert apart(TWO, ALL, 9, 0, True) == Shortage("numa_cpus", 8, 9, 8)


def test_nodes_without_gpus_come_first() -> None:
    """A DGX A100 has NUMA nodes with no GPU near."""
    nodes = numa_cpus(
        NodeTopology(numa=(1, 1), numa_nodes=(NumaNode(node=1, cpus="0-7"), NumaNode(node=0, cpus="8-15"))),
        1,
    )
    assert [node.node for node in nodes] == [0, 1]
    assert cpus(apart(nodes, ALL, 4, 0b11, False)) == "9-12"
    assert cpus(apart(nodes, ALL, 9, 0b11, False)) == "1-2,9-15"


@given(any_description(), st.data())
def test_cpus_are_free_ones_as_many_as_asked_for_and_near(description: NodeTopology, data: st.DataObject) -> None:
    """Or there are not so many, and the shortage says how many there are."""
    reserved = data.draw(st.integers(0, 3))
    nodes = numa_cpus(description, reserved)
    system = mask_of(cpu for each in description.numa_nodes for cpu in parse_cpus(each.cpus)[:reserved])
    free, count = data.draw(st.integers(0, (1 << 24) - 1)), data.draw(st.integers(0, 24))
    gpus, strict = data.draw(st.integers(0, (1 << description.gpus) - 1)), data.draw(st.booleans())
    near = [node for node in nodes if node.gpus & gpus]

    def held(some: list[NumaCpus]) -> int:
        return sum((node.mask & free).bit_count() for node in some)

    found = beside(nodes, free, count, gpus, strict, 0)
    within = near if strict else [*nodes]
    if isinstance(found, Shortage):
        assert (found.have, found.need) == (held(within), count)
        assert held(within) < count and found.most >= found.have
    else:
        assert found & ~(free & ~system) == 0
        assert found.bit_count() == count
        assert (found & sum(node.mask for node in near)).bit_count() == min(count, held(near))

    found = apart(nodes, free, count, gpus, strict)
    if isinstance(found, Shortage):
        assert found.need == count > found.have == (max(held([node]) for node in nodes) if strict else held([*nodes]))
    else:
        assert found & ~(free & ~system) == 0
        assert found.bit_count() == count
        assert not strict or sum(found & node.mask != 0 for node in nodes) <= 1
