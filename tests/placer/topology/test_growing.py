"""More than eight GPUs: the best where GPUs are much alike, and never an exhaustive search."""

from math import comb

import pytest

from fairlead_placer.topology import gpu_choice
from fairlead_placer.topology.gpu_choice import Choices, Exhaustive, Growing, Shortage, rank, twins
from fairlead_placer.topology.gpu_topology import NUMA, NVLINK, SWITCH, members_of, shape_of, subsets
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX, NodeTopology
from tests.placer.topology.nodes import EIGHT, shape, switched_sixteen


def test_interchangeable_gpus_are_found() -> None:
    """A DGX-2's halves; a DGX A100's pairs; none on a DGX-1, whose GPUs each have links of their own."""
    assert twins(shape("dgx2-v100")) == (0xFF, 0xFF00)
    assert twins(shape("dgx-a100")) == (0b11, 0b1100, 0b11_0000, 0b1100_0000)
    assert twins(shape("rtx4090x8-pcie")) == (0b1111, 0b1111_0000)
    assert len(twins(shape("dgx1-v100"))) == 8
    assert len(twins(shape_of(switched_sixteen()))) == 8


def test_a_dgx_2_gets_the_best_there_is() -> None:
    """All links are equal, so for any number of GPUs free on each half: the fewest halves, evenly where on both."""
    it = shape("dgx2-v100")
    choices = Choices(it)
    for low in range(9):
        for high in range(9):
            free = ((1 << low) - 1) << (8 - low) | ((1 << high) - 1) << 8
            for size in range(1, low + high + 1):
                found = choices.choose(free, size)
                assert isinstance(found, int)
                assert found & ~free == 0 and found.bit_count() == size
                assert choices.facts(found)[0] == 600 * comb(size, 2)
                assert choices.facts(found)[1] == (1 if size <= max(low, high) else 2)
                if choices.facts(found)[1] == 2:
                    share = (found & 0xFF).bit_count()
                    assert abs(2 * share - size) == min(
                        abs(2 * n - size) for n in range(size + 1) if n <= low and size - n <= high
                    )


@pytest.mark.parametrize(
    ("free", "size"),
    [(0xFFFF, 2), (0xFFFF, 4), (0xF0FF, 8), (0x7F3B, 6), (0x5555, 4), (0x6DB6, 5), (0xFFF7, 8), (0x1FFF, 7)],
)
def test_sixteen_gpus_under_switches_get_the_best_there_is(free: int, size: int) -> None:
    """The beam keeps what leads to the best, though there are more sets than it is wide."""
    it = shape_of(switched_sixteen())
    found = Choices(it).choose(free, size)
    assert isinstance(found, int)
    assert rank(it, found) == max(rank(it, mask) for mask in subsets(free, size))


@pytest.mark.parametrize("name", EIGHT)
def test_growing_finds_what_searching_finds(name: str) -> None:
    """On the kinds of node where both can be had, for every free set."""
    it = shape(name)
    grow, search = Growing(it), Exhaustive(it)
    for free in range(1 << it.gpus):
        for size in (1, 2, 3, 4, 8):
            for require in (0, NVLINK, NUMA, SWITCH):
                grown, best = grow.best(free, size, require), search.best(free, size, require)
                assert (grown is None) == (best is None)
                if grown is not None and best is not None:
                    assert grown & ~free == 0
                    assert rank(it, grown) == rank(it, best)


def test_single_gpus_come_from_the_fuller_half() -> None:
    """So that the other half stays whole."""
    choices = Choices(shape("dgx2-v100"))
    assert choices.choose(0xFF07, 1) == 0b1
    assert choices.choose(0x07FF, 1) == 1 << 8
    assert choices.choose(0xFF0F, 2) == 0b11


def test_requirements_on_sixteen_gpus() -> None:
    """One half has four, the other three."""
    choices = Choices(shape("dgx2-v100"))
    free = 0b0111_0000_0000_1111
    assert choices.choose(free, 4, NUMA) == 0b1111
    assert choices.choose(free, 5, NUMA) == Shortage("numa", 4, 5, 5)
    found = choices.choose(free, 7, NVLINK)
    assert isinstance(found, int) and len(members_of(found)) == 7


def test_linked_gpus_are_found_where_the_best_pairs_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three triangles with double links, and a chain of five with single ones: only the chain holds four."""
    monkeypatch.setattr(gpu_choice, "WIDTH", 2)
    pairs = {(i, j): 2 for base in (0, 3, 6) for i in range(base, base + 3) for j in range(base, i)}
    pairs |= {(i + 1, i): 1 for i in range(9, 13)}
    links = [[pairs.get((max(i, j), min(i, j)), 0) for j in range(14)] for i in range(14)]
    it = shape_of(NodeTopology(numa=(0,) * 14, nvlinks=tuple(map(tuple, links))))

    assert Choices(it).choose(0x3FFF, 4, NVLINK) == 0b1111 << 9
    assert Choices(it).choose(0x1FFF, 5, NVLINK) == Shortage("nvlink", 4, 5, 5)


def test_the_most_gpus_there_may_be() -> None:
    """Thirty-two without any likeness: an answer, and not a search over two billion sets."""
    gpus = range(TOPOLOGY_GPUS_MAX)
    links = tuple(tuple((i * j + i + j) % 3 if i != j else 0 for j in gpus) for i in gpus)
    it = shape_of(NodeTopology(numa=tuple(gpu % 3 for gpu in gpus), nvlinks=links))
    found = Choices(it).choose((1 << TOPOLOGY_GPUS_MAX) - 1, 16)
    assert isinstance(found, int) and found.bit_count() == 16
