"""Scores and groups, as the published nodes have them; ranks that add up."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_placer.topology.gpu_choice import LINK, SPAN, rank, spread
from fairlead_placer.topology.gpu_topology import link_score, mask_of, shape_of
from fairlead_schemas.wire.resources import NodeTopology, NumaNode
from tests.placer.topology.nodes import any_description, shape


def test_pairs_score_as_published() -> None:
    """Level and NVLinks add up; what is not known scores nothing."""
    v100 = shape("dgx1-v100").scores
    assert [v100[0][j] for j in range(8)] == [0, 150, 130, 230, 210, 10, 10, 10]
    rtx8000 = shape("rtx8000x4").scores
    assert [rtx8000[0][j] for j in range(4)] == [0, 20, 10, 200]
    a100 = shape("dgx-a100").scores
    assert [a100[0][j] for j in range(8)] == [0, 1240, *[1210] * 6]


def test_a_set_scores_the_sum_of_its_pairs() -> None:
    """The fours of a DGX-1: two of 50 + 30 (PIX and PHB) pairs and the links between them."""
    assert link_score(shape("dgx1-p100"), 0b1111) == 2 * 150 + 4 * 130
    assert link_score(shape("dgx1-v100"), 0b1111) == 150 + 130 + 230 + 230 + 130 + 250
    assert link_score(shape("rtx4090x8-pcie"), 0xFF) == 28 * 10
    assert link_score(shape("dgx1-v100"), 0) == link_score(shape("dgx1-v100"), 1) == 0


def test_groups() -> None:
    """Switches by level, NUMA nodes and sockets by number, links by pairs."""
    v100 = shape("dgx1-v100")
    assert v100.switches == (0b11, 0b1100, 0b11_0000, 0b1100_0000)
    assert v100.numa == v100.sockets == (0b1111, 0b1111_0000)
    assert v100.linked[0] == 0b1_1110
    a100 = shape("dgx-a100")
    assert a100.numa == (0b11, 0b1100, 0b11_0000, 0b1100_0000)
    assert shape("rtx4090x8-pcie").linked == (0,) * 8


def test_a_numa_node_that_is_not_known() -> None:
    """Is in no group; but where there is only one node, it is that one."""
    two = (NumaNode(node=0, socket=0), NumaNode(node=1, socket=0))
    assert shape_of(NodeTopology(numa=(0, -1, 1), numa_nodes=two)).numa == (0b1, 0b100)
    assert shape_of(NodeTopology(numa=(0, -1, 1), numa_nodes=two)).sockets == (0b101,)
    assert shape_of(NodeTopology(numa=(-1, -1), numa_nodes=two)).numa == ()
    assert shape_of(NodeTopology(numa=(-1, -1), numa_nodes=two[:1])).numa == (0b11,)
    assert shape_of(NodeTopology(numa=(-1, -1))).sockets == (0b11,)


def test_spread_counts_nodes_then_sockets_then_unevenness() -> None:
    """Two GPUs on each of two sockets of two NUMA nodes; a single GPU has no known location."""
    nodes = tuple(NumaNode(node=node, socket=node // 2) for node in range(4))
    it = shape_of(NodeTopology(numa=(0, 0, 1, 1, 2, 2, 3, 3, -1), numa_nodes=nodes))

    def order(*members: int) -> int:
        return spread(it, mask_of(members))

    assert order() == 0
    assert order(0) == order(0, 1) < order(0, 2) < order(0, 4) < order(0, 2, 4)
    assert order(0, 2) < order(0, 1, 2) < order(0, 4)
    assert order(0, 8) > order(0, 2)
    assert order(0, 1) // SPAN == order(8) // SPAN == 1


@given(any_description(), st.data())
def test_ranks_add_up_part_by_part(description: NodeTopology, data: st.DataObject) -> None:
    """A sum of ranks is the sum of link scores, less what spread costs, however many sets there are."""
    it = shape_of(description)
    colours = data.draw(st.lists(st.integers(0, 7), min_size=it.gpus, max_size=it.gpus))
    sets = [mask_of(gpu for gpu in range(it.gpus) if colours[gpu] == colour) for colour in range(8)]
    total = sum(rank(it, mask) for mask in sets)
    assert -(-total // LINK) == sum(link_score(it, mask) for mask in sets)
    assert -total % LINK == sum(spread(it, mask) for mask in sets)
