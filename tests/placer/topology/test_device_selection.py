"""GPUs, CPUs and NICs together."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.topology.device_selection import DeviceAllocation, DeviceRequest, NodeDevicesTable, place
from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import NUMA, NVLINK, SOCKET, SWITCH, WORDS, mask_of, relaxed
from fairlead_schemas.units.hardware import format_cpus, parse_cpus
from fairlead_schemas.wire.resources import NodeTopology
from tests.placer.topology.nodes import any_description, inside

#: The upper socket of an eight-GPU node.
HIGH = "56-111,168-223"


def cpus_of(*lists: str) -> int:
    """The mask of CPUs written as Linux writes them."""
    return mask_of(cpu for each in lists for cpu in parse_cpus(each))


def test_a_part_on_an_empty_node() -> None:
    """GPUs of one socket, its CPUs after the system's, the NIC of each GPU."""
    it = inside("dgx-h100", reserved=2)
    found = place(it, it.all_gpus, it.all_cpus, DeviceRequest(gpus=2, cpus=8))
    assert isinstance(found, DeviceAllocation)
    assert found.gpus == (0, 1)
    assert format_cpus(found.cpus) == "2-9"
    assert [it.description.nics[each.nic] for each in found.nics] == ["NIC0", "NIC3"]
    assert (found.link_score, found.numa_nodes, found.held) == (1800, 1, 0)


def test_cpus_follow_the_gpus() -> None:
    """If only the upper socket has free GPUs, CPUs come from there."""
    it = inside("rtx4090x8-pcie", reserved=1)
    found = place(it, 0b1100_0001, it.all_cpus, DeviceRequest(gpus=2, cpus=4))
    assert isinstance(found, DeviceAllocation)
    assert (found.gpus, format_cpus(found.cpus)) == ((6, 7), "57-60")


def test_of_equal_links_the_socket_with_cpus() -> None:
    """All links are equal: GPUs whose socket has no CPU left are left out, unless there is no other way."""
    it = inside("dgx-h100")
    high = cpus_of(HIGH)
    found = place(it, it.all_gpus, high, DeviceRequest(gpus=2, cpus=4))
    assert isinstance(found, DeviceAllocation)
    assert (found.gpus, format_cpus(found.cpus)) == ((4, 5), "56-59")
    far = place(it, 0b1111, high, DeviceRequest(gpus=2, cpus=4))
    assert isinstance(far, DeviceAllocation)
    assert (far.gpus, format_cpus(far.cpus)) == ((0, 1), "56-59")


def test_links_are_not_given_up_for_cpus() -> None:
    """A DGX-1's best pair keeps its links, and has CPUs from afar."""
    it = inside("dgx1-v100")
    found = place(it, 0b0011_1001, cpus_of("20-39"), DeviceRequest(gpus=2, cpus=2))
    assert isinstance(found, DeviceAllocation)
    assert (found.gpus, found.cpus) == ((0, 3), (20, 21))


def test_one_numa_node_is_required() -> None:
    """GPUs and CPUs on the same one, or the shortage in numbers: of GPUs, or of CPUs where the GPUs are."""
    it = inside("rtx4090x8-pcie", reserved=2)
    ask = DeviceRequest(gpus=3, cpus=100, require=NUMA)
    found = place(it, 0b0111_1111, it.all_cpus & ~cpus_of("2-20"), ask)
    assert isinstance(found, DeviceAllocation)
    assert found.gpus == (4, 5, 6)
    assert set(found.cpus) <= set(it.numa[1].cpus)

    short = Shortage("numa_gpus_cpus", 110 - 19, 100, 100)
    assert place(it, 0b0011_1111, it.all_cpus & ~cpus_of("2-20"), ask) == short
    assert short.text == "most CPUs free on a NUMA node with GPUs enough: 91 of 100"
    assert place(it, 0b0011_0011, it.all_cpus, ask) == Shortage("numa", 2, 3, 3)
    assert place(it, 0xFF, it.all_cpus, ask._replace(cpus=111)) == Shortage("numa_gpus_cpus", 110, 111, 110)
    assert place(it, 0xFF, it.all_cpus, DeviceRequest(cpus=111, require=NUMA)) == Shortage("numa_cpus", 110, 111, 110)


