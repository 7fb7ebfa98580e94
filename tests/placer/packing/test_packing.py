"""Packing: every policy keeps the books, refuses nothing that fits, and the default one wastes less than the plain ones."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import openb_trace
from fairlead_placer.packing.figures import fragmentation, largest_job
from fairlead_placer.packing.normal import CHANCE, LOSS, ONE, REACH, STEPS
from fairlead_placer.packing.packer import Packer
from fairlead_placer.packing.policies import POLICIES
from fairlead_placer.packing.pool import Machine, Pool
from fairlead_placer.packing.remainders import remainder_values
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.typical import ARRIVAL, SHAPES_MAX, TypicalWork

MACHINES = [
    Machine(96_000, 393_216, 8, "A"), Machine(64_000, 262_144, 4, "B"), Machine(104_000, 524_288, 2, "C"),
    Machine(8_000, 32_768, 1, "A"), Machine(32_000, 65_536, 0),
]  # fmt: skip

SHAPES = st.builds(
    lambda cpu, memory, gpu, models: Shape(cpu, memory, gpu[0], gpu[1], models if gpu[0] else ()),
    st.sampled_from([1_000, 8_000, 12_000, 30_000]),
    st.sampled_from([0, 4_096, 65_536]),
    st.sampled_from([(0, 0), (1, 330), (1, 470), (1, 810), (1, 1000), (2, 1000), (2, 500), (4, 1000), (8, 1000)]),
    st.sampled_from([(), (), ("A",), ("B", "C"), ("unknown",)]),
)


def pool_of(machines: list[Machine]) -> Pool:
    pool = Pool(8)
    for machine in machines:
        pool.add(machine)
    return pool


@pytest.mark.parametrize("policy", POLICIES)
@given(st.lists(st.tuples(SHAPES, st.booleans()), max_size=60))
def test_no_policy_overfills_a_node_or_refuses_what_fits(policy: str, wanted: list[tuple[Shape, bool]]) -> None:
    """Whatever comes and goes: a plain scan finds room exactly where the packer does."""
    pool, scan = pool_of(MACHINES), openb_trace.Scan(MACHINES)
    packer = Packer(POLICIES[policy](), pool)
    free = pool.free_milli
    for shape, leaves in wanted:
        fits = scan.fits(shape)
        found = packer.place(shape)
        assert fits == (found is not None)
        if found is None:
            continue
        if leaves:
            pool.give_back(found.node, shape, found.gpus)
        else:
            scan.take(found.node, shape, found.gpus)
            free -= shape.total_milli
        assert free == pool.free_milli


def test_typical_work_is_bounded_and_forgets() -> None:
    """The rarest shape gives way to a new one; counts stay integers."""
    work = TypicalWork()
    often = Shape(1, 0, 1, 1000)
    for _ in range(3):
        work.observe(often)
    for at in range(2 * SHAPES_MAX):
        work.observe(Shape(at + 2, 0, 1, 500))
    assert len(work.weights) == SHAPES_MAX
    assert work.weights[often] == 3 * ARRIVAL


def test_the_rest_that_only_rare_shares_fit_is_worth_little() -> None:
    """470 pairs with 470, so half a GPU is worth half a GPU; what 810 leaves is worth nothing where nothing fits it."""
    work, pool = TypicalWork(), pool_of(MACHINES)
    for _ in range(50):
        work.observe(Shape(1_000, 0, 1, 470))
        work.observe(Shape(1_000, 0, 1, 810))
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


def test_whole_nodes_are_kept_for_those_who_need_them() -> None:
    """With work of one GPU and of eight, small jobs fill a node that is in use already."""
    packer = Packer(POLICIES["fragmentation"](), pool_of([Machine(96_000, 393_216, 8, "A")] * 4))
    one, eight = Shape(8_000, 1_024, 1, 1000), Shape(64_000, 8_192, 8, 1000)
    for _ in range(8):
        packer.place(one)
    assert sum(packer.place(eight) is not None for _ in range(3)) == 3


def test_facts_about_a_pool() -> None:
    """Half of a GPU that no typical job fits is unusable; the largest job needs its GPUs on one node."""
    pool, work = pool_of([Machine(32_000, 65_536, 4, "A")] * 2), TypicalWork()
    assert largest_job(pool) == 4
    assert largest_job(pool, cpu_milli=16_000) == 2
    pool.take(0, Shape(1_000, 1_024, 1, 500), (0,))
    work.observe(Shape(1_000, 1_024, 1, 1000))
    assert fragmentation(pool, work) == (7_500, 500)


def test_the_same_stream_is_placed_alike_twice() -> None:
    """Nothing but the stream decides."""
    rng = random.Random(7)
    stream = [Shape(rng.choice([1_000, 9_000]), 4_096, 1, rng.choice([330, 500, 1000])) for _ in range(40)]
    placed = []
    for _ in range(2):
        packer = Packer(POLICIES["fragmentation"](), pool_of(MACHINES))
        placed.append([packer.place(shape) for shape in stream])
    assert placed[0] == placed[1]
