"""Allocation within a node: the best linked GPUs, CPUs and network devices near them, shares that fit; or the cause of
a failure."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.free_resources import FreeResources, cpu_mask
from fairlead_placer.cluster.capacity.node_allocation import (
    NodeAllocation,
    gpus_short,
    never,
    part_of,
    seat,
    seat_several,
)
from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.topology.gpu_topology import members_of, shape_of
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.placement_causes import CAUSES
from fairlead_schemas.wire.resources import PCIE_LEVELS, Request
from tests.placer.cluster.capacity.ground import PROFILES, empty, insides, machine, requests

GEFORCE = descriptions()["rtx4090x8-pcie"]
LOW, HIGH = cpu_mask("0-55,112-167"), cpu_mask("56-111,168-223")


def ask(gpus: int = 0, **more: object) -> UnitRequest:
    """One unit with so many whole GPUs."""
    return unit_requests(Request(gpu_milli=gpus * 1000, **more))[0]  # type: ignore[arg-type] -- a builder


def share(milli: int, **more: object) -> UnitRequest:
    """One unit with a part of a GPU."""
    return unit_requests(Request(gpu_milli=milli, gpu_parts=1, **more))[0]  # type: ignore[arg-type] -- a builder


def seated(left: FreeResources, wanted: UnitRequest, rest: int = 0) -> NodeAllocation:
    """It fits."""
    found = seat(left, wanted, rest)
    assert isinstance(found, NodeAllocation), found
    return found


def take(left: FreeResources, wanted: UnitRequest, rest: int = 0) -> Part:
    """It fits, and has its part from now on."""
    part = part_of("n1", left, wanted, seated(left, wanted, rest))
    left.take(part)
    return part


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_the_best_links_there_are(name: str, gpus: int) -> None:
    """Of every free set of every published kind of node: no other set of as many GPUs has a higher score."""
    inside = descriptions()[name]
    scores, left = shape_of(inside).scores, empty(machine(inside=inside))
    for free in range(1 << inside.gpus):
        left.free = free
        found = seat(left, ask(gpus))
        if free.bit_count() < gpus:
            assert found == ("free_gpus" if gpus <= inside.gpus else "gpus")
            continue
        assert isinstance(found, NodeAllocation)
        every = (sum(scores[i][j] for i, j in combinations(each, 2)) for each in combinations(members_of(free), gpus))
        assert found.link_score == max(every)
        assert sum(scores[i][j] for i, j in combinations(found.gpus, 2)) == found.link_score


def test_cpus_are_near_their_gpus() -> None:
    """CPUs come from the GPUs' NUMA node while it has any; a job without whole CPUs is pinned to none."""
    left = empty(machine(inside=GEFORCE, cpu=224))
    left.free = 0b1111_0000
    assert seated(left, ask(2, cpu_milli=8000)).cpus & ~HIGH == 0
    assert seated(left, ask(2, cpu_milli=8500)).cpus == 0
    left.cpus = LOW
    assert seated(left, ask(2, cpu_milli=8000)).cpus & ~LOW == 0
    assert seat(left, ask(2, cpu_milli=8000, require=("numa",))) == "free_numa"
    left.cpus = cpu_mask("0-3")
    assert seat(left, ask(2, cpu_milli=8000)) == "free_cpu"


def test_gpus_satisfy_the_required_topology() -> None:
    """Enough GPUs are free, but not on one NUMA node or under one switch; a preference may be unmet."""
    left = empty(machine(inside=GEFORCE, cpu=224))
    left.free = 0b0011_0011
    assert seat(left, ask(3, require=("numa",))) == "free_numa"
    assert seat(left, ask(3, require=("switch",))) in ("free_links", "topology")
    assert len(seated(left, ask(3, prefer=("numa",))).gpus) == 3
    assert seated(left, ask(2, require=("numa",))).numa_nodes == 1


@pytest.mark.parametrize("name", [name for name in PROFILES if descriptions()[name].nic_levels])
def test_network_devices_are_found_by_level(name: str) -> None:
    """Each GPU uses one of its nearest devices, whatever its position in the list."""
    inside = descriptions()[name]
    found = seated(empty(machine(inside=inside)), ask(inside.gpus))
    part = part_of("n1", empty(machine(inside=inside)), ask(inside.gpus), found)
    assert part.nics == tuple(inside.nics[at] for at in found.nics)
    for gpu, nic in zip(found.gpus, found.nics, strict=True):
        levels = inside.nic_levels[gpu]
        assert PCIE_LEVELS.index(levels[nic]) == min(map(PCIE_LEVELS.index, levels))


