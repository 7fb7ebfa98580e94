"""Other people's policies as published, against the rule written out word for word."""

from collections.abc import Iterator
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.gpu_policies import best_effort, simple
from fairlead_placer.topology.gpu_topology import GpuTopology, mask_of, members_of, shape_of
from fairlead_schemas.wire.resources import NodeTopology
from tests.placer.topology.nodes import any_description, shape

#: A blank: after every GPU.
BLANK = 99
type Set = tuple[int, ...]


def partitions(gpus: tuple[int, ...], size: int) -> Iterator[list[Set]]:
    """All partitions into sets of `size` which hold no blanks or all of them."""
    if not gpus:
        yield []
        return
    blanks = gpus.count(BLANK)
    seen: set[Set] = set()
    for others in combinations(gpus[1:], size - 1):
        first = (gpus[0], *others)
        if first.count(BLANK) not in (0, blanks) or first in seen:
            continue
        seen.add(first)
        rest = list(gpus)
        for gpu in first:
            rest.remove(gpu)
        for others_ in partitions(tuple(rest), size):
            yield [first, *others_]


def by_the_book(shape: GpuTopology, available: int, required: int, size: int) -> int | None:
    """The published rule, one partition after the other."""
    if size < 1 or available.bit_count() < size or required & ~available or required.bit_count() > size:
        return None
    if required.bit_count() == size:
        return required

    def score(one: Set) -> int:
        return sum(shape.scores[i][j] for i, j in combinations([gpu for gpu in one if gpu != BLANK], 2))

    def holds(one: Set) -> bool:
        return BLANK not in one and set(members_of(required)) <= set(one)

    gpus = members_of(available)
    padded = gpus + (BLANK,) * (-len(gpus) % size)
    able = [partition for partition in partitions(padded, size) if any(map(holds, partition))]
    best = max(able, key=lambda partition: sum(map(score, partition)))
    return mask_of(max(filter(holds, best), key=score))


@given(any_description(most=7), st.data())
def test_best_effort_follows_the_published_rule(description: NodeTopology, data: st.DataObject) -> None:
    """On any node, whatever is free or required, also where sizes do not divide."""
    it = shape_of(description)
    every = (1 << description.gpus) - 1
    available, required = data.draw(st.integers(0, every)), data.draw(st.integers(0, every))
    size = data.draw(st.integers(0, description.gpus + 1))

    assert best_effort(it, available, required, size) == by_the_book(it, available, required, size)
    assert best_effort(it, available, 0, size) == by_the_book(it, available, 0, size)
    some = required & available
    assert best_effort(it, available, some, size) == by_the_book(it, available, some, size)


def test_best_effort_on_sixteen_gpus() -> None:
    """Two million partitions into pairs are not looked at one by one."""
    it = shape("dgx2-v100")

    assert [best_effort(it, 0xFFFF, 0, size) for size in (1, 2, 8, 16)] == [0b1, 0b11, 0xFF, 0xFFFF]
    assert best_effort(it, 0xFFFF, 1 << 9, 2) == 0b11 << 8
    assert best_effort(it, 0xFFF0, 1 << 9, 8) == 0xFF0
    assert best_effort(it, 0xFFF0, 1 << 15, 8) == 0x87F0


def test_simple_takes_the_required_then_the_lowest() -> None:
    """And refuses what cannot be."""
    assert simple(0b1111, 0b1000, 3) == 0b1011
    assert simple(0b1110, 0b0001, 2) is None
    assert simple(0b1110, 0b1110, 2) is None
    assert simple(0b1110, 0, 4) is None
    assert simple(0b1110, 0, 0) is None
