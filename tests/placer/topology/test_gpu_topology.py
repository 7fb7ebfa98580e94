"""Descriptions from agents: read, checked, and shared if equal."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.topology.device_selection import NodeDevicesTable
from fairlead_placer.topology.gpu_topology import TopologyError, checked, mask_of, members_of, subsets
from fairlead_schemas.units.hardware import format_cpus, list_cpus, parse_cpus
from fairlead_schemas.wire.resources import NodeTopology, NumaNode
from tests.placer.topology.nodes import NAMES, any_description


def test_cpu_lists() -> None:
    """In the order of the list, and back in the shortest form."""
    assert parse_cpus("0-3,8") == (0, 1, 2, 3, 8)
    assert parse_cpus("0,40, 1,41") == (0, 40, 1, 41)
    assert parse_cpus("") == ()
    assert format_cpus((41, 40, 1, 0, 2, 9)) == "0-2,9,40-41"
    assert format_cpus(()) == ""
    assert list_cpus((0, 40, 1, 41, 42)) == "0,40,1,41-42"


@given(st.lists(st.integers(0, 300), unique=True))
def test_cpu_lists_survive_a_round_trip(cpus: list[int]) -> None:
    """In order if the order counts."""
    assert parse_cpus(format_cpus(tuple(cpus))) == tuple(sorted(cpus))
    assert parse_cpus(list_cpus(tuple(cpus))) == tuple(cpus)


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "3-1", "1,,2", "1,1", "0-4,2", "9000", "0-99999", "٣", "1\n2", "0x1"]
)
def test_text_that_is_no_cpu_list_is_refused(text: str) -> None:
    """With the found text."""
    with pytest.raises(ValueError, match="CPU"):
        parse_cpus(text)


@given(st.integers(0, 2**70), st.integers(0, 3))
def test_masks(mask: int, size: int) -> None:
    """A mask is the set of its members."""
    members = members_of(mask)
    assert mask_of(members) == mask_of([*members, *members]) == mask
    assert list(members) == sorted(members)
    few = mask & 0xFF
    found = [members_of(subset) for subset in subsets(few, size)]
    assert found == sorted(found)
    assert all(len(each) == size and set(each) <= set(members) for each in found)


@pytest.mark.parametrize("name", NAMES)
def test_published_nodes_are_valid_and_survive_the_wire(name: str) -> None:
    """Encoded and decoded descriptions are equal, and yield the same topology."""
    description = descriptions()[name]
    again = msgspec.json.decode(msgspec.json.encode(description), type=NodeTopology)
    assert again == description
    insides = NodeDevicesTable()
    assert insides.of(again) is insides.of(description)


GOOD = NodeTopology(
    numa=(0, 1),
    nvlinks=((0, 1), (1, 0)),
    pcie=(("X", "SYS"), ("SYS", "X")),
    numa_nodes=(NumaNode(node=0, cpus="0-3"), NumaNode(node=1, cpus="4-7")),
    nics=("a", "b"),
    nic_levels=(("PIX", "SYS"), ("SYS", "PIX")),
)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too many GPUs": ({"numa": (0,) * 65}, "numa: expected at most 64, found 65"),
    "a NUMA node below -1": ({"numa": (0, -2)}, "numa: .* found -2"),
    "links of a missing row": ({"nvlinks": ((0, 1),)}, r"nvlinks: expected 2 rows of 2, found rows of \[2\]"),
    "links one way": (
        {"nvlinks": ((0, 1), (2, 0))},
        "nvlinks: expected the same both ways, found 2 from 1 to 0 and 1 back",
    ),
    "a link to itself": ({"nvlinks": ((1, 1), (1, 0))}, "nvlinks: .* none to itself"),
    "negative links": ({"nvlinks": ((0, -1), (-1, 0))}, "nvlinks: expected 0 to 64"),
    "a level that is none": ({"pcie": (("X", "NV1"), ("NV1", "X"))}, 'pcie: .* found "NV1"'),
    "levels one way": ({"pcie": (("X", "PIX"), ("SYS", "X"))}, "pcie: .* both ways"),
    "a short row": ({"nic_levels": (("PIX", "SYS"), ("SYS",))}, "nic_levels: expected 2 rows of 2"),
    "NIC names twice": ({"nics": ("a", "a")}, "nics: expected a name for each"),
    "NUMA nodes twice": ({"numa_nodes": (NumaNode(node=1), NumaNode(node=1))}, "numa_nodes: .* once"),
    "CPUs that are none": ({"numa_nodes": (NumaNode(node=0, cpus="a"),)}, "numa_nodes: node 0: expected CPUs"),
    "CPUs of two nodes": (
        {"numa_nodes": (NumaNode(node=0, cpus="0-3"), NumaNode(node=1, cpus="3"))},
        "CPU 3 is of node 0 and of node 1",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_invalid_descriptions_are_refused(change: dict[str, Any], message: str) -> None:
    """With the field; and nothing of it is remembered."""
    assert checked(GOOD) is GOOD
    insides = NodeDevicesTable()
    for _ in range(2):
        with pytest.raises(TopologyError, match=message):
            insides.of(msgspec.structs.replace(GOOD, **change))


@given(any_description())
def test_made_up_nodes_make_sense(description: NodeTopology) -> None:
    """The tests' own nodes are possible ones."""
    assert checked(description) is description


def test_nodes_of_one_shape_share_their_choices() -> None:
    """Other CPUs and NICs, the same links: two insides, one table."""
    insides = NodeDevicesTable()
    other = msgspec.structs.replace(GOOD, numa_nodes=(NumaNode(node=0, cpus="0-1"), NumaNode(node=1)), nics=("c", "d"))
    one, two = insides.of(GOOD), insides.of(other)
    assert one is not two
    assert one.choices is two.choices


def test_insides_are_forgotten_in_the_order_of_their_last_use() -> None:
    """Memory is bounded; who holds one keeps it."""
    insides = NodeDevicesTable(insides_max=2, shapes_max=2)
    nodes = [NodeTopology(numa=(0,) * count) for count in (1, 2, 3)]
    held = [insides.of(nodes[0]), insides.of(nodes[1])]
    assert insides.of(nodes[0]) is held[0]
    insides.of(nodes[2])
    assert insides.of(nodes[0]) is held[0]
    assert insides.of(nodes[1]) is not held[1]
    assert (len(insides._insides), len(insides._choices)) == (2, 2)
