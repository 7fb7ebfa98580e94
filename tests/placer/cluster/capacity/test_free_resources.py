"""Free resources of a node: an allocation and its release restore them; faults, shares and CPUs."""

from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, part_of, seat
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request
from tests.placer.cluster.capacity.ground import empty, insides, machine, requests

H100 = descriptions()["dgx-h100"]
FIELDS = ("cpu_milli", "memory_mib", "caps", "parts", "free", "shared", "faulted", "cpus", "free_milli")


def facts(left: FreeResources) -> dict[str, object]:
    """Everything that placing looks at."""
    found: dict[str, object] = {name: getattr(left, name) for name in FIELDS}
    return found | {"rests": [left.rest(at) for at in range(len(left.uuids))], "caps": [*left.caps]}


def share(left: FreeResources, milli: int, memory_mib: int = 0) -> Part:
    """Part of one GPU."""
    ask = unit_requests(Request(gpu_milli=milli, gpu_parts=1, gpu_memory_mib=memory_mib))[0]
    found = seat(left, ask)
    assert isinstance(found, NodeAllocation), found
    return part_of("n1", left, ask, found)


@given(insides, st.lists(requests(), max_size=8), st.randoms(), st.sets(st.integers(0, 7), max_size=2))
def test_releasing_is_the_inverse_of_allocating(inside, wanted, random, faults) -> None:  # type: ignore[no-untyped-def] -- hypothesis
    """In any order, with faults: at every step the result equals allocating the held parts on an empty node."""
    found = machine(inside=inside)
    left = empty(found)
    for at in sorted(faults):
        left.fault(f"n1-g{at}")
    before, parts = left.copy(), []
    for request in wanted:
        ask = unit_requests(request)[0]
        place = seat(left, ask)
        if isinstance(place, NodeAllocation):
            parts.append(part_of("n1", left, ask, place))
            left.take(parts[-1])
    random.shuffle(parts)
    while parts:
        left.give(parts.pop())
        fresh = before.copy()
        for part in parts:
            fresh.take(part)
        assert facts(left) == facts(fresh)
    assert facts(left) == facts(before)


def test_shares_fill_a_gpu_up_to_its_memory() -> None:
    """Each share takes its thousandths and, by default, the same fraction of the memory."""
    left = empty(machine(gpus=2, gpu_memory_mib=40000))
    left.take(share(left, 500))
    assert ([left.rest(0), left.rest(1)], left.caps, left.shared, left.free) == ([500, 1000], [20000, 40000], 1, 2)
    left.take(share(left, 250, 15000))
    assert ([left.rest(0), left.rest(1)], left.caps) == ([250, 1000], [5000, 40000])
    # A quarter is left of the first one, but not the memory.
    third = share(left, 250)
    assert third.gpus == ("n1-g1",)
    assert left.gpus_free == 1 and left.free_milli == 1250


def test_a_faulted_gpu_stays_unavailable_when_a_share_ends() -> None:
    """The end of the share does not free the GPU or leave it shared."""
    found = machine(gpus=2)
    part = share(empty(found), 500)
    left = empty(found)
    left.fault("n1-g0")
    left.take(part)
    assert (left.rest(0), left.free, left.shared) == (0, 2, 0)
    left.give(part)
    assert (left.rest(0), left.free, left.shared, left.free_milli) == (0, 2, 0, 1000)


def test_gpus_that_have_left_are_not_counted() -> None:
    """Allocations on them do not reduce other capacity and do not become free."""
    left = empty(machine(gpus=1))
    gone = Part(node="n1", gpus=("n1-g0", "n1-g7"), cpu_milli=1000, memory_mib=1)
    left.take(gone)
    assert (left.free, left.gpus_free) == (0, 0)
    left.give(gone)
    left.fault("n1-g9")
    assert (left.free, left.faulted) == (1, 0)


def test_cpus_are_pinned_once() -> None:
    """CPUs of a part belong to no other part, and are returned."""
    left = empty(machine(inside=H100, cpu=224))
    ask = unit_requests(Request(gpu_milli=1000, cpu_milli=8000))[0]
    parts = []
    for _ in range(3):
        found = seat(left, ask)
        assert isinstance(found, NodeAllocation) and found.cpus.bit_count() == 8
        parts.append(part_of("n1", left, ask, found))
        left.take(parts[-1])
    assert left.cpus.bit_count() == 224 - 24
    for part in parts:
        left.give(part)
    assert left.cpus == left.build.inside.all_cpus


def test_a_copy_is_independent() -> None:
    """Changes to the copy leave the node unchanged."""
    left = empty(machine(gpus=2))
    before, copy = facts(left), left.copy()
    copy.take(share(copy, 300))
    copy.fault("n1-g1")
    assert facts(left) == before != facts(copy)
