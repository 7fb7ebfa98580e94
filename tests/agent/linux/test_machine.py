"""The machine's topology as the agent reads it, from trees that look like /sys."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.linux.machine import PciPlace, address_of, bounded, describe, level_between, place_of, verbs
from fairlead_placer.topology.gpu_topology import checked
from fairlead_schemas.wire.resources import PCIE_LEVELS, UNKNOWN_TOPOLOGY, NodeTopology, NumaNode, PcieLevel
from tests.agent.linux.sysfs_tree import Tree, two_sockets

ALL = range(16)


def test_a_machine_is_described(tmp_path: Path) -> None:
    """NUMA nodes with their sockets and threads side by side, GPUs on them, NICs in people's order, levels by path."""
    tree, gpus = two_sockets(tmp_path)
    found = describe(tree.root, ALL, gpus)
    assert found == NodeTopology(
        numa=(0, 0, 1, 1),
        pcie=(
            ("X", "PXB", "SYS", "SYS"),
            ("PXB", "X", "SYS", "SYS"),
            ("SYS", "SYS", "X", "PHB"),
            ("SYS", "SYS", "PHB", "X"),
        ),
        numa_nodes=(
            NumaNode(node=0, cpus="0,8,1,9,2,10,3,11", socket=0),
            NumaNode(node=1, cpus="4,12,5,13,6,14,7,15", socket=1),
        ),
        nics=("mlx5_0", "mlx5_2", "mlx5_10"),
        nic_levels=(("PIX", "PHB", "SYS"), ("PXB", "PHB", "SYS"), ("SYS", "SYS", "NODE"), ("SYS", "SYS", "NODE")),
    )
    assert checked(found) is found


def test_the_drivers_links_count(tmp_path: Path) -> None:
    """Paths fill only its gaps."""
    tree, gpus = two_sockets(tmp_path)
    found = describe(tree.root, ALL, gpus[:2], nvlinks=((0, 4), (4, 0)), pcie=(("X", "NODE"), ("NODE", "X")))
    assert (found.nvlinks, found.pcie) == (((0, 4), (4, 0)), (("X", "NODE"), ("NODE", "X")))
    assert describe(tree.root, ALL, gpus[:2], pcie=(("X", ""), ("", "X"))).pcie == (("X", "PXB"), ("PXB", "X"))


def test_only_allowed_cpus_are_reported(tmp_path: Path) -> None:
    """A node whose CPUs all belong to others exists, but nothing can be pinned to it."""
    tree, _ = two_sockets(tmp_path)
    assert describe(tree.root, {1, 2, 9, 11}).numa_nodes == (
        NumaNode(node=0, cpus="1,9,2,11", socket=0),
        NumaNode(node=1, cpus="", socket=1),
    )


def test_nodes_with_memory_alone_are_left_out(tmp_path: Path) -> None:
    """As the memory of GPUs is shown on some machines; and cores with one thread are listed shortly."""
    tree = Tree(tmp_path).numa(0, "0-3").cores(0, "0", "1", "2", "3").numa(1, "")
    assert describe(tree.root, ALL).numa_nodes == (NumaNode(node=0, cpus="0-3", socket=0),)


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    """Devices that are on no node are on that one."""
    tree = Tree(tmp_path).online("0-1").cores(0, "0", "1")
    gpus = [tree.device(f"pci000{bridge}:00/000{bridge}:00:00.0", -1) for bridge in (1, 2)]
    found = describe(tree.root, ALL, gpus)
    assert (found.numa, found.pcie) == ((0, 0), (("X", "NODE"), ("NODE", "X")))


def test_unreadable_facts_are_unknown(tmp_path: Path) -> None:
    """No /sys, a GPU that the kernel does not show, invalid files: the rest is reported, and valid."""
    assert describe(tmp_path, ALL) is UNKNOWN_TOPOLOGY
    tree, gpus = two_sockets(tmp_path)
    (tmp_path / "devices/system/cpu/cpu0/topology/thread_siblings_list").write_bytes(b"\xff")
    (tmp_path / "devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node").write_text("")
    found = describe(tree.root, ALL, [gpus[0], "0000:99:00.0", gpus[2]])
    assert found.numa == (0, -1, -1)
    assert found.pcie == ()
    assert found.nic_levels == (("PIX", "PHB", "SYS"), ("", "", ""), ("", "", ""))
    assert found.numa_nodes[0].cpus == "0-1,9,2,10,3,11,8"
    assert checked(found) is found


def test_virtual_functions_and_soft_devices_are_no_nics(tmp_path: Path) -> None:
    """A card counts once."""
    tree, gpus = two_sockets(tmp_path)
    tree.device("pci0000:00/0000:00:02.0/0000:08:00.1", 0, nic="mlx5_3", virtual=True)
    tree.soft_nic("rxe0")
    assert describe(tree.root, ALL, gpus).nics == ("mlx5_0", "mlx5_2", "mlx5_10")


def test_a_topology_that_is_too_large_is_not_reported(tmp_path: Path) -> None:
    """The node joins without it rather than not at all."""
    assert bounded(NodeTopology(numa=(0,) * 65)) is UNKNOWN_TOPOLOGY
    assert bounded(NodeTopology()) is UNKNOWN_TOPOLOGY
    board: tuple[PcieLevel, ...] = ("SAME_BOARD",)
    cards = tuple(f"{number:063}" for number in range(128))
    assert (
        bounded(NodeTopology(numa=(0,) * 32, pcie=(board * 32,) * 32, nics=cards, nic_levels=(board * 128,) * 32))
        is UNKNOWN_TOPOLOGY
    )


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [("00000000:0C:00.0", "0000:0c:00.0"), ("0000:3B:00.0", "0000:3b:00.0"), ("00010001:00:00.0", "10001:00:00.0")],
)
def test_bus_ids_are_written_in_two_ways(bus_id: str, address: str) -> None:
    """NVML's domain has eight digits, the kernel's four, or more where it needs them."""
    assert address_of(bus_id) == address


def test_a_tree_behind_a_bridge_is_a_tree_of_its_own(tmp_path: Path) -> None:
    """VMD and Hyper-V hide host bridges below others."""
    tree = Tree(tmp_path)
    tree.device("LNXSYSTM:00/VMBUS:01/47505500/pci0001:00/0001:00:00.0", 1)
    assert place_of(tmp_path / "bus/pci/devices/0001:00:00.0") == PciPlace("pci0001:00", ("0001:00:00.0",), 1)
    assert place_of(tmp_path / "bus/pci/devices/0002:00:00.0") is None


PLACES = st.builds(
    lambda bridge, path, numa: PciPlace(bridge, tuple(path), numa),
    st.sampled_from(["pci0000:00", "pci0000:80"]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    st.integers(-1, 1),
)


@given(PLACES, PLACES)
def test_levels_are_symmetric(one: PciPlace, other: PciPlace) -> None:
    """In either order of the query."""
    assert level_between(one, other) == level_between(other, one)
    assert level_between(one, other) in PCIE_LEVELS


def test_nics_are_used_by_files_that_the_kernel_numbers(tmp_path: Path) -> None:
    """Not by those of the same number; the file for connections is everyone's. Without any, none."""
    tree = Tree(tmp_path)
    assert verbs(tmp_path) == {}
    tree.device("pci0000:00/0000:00:01.0/0000:01:00.0", 0, nic="mlx5_3")
    tree.device("pci0000:00/0000:00:02.0/0000:02:00.0", 0, nic="mlx5_0")
    assert verbs(tmp_path) == {
        "mlx5_3": ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"),
        "mlx5_0": ("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"),
    }
