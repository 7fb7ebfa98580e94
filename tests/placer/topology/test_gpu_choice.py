"""Choice of GPUs: the best link score, then NUMA nodes, then the remainder for others."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_placer.topology import gpu_choice as module
from fairlead_placer.topology.gpu_choice import Choices, Shortage
from fairlead_placer.topology.gpu_topology import (
    NUMA,
    NVLINK,
    SOCKET,
    SWITCH,
    GpuTopology,
    mask_of,
    members_of,
    shape_of,
    subsets,
)
from fairlead_schemas.wire.resources import NodeTopology, NumaNode
from tests.placer.topology.nodes import EIGHT, any_description, shape


def link(it: GpuTopology, members: tuple[int, ...]) -> int:
    """The published score, written out."""
    return sum(it.scores[i][j] for i, j in combinations(members, 2))


def spans(it: GpuTopology, mask: int) -> int:
    """Return the NUMA nodes of the set, if all are known."""
    return sum(mask & group != 0 for group in it.numa)


@pytest.mark.parametrize("name", EIGHT)
def test_the_best_link_score_for_every_free_set(name: str) -> None:
    """Each free set of each kind of node, and each size: the most that any set scores; of these the fewest NUMA nodes."""
    it = shape(name)
    choices = Choices(it)
    for free in range(1 << it.gpus):
        for size in range(1, free.bit_count() + 1):
            chosen = choices.choose(free, size)
            assert isinstance(chosen, int)
            assert chosen & ~free == 0
            assert chosen.bit_count() == size
            every = list(combinations(members_of(free), size))
            best = max(link(it, members) for members in every)
            assert link(it, members_of(chosen)) == best == choices.facts(chosen)[0]
            fewest = min(spans(it, mask_of(members)) for members in every if link(it, members) == best)
            assert spans(it, chosen) == fewest == choices.facts(chosen)[1]


@given(any_description(), st.data())
def test_the_best_link_score_on_any_node(description: NodeTopology, data: st.DataObject) -> None:
    """Also where links have no order."""
    it = shape_of(description)
    free = data.draw(st.integers(1, (1 << description.gpus) - 1))
    size = data.draw(st.integers(1, free.bit_count()))

    chosen = Choices(it).choose(free, size)

    assert isinstance(chosen, int)
    assert chosen & ~free == 0 and chosen.bit_count() == size
    best = max(link(it, members) for members in combinations(members_of(free), size))
    assert link(it, members_of(chosen)) == best


def taken(name: str, *sizes: int) -> list[tuple[int, ...]]:
    """Return the GPUs of jobs of these sizes, placed one after the other on an empty node."""
    it = shape(name)
    choices, free = Choices(it), (1 << it.gpus) - 1
    found: list[tuple[int, ...]] = []
    for size in sizes:
        chosen = choices.choose(free, size)
        assert isinstance(chosen, int)
        free &= ~chosen
        found.append(members_of(chosen))
    return found


def test_jobs_one_after_the_other() -> None:
    """Each gets the best-linked set. The published policy gives four pairs on a DGX-1 230 each, those of the best
    partition; here the first two get 250 and the last two 210, which is as much in all."""
    assert taken("dgx1-v100", 2, 2, 2, 2) == [(2, 3), (6, 7), (0, 4), (1, 5)]
    assert taken("dgx1-p100", 4, 4) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert taken("rtx8000x4", 2, 2) == [(0, 3), (1, 2)]


def test_sockets_are_respected_where_all_links_are_equal() -> None:
    """Eight RTX 4090, every pair SYS: pairs and fours stay on a socket, and single GPUs break no whole one."""
    assert taken("rtx4090x8-pcie", 1, 2, 4, 1) == [(0,), (1, 2), (4, 5, 6, 7), (3,)]
    assert taken("rtx4090x8-pcie", 2, 4, 2) == [(0, 1), (4, 5, 6, 7), (2, 3)]
    assert taken("rtx4090x8-pcie", 1, 1, 4, 2) == [(0,), (1,), (4, 5, 6, 7), (2, 3)]


def test_the_choice_that_leaves_others_most() -> None:
    """A single GPU comes from where no pair is broken; a pair from where no four is."""
    p100 = Choices(shape("dgx1-p100"))
    assert p100.choose(0b1111_0101, 1) == 0b1
    assert p100.choose(0b1101_1111, 1) == 0b1000_0000
    assert p100.choose(0b1111_0101, 2) == 0b0101
    a100 = Choices(shape("dgx-a100"))
    assert a100.choose(0b1111_0111, 1) == 0b100
    h100 = Choices(shape("dgx-h100"))
    assert h100.choose(0b1111_0011, 2) == 0b0011
    assert h100.choose(0b0011_1111, 2) == 0b0011_0000


def test_a_set_that_must_span_numa_nodes_spans_them_evenly() -> None:
    """Six of eight GPUs on two sockets: three of each. Four of which only three are together: two and two."""
    choices = Choices(shape("dgx-h100"))
    assert choices.choose(0xFF, 6) == 0b0111_0111
    assert choices.choose(0b0111_0111, 4) == 0b0011_0011


def test_sockets_count_where_they_are_known() -> None:
    """A DGX A100 has a NUMA node for each pair; four GPUs take two nodes of one socket."""
    description = NodeTopology(
        numa=(3, 3, 1, 1, 7, 7, 5, 5),
        nvlinks=tuple(tuple(0 if i == j else 12 for j in range(8)) for i in range(8)),
        numa_nodes=tuple(NumaNode(node=node, socket=node // 4) for node in range(8)),
    )
    choices = Choices(shape_of(description))
    assert choices.choose(0b1111_0011, 4) == 0b1111_0000
    assert choices.choose(0b1111_0011, 4, SOCKET) == 0b1111_0000
    assert choices.choose(0b1100_0011, 4, SOCKET) == Shortage("socket", 2, 4, 4)


@given(any_description(), st.data())
def test_a_required_topology_holds_and_is_found_if_it_exists(description: NodeTopology, data: st.DataObject) -> None:
    """The best-scoring set of those that satisfy it, or a shortage if none does, with correct numbers."""
    it = shape_of(description)
    free = data.draw(st.integers(0, (1 << description.gpus) - 1))
    size = data.draw(st.integers(1, description.gpus))
    require = data.draw(st.integers(0, NVLINK | SWITCH | NUMA | SOCKET))

    def able(free: int, size: int, require: int) -> list[int]:
        return [mask for mask in subsets(free, size) if holds(it, mask, require)]

    found = Choices(it).choose(free, size, require)
    if isinstance(found, int):
        assert found in able(free, size, require)
        assert link(it, members_of(found)) == max(link(it, members_of(m)) for m in able(free, size, require))
    else:
        assert able(free, size, require) == []
        names = {"nvlink": NVLINK, "switch": SWITCH, "numa": NUMA, "socket": SOCKET, "free": 0, "domains": require}
        kind = names[found.what]
        assert found.need == size > found.have
        assert found.most >= found.have
        assert able(free, found.have, kind) and not able(free, found.have + 1, kind)


def holds(it: GpuTopology, mask: int, require: int) -> bool:
    """The requirement, written out."""
    members = members_of(mask)
    if not members:
        return True
    if require & NVLINK:
        near = {members[0]}
        for _ in members:
            near |= {gpu for gpu in members if any(it.linked[gpu] >> other & 1 for other in near)}
        if len(near) < len(members):
            return False
    for kind, groups in ((SWITCH, it.switches), (NUMA, it.numa), (SOCKET, it.sockets)):
        if require & kind and not any(mask & ~group == 0 for group in groups):
            return False
    return True


def test_a_shortage_has_its_numbers() -> None:
    """The current number, the needed number, and whether it can ever be reached."""
    v100 = Choices(shape("dgx1-v100"))
    assert v100.choose(0b0100_0111, 4, NVLINK) == 0b0100_0111
    short = Shortage("nvlink", 3, 4, 4)
    assert v100.choose(0b0010_1011, 4, NVLINK | NUMA) == Shortage("numa", 3, 4, 4)
    assert v100.choose(0b0100_1011, 4, NVLINK) == short
    assert short.text == "largest linked group free: 3 of 4"

    rtx = Choices(shape("rtx4090x8-pcie"))
    assert rtx.choose(0b0111_0111, 4, NUMA) == Shortage("numa", 3, 4, 4)
    assert rtx.choose(0xFF, 2, NVLINK) == Shortage("nvlink", 1, 2, 1)
    assert rtx.choose(0b111, 4) == Shortage("free", 3, 4, 4)
    assert rtx.choose(0xFF, 9) == Shortage("free", 8, 9, 8)

    pairs = Choices(shape("dgx1-p100"))
    assert pairs.choose(0xFF, 3, SWITCH) == Shortage("switch", 2, 3, 2)


def test_two_requirements_that_hold_only_apart() -> None:
    """Two are linked, two lie on one node, and no two are both."""
    description = NodeTopology(numa=(0, 1, 0), nvlinks=((0, 1, 0), (1, 0, 0), (0, 0, 0)))
    found = Choices(shape_of(description)).choose(0b111, 2, NVLINK | NUMA)
    assert found == Shortage("domains", 1, 2, 1)


def test_answers_are_forgotten_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and what is asked in another order has the same answers."""
    monkeypatch.setattr(module, "ANSWERS_MAX", 10)
    it = shape("dgx1-v100")
    few = Choices(it)
    questions = [(free, size) for free in range(0, 256, 5) for size in (1, 2, 4)]
    first = [few.choose(*question) for question in questions]
    assert len(few._answers) <= 10
    monkeypatch.undo()

    many = Choices(it)
    again = [many.choose(*question) for question in reversed(questions)]
    assert first == again[::-1]


def test_gpus_that_are_not_there() -> None:
    """Are the caller's mistake."""
    choices = Choices(shape("rtx8000x4"))
    for free, size in ((0b1_0000, 1), (-1, 1), (0b1, -1)):
        with pytest.raises(ValueError, match="expected GPUs of 4"):
            choices.choose(free, size)


def test_a_node_of_which_nothing_is_known() -> None:
    """GPUs and no word on links or NUMA nodes: the lowest."""
    choices = Choices(shape_of(NodeTopology(numa=(-1,) * 8)))
    assert choices.choose(0b1111_0100, 2) == 0b1_0100
    assert choices.choose(0b1111_0100, 2, NVLINK) == Shortage("nvlink", 1, 2, 1)


def test_a_node_without_gpus() -> None:
    """Has no GPUs to give, and none when none are asked for."""
    choices = Choices(shape_of(NodeTopology()))
    assert choices.choose(0, 0) == 0
    assert choices.choose(0, 1) == Shortage("free", 0, 1, 0)
