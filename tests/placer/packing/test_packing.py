"""Packing: every policy keeps the books, refuses nothing that fits, and the default one wastes less than the plain ones."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.openb import trace as openb_trace
from bench.openb.cluster import Cluster
from fairlead_placer.packing.fragmentation import remainder_values
from fairlead_placer.packing.policies import POLICIES, fragmentation
from fairlead_placer.packing.policy import ARRIVAL, SHAPES_MAX, EmptyNode, RequestShape, TypicalWork
from fairlead_placer.packing.scarcity import CHANCE, LOSS, ONE, REACH, STEPS, heavy_shapes, largest

MACHINES = [
    EmptyNode(96_000, 393_216, 8, "A"),
    EmptyNode(64_000, 262_144, 4, "B"),
    EmptyNode(104_000, 524_288, 2, "C"),
    EmptyNode(8_000, 32_768, 1, "A"),
    EmptyNode(32_000, 65_536, 0),
]

SHAPES = st.builds(
    lambda cpu, memory, gpu, models: RequestShape(cpu, memory, gpu[0], gpu[1], models if gpu[0] else ()),
    st.sampled_from([1_000, 8_000, 12_000, 30_000]),
    st.sampled_from([0, 4_096, 65_536]),
    st.sampled_from([(0, 0), (1, 330), (1, 470), (1, 810), (1, 1000), (2, 1000), (2, 500), (4, 1000), (8, 1000)]),
    st.sampled_from([(), (), ("A",), ("B", "C"), ("unknown",)]),
)


def cluster(machines: list[EmptyNode], seen: list[RequestShape] | None = None) -> Cluster:
    return Cluster(machines, "fragmentation", seen or [])


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SHAPES, st.booleans()), max_size=40))
def test_no_policy_overfills_a_node_or_refuses_what_fits(policy: str, wanted: list[tuple[RequestShape, bool]]) -> None:
    """With arrivals and ends: a plain scan finds room exactly where the placer does."""
    played, scan = Cluster(MACHINES, policy, []), openb_trace.Scan(MACHINES)
    free = played.pool.free_milli
    for shape, leaves in wanted:
        fits = scan.fits(shape)
        found = played.place(shape)
        assert fits == (found is not None)
        if found is None:
            continue
        if leaves:
            played.end(played.placed)
        else:
            scan.take(found[0], shape, found[1])
            free -= shape.total_milli
        assert free == played.pool.free_milli


def test_typical_work_is_bounded_and_forgets() -> None:
    """The rarest shape gives way to a new one; counts stay integers."""
    work = TypicalWork()
    often = RequestShape(1, 0, 1, 1000)
    for _ in range(3):
        work.observe(often)
    for at in range(2 * SHAPES_MAX):
        work.observe(RequestShape(at + 2, 0, 1, 500))
    assert len(work.weights) == SHAPES_MAX
    assert work.weights[often] == 3 * ARRIVAL


def test_the_rest_that_only_rare_shares_fit_is_worth_little() -> None:
    """470 pairs with 470, so half a GPU is worth half a GPU; what 810 leaves is worth nothing where nothing fits it."""
    work, pool = TypicalWork(), cluster(MACHINES).pool
    for _ in range(50):
        work.observe(RequestShape(1_000, 0, 1, 470))
        work.observe(RequestShape(1_000, 0, 1, 810))
    values = remainder_values(pool, work)
    assert values[1000] == 1_000_000
    assert values[190] == 0
    assert 450_000 <= values[530] <= 550_000


def test_the_normal_tables() -> None:
    """Half of it is above the mean; far below the mean all of it is, by as much as that."""
    middle = REACH * STEPS
    assert abs(CHANCE[middle] - ONE // 2) <= 2
    assert abs(LOSS[middle] - int(0.39894 * ONE)) <= 2
    assert abs(LOSS[0] - REACH * ONE) <= 4
    assert sorted(CHANCE, reverse=True) == CHANCE


def test_whole_nodes_are_kept_for_jobs_that_need_them() -> None:
    """With work of one GPU and of eight, small jobs fill a node that is in use already."""
    played = cluster([EmptyNode(96_000, 393_216, 8, "A")] * 4)
    one, eight = RequestShape(8_000, 1_024, 1, 1000), RequestShape(64_000, 8_192, 8, 1000)
    for _ in range(8):
        played.place(one)
    assert sum(played.place(eight) is not None for _ in range(3)) == 3


def test_stranded_capacity_of_a_pool() -> None:
    """Half of a GPU that no typical job fits is unusable."""
    played, work = cluster([EmptyNode(32_000, 65_536, 4, "A")] * 2), TypicalWork()
    played.place(RequestShape(1_000, 1_024, 1, 500))
    work.observe(RequestShape(1_000, 1_024, 1, 1000))
    assert fragmentation(played.pool, work) == (7_500, 500)


def test_the_same_stream_is_placed_alike_twice() -> None:
    """Nothing but the stream decides."""
    rng = random.Random(7)
    stream = [RequestShape(rng.choice([1_000, 9_000]), 4_096, 1, rng.choice([330, 500, 1000])) for _ in range(40)]
    placed = []
    for _ in range(2):
        played = cluster(MACHINES)
        placed.append([played.place(shape) for shape in stream])
    assert placed[0] == placed[1]


def test_big_nodes_are_kept_for_jobs_that_need_them() -> None:
    """If one node in five has memory for the big job, the others are used first as long as big jobs arrive."""
    machines = [EmptyNode(96_000, 786_432, 8, "A")] * 2 + [EmptyNode(96_000, 393_216, 8, "A")] * 8
    usual, big = RequestShape(88_000, 327_680, 8, 1000), RequestShape(88_000, 700_000, 8, 1000)
    played = cluster(machines, [*[usual] * 4, big])
    for _ in range(6):
        played.place(usual)
    assert [played.place(big) is not None for _ in range(2)] == [True, True]


def test_heavy_is_what_few_nodes_could_take() -> None:
    """Of the nodes whose GPUs would do; half of them is few, more is not."""
    machines = [EmptyNode(8_000, 100, 8, "A"), EmptyNode(9_000, 100, 8, "A"), EmptyNode(1_000, 100, 1, "B")]
    heavy, usual, small = (
        RequestShape(8_001, 1, 8, 1000),
        RequestShape(8_000, 1, 8, 1000),
        RequestShape(900, 1, 1, 1000),
    )
    shapes = [heavy, usual, small]
    assert heavy_shapes(cluster(machines).pool, shapes) == {heavy}
    assert heavy_shapes(cluster(machines[1:]).pool, shapes) == set()


def test_the_largest_nodes_are_used_last_before_anything_is_known() -> None:
    """A job that only they could take may come; one job of one GPU after the other keeps them free."""
    machines = [EmptyNode(128_000, 786_432, 8, "A")] + [EmptyNode(96_000, 393_216, 8, "A")] * 4
    played = cluster(machines)
    assert largest(played.pool) == [RequestShape(120_000, 737_280, 8, 1000)]
    placed = [played.place(RequestShape(8_000, 32_768, 1, 1000)) for _ in range(33)]
    assert [each[0] for each in placed if each].count(0) == 1
    assert placed[-1] is not None and placed[-1][0] == 0