def test_a_share_goes_to_the_fullest_gpu_that_has_room() -> None:
    """Or to one that has just so much left; where that has not the memory, to another."""
    left = empty(machine(gpus=3, gpu_memory_mib=40000))
    assert take(left, share(500)).gpus == ("n1-g0",)
    assert take(left, share(600)).gpus == ("n1-g1",)
    assert seated(left, share(300)).gpus == (1,)
    assert seated(left, share(300), rest=500).gpus == (0,)
    assert seated(left, share(300), rest=1000).gpus == (2,)
    # 500 are left of the first, but 20000 MiB alone.
    assert seated(left, share(300, gpu_memory_mib=30000), rest=500).gpus == (2,)
    left.free = 0
    assert seat(left, share(300, gpu_memory_mib=30000)) == "free_gpu_memory"
    assert seat(left, share(600)) == "free_gpus"


def test_a_cap_is_no_more_than_any_of_its_gpus_has() -> None:
    """Parts on GPUs of different sizes: one cap for all, so that none is promised what it has not."""
    node = machine(gpus=2, gpu_memory_mib=40000)
    node = msgspec.structs.replace(node, gpus=(node.gpus[0], msgspec.structs.replace(node.gpus[1], memory_mib=80000)))
    left, two = empty(node), unit_requests(Request(gpu_milli=1000, gpu_parts=2))[0]
    for _ in range(2):
        assert take(left, two).gpu_memory_mib == 20000
    assert left.caps == [0, 40000] and seat(left, two) == "free_gpus"


def test_replica_size_follows_the_partition_of_its_node() -> None:
    """The pool's charge for a replica does not change its size."""
    node = machine(gpus=1, labels={REPLICAS_LABEL: "4", SHARING_LABEL: "time-slicing"})
    left, replica = empty(node), unit_requests(Request(gpu_milli=500, gpu_parts=1, replicas=True))[0]
    parts = [take(left, replica) for _ in range(4)]
    assert [(part.gpu_milli, part.gpu_memory_mib) for part in parts] == [(250, 0)] * 4
    assert seat(left, replica) == "free_gpus"


def test_nothing_shares_a_node_with_an_exclusive_job() -> None:
    """It needs an empty node and takes all CPUs and memory; a job that requests neither does not share the node."""
    tiny, mine = ask(1), ask(1, exclusive=True)
    left = empty(machine(gpus=4))
    part = take(left, tiny)
    assert seat(left, mine) == "not_empty"
    left.give(part)
    part = take(left, mine)
    assert (part.cpu_milli, part.memory_mib, len(part.gpus)) == (64_000, 512 * 1024, 1)
    assert seat(left, tiny) == seat(left, mine) == "free_cpu"
    left.give(part)
    left.take(part_of("n1", left, share(500), seated(left, share(500))))
    assert seat(left, mine) == "not_empty"


def test_faults_that_leave_too_few_gpus_are_named_first() -> None:
    """A permanent cause is reported before a transient one."""
    left = empty(machine(gpus=4))
    left.fault("n1-g1")
    assert seated(left, ask(3)).gpus == (0, 2, 3)
    assert seat(left, ask(4)) == never(left, ask(4)) == "gpu_faulted"
    take(left, ask(2))
    assert (seat(left, ask(2)), never(left, ask(2))) == ("free_gpus", "")


def test_the_nodes_own_rack_answers_a_selector() -> None:
    """Though nodes of all racks are of one build."""
    wanted = ask(1, selector=("fairlead/rack in (r2,r3)",))
    r1, r2 = (empty(machine(labels={"fairlead/rack": rack})) for rack in ("r1", "r2"))
    assert r1.build is r2.build
    assert (seat(r1, wanted), never(r1, wanted)) == ("selector", "selector")
    assert isinstance(seat(r2, wanted), NodeAllocation) and never(r2, wanted) == ""


def test_several_tasks_each_as_required() -> None:
    """Two tasks of four GPUs, each on one NUMA node, share a node of two NUMA nodes; three do not."""
    task = ask(4, cpu_milli=8000, require=("numa",))
    left = empty(machine(inside=GEFORCE, cpu=224))
    found = seat_several(left, task, 2)
    assert isinstance(found, NodeAllocation)
    assert (found.gpus, found.cpus.bit_count(), found.numa_nodes) == (tuple(range(8)), 16, 2)
    assert (found.cpus & LOW).bit_count() == (found.cpus & HIGH).bit_count() == 8
    assert isinstance(seat_several(left, task, 3), str)
    take(left, ask(1))
    assert seat_several(left, task, 2) == "free_gpus"


@given(insides, st.lists(requests(), max_size=5), requests(), st.sets(st.integers(0, 7), max_size=1))
def test_causes_of_a_row_equal_those_of_a_node(inside, held, wanted, faults) -> None:  # type: ignore[no-untyped-def] -- hypothesis
    """For a row at once and for one node; and every cause has a sentence."""
    left = empty(machine(inside=inside))
    for at in faults:
        left.fault(f"n1-g{at}")
    for request in held:
        one = unit_requests(request)[0]
        if isinstance(seat(left, one), NodeAllocation):
            take(left, one)
    one = unit_requests(wanted)[0]
    found = seat(left, one)
    cause = "" if isinstance(found, NodeAllocation) else found
    assert cause in {"", *CAUSES}
    if not one.verdict(left.build).cause:
        told = gpus_short(left, one)
        assert not told or told == cause