def test_one_numa_node_is_preferred() -> None:
    """It holds where it can, also against better links; else the part is placed without."""
    v100 = inside("dgx1-v100")
    free = 0b0001_0011
    best = place(v100, free, v100.all_cpus, DeviceRequest(gpus=2))
    assert isinstance(best, DeviceAllocation) and (best.gpus, best.held) == ((0, 4), 0)
    near = place(v100, free, v100.all_cpus, DeviceRequest(gpus=2, prefer=NUMA))
    assert isinstance(near, DeviceAllocation) and (near.gpus, near.held) == ((0, 1), NUMA)
    apart = place(v100, 0b1_0001, v100.all_cpus, DeviceRequest(gpus=2, prefer=NUMA | SWITCH))
    assert isinstance(apart, DeviceAllocation) and (apart.gpus, apart.held) == ((0, 4), 0)
    never = place(v100, 0b1, v100.all_cpus, DeviceRequest(gpus=2, prefer=NUMA))
    assert never == Shortage("free", 1, 2, 2)


def test_preferences_are_given_up_one_by_one() -> None:
    """All, then each but the last, and so on; a requirement never."""
    assert list(relaxed(NVLINK, 0)) == [NVLINK]
    assert list(relaxed(NVLINK, NVLINK | SWITCH | NUMA)) == [
        NVLINK | SWITCH | NUMA,
        NVLINK | SWITCH,
        NVLINK | NUMA,
        NVLINK,
    ]
    assert WORDS["socket"] == SOCKET


def test_linked_gpus_are_required() -> None:
    """Three are linked, a fourth is free and is not."""
    v100 = inside("dgx1-v100")
    short = place(v100, 0b0100_1011, 0, DeviceRequest(gpus=4, require=NVLINK))
    assert short == Shortage("nvlink", 3, 4, 4)


def test_cpus_alone_are_taken_away_from_free_gpus() -> None:
    """Free GPUs keep their CPUs; no GPU and no NIC is allocated."""
    it = inside("dgx-h100", reserved=1)
    found = place(it, 0b0000_1111, it.all_cpus, DeviceRequest(cpus=4))
    assert found == DeviceAllocation(gpus=(), cpus=(57, 58, 59, 60), nics=(), held=0, link_score=0, numa_nodes=0)


def test_without_cpu_lists_gpus_alone_are_chosen() -> None:
    """GPUs are chosen, CPUs are not; a requirement applies to the GPUs."""
    it = inside("rtx8000x4")
    found = place(it, 0b1111, 0, DeviceRequest(gpus=2, cpus=16, require=NVLINK))
    assert found == DeviceAllocation(gpus=(0, 3), cpus=(), nics=(), held=NVLINK, link_score=200, numa_nodes=2)
    assert place(it, 0b1111, 0, DeviceRequest(gpus=3, cpus=16, require=NUMA)) == Shortage("numa", 2, 3, 2)


def test_gpus_that_are_not_there() -> None:
    """Are the caller's mistake."""
    it = inside("rtx8000x4")
    with pytest.raises(ValueError, match="expected GPUs of 4"):
        place(it, 0b1_0000, 0, DeviceRequest(gpus=1))


def test_a_node_with_unknown_gpu_locality_pins_anywhere() -> None:
    """CPUs come from anywhere; one NUMA node cannot be promised."""
    description = msgspec.structs.replace(descriptions()["dgx-h100"], numa=(-1,) * 8)
    it = NodeDevicesTable().of(description)
    found = place(it, it.all_gpus, it.all_cpus, DeviceRequest(gpus=2, cpus=4))
    assert isinstance(found, DeviceAllocation) and len(found.cpus) == 4
    assert place(it, it.all_gpus, it.all_cpus, DeviceRequest(gpus=2, require=NUMA)) == Shortage("numa", 0, 2, 0)


@given(any_description(), st.data())
def test_a_part_is_of_what_is_free_and_holds_what_it_says(description: NodeTopology, data: st.DataObject) -> None:
    """For any node and ask; twice the same answer, also of a node that was never asked before."""
    it = NodeDevicesTable(reserved=1).of(description)
    free_gpus = data.draw(st.integers(0, it.all_gpus))
    free_cpus = data.draw(st.integers(0, (1 << 24) - 1)) & it.all_cpus
    kinds = st.integers(0, NVLINK | SWITCH | NUMA | SOCKET)
    ask = DeviceRequest(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 12)), data.draw(kinds), data.draw(kinds))

    found = place(it, free_gpus, free_cpus, ask)

    assert place(NodeDevicesTable(reserved=1).of(description), free_gpus, free_cpus, ask) == found
    if isinstance(found, Shortage):
        assert found.have < found.need
        assert found.have <= found.most <= found.need
        return
    assert (len(found.gpus), len(found.cpus)) == (ask.gpus, ask.cpus)
    assert mask_of(found.gpus) & ~free_gpus == mask_of(found.cpus) & ~free_cpus == 0
    assert found.held & ask.require == ask.require and found.held & ~(ask.require | ask.prefer) == 0
    if found.held & NUMA:
        homes = [node for node in it.numa if node.mask & mask_of(found.cpus) or node.gpus & mask_of(found.gpus)]
        assert len(homes) <= 1
