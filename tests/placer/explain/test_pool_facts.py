"""Facts about a pool, against what the placer would do, and by hand."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.pool_facts import ONE_GPU, POOL_LEVEL, pool_facts
from fairlead_placer.cluster.state import NOTHING_YET
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.packing.policy import Arrivals
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.queries.cluster_map import DomainCapacity, OneNode, PoolPacking
from fairlead_schemas.units.taints import tolerates
from fairlead_schemas.wire.resources import Gpu, MigInstance, Request
from tests.placer.cluster.capacity.ground import Ground, grounds, machine

RACK = "fairlead/rack"


def told(ground: Ground, work: Arrivals[Request] = NOTHING_YET) -> PoolPacking:
    """Of the default pool."""
    return pool_facts("default", ground.state.pools.of(Request()), work)


def gang(domain: str, nodes: int, gpus: int) -> DomainCapacity:
    """Nodes of one domain, each with so many free GPUs or more."""
    return DomainCapacity(domain=domain, nodes=nodes, gpus_per_node=gpus)


def racks(*held: int, gpus: int = 8) -> Ground:
    """Nodes n0, n1 … of 8 GPUs, two in each rack, of which so many are held."""
    ground = Ground()
    for at, count in enumerate(held):
        ground.join(machine(f"n{at}", gpus, labels={RACK: f"r{at // 2}"}))
        if count:
            assert ground.place(Request(gpu_milli=count * 1000, cpu_milli=1000, selector=(f"{RACK}=r{at // 2}",)))
    return ground


def test_an_empty_pool() -> None:
    """Nothing of anything."""
    ground = Ground()
    assert told(ground) == PoolPacking(pool="default", policy=DEFAULT, largest_gangs={POOL_LEVEL: ()})


def test_the_largest_gangs_by_level() -> None:
    """Whole nodes first; then those with fewer GPUs, where they are more."""
    ground = Ground()
    for name, rack, gpus in (
        ("a", "r1", 8),
        ("b", "r1", 8),
        ("c", "r2", 8),
        ("d", "r2", 4),
        ("e", "r2", 4),
        ("f", "", 16),
    ):
        ground.join(machine(name, gpus, labels={RACK: rack} if rack else {}))
    found = told(ground)
    assert found.largest_on_one_node == OneNode(node="f", gpus=16)
    assert found.largest_gangs == {
        "rack": (gang("f", 1, 16), gang("r1", 2, 8), gang("r2", 3, 4)),
        POOL_LEVEL: (gang("default", 1, 16), gang("default", 4, 8), gang("default", 6, 4)),
    }
    assert (found.nodes, found.gpus, found.gpu_milli_free) == (6, 48, 48_000)


def test_nodes_that_are_reserved_or_exclusive_are_counted_apart() -> None:
    """Free capacity there is reported separately; taints exclude jobs without the toleration; time-sliced GPUs are not
    whole GPUs."""
    ground = Ground()
    ground.join(machine("a", 4), quarantined=True)
    ground.join(machine("b", 4), keeper="7")
    ground.join(machine("c", 2, taints=("team=x:NoSchedule",)))
    ground.join(machine("d", 2, labels={SHARING_LABEL: "mps", REPLICAS_LABEL: "4"}))
    ground.join(machine("e", 1))
    found = told(ground)
    assert (found.gpus, found.gpu_milli_free, found.gpu_milli_aside) == (13, 3_000, 10_000)
    assert (found.largest_on_one_node, found.largest_gangs) == (
        OneNode(node="e", gpus=1),
        {POOL_LEVEL: (gang("default", 1, 1),)},
    )


def test_absent_nodes_are_not_counted() -> None:
    """Closed nodes are left out: their GPUs are not free, not in the largest gangs, and not counted as stranded."""
    ground, arrivals = racks(0, 3, gpus=4), Arrivals[Request]()
    arrivals.observe(Request(gpu_milli=2000))
    index = ground.state.pools.of(Request())
    assert pool_facts("default", index, arrivals).gpu_milli_unusable == 1_000
    found = pool_facts("default", index, arrivals, away={"n0", "unknown"})
    assert (found.gpu_milli_free, found.gpu_milli_aside, found.gpu_milli_unusable) == (4_000, 1_000, 0)
    assert (found.largest_on_one_node, found.largest_gangs[POOL_LEVEL]) == (
        OneNode(node="n1", gpus=4),
        (gang("default", 1, 4),),
    )


def test_capacity_that_typical_work_cannot_use() -> None:
    """Two nodes with 3 of 4 GPUs held: none of it serves jobs of two, all of it those of one; nothing is known at
    first."""
    ground = racks(3, 3, gpus=4)
    assert (told(ground).gpu_milli_free, told(ground).gpu_milli_unusable) == (2_000, 0)
    work: Arrivals[Request] = Arrivals()
    work.observe(Request(gpu_milli=2000))
    assert told(ground, work).gpu_milli_unusable == 2_000
    for _ in range(3):
        work.observe(Request(gpu_milli=1000))
    assert (told(ground, work).gpu_milli_unusable, told(ground, work).requests_seen) == (500, 4)


def test_instances_that_are_asked_for_as_gpus_count_as_such() -> None:
    """A node under the single strategy has as many as it has instances."""
    cut = tuple(MigInstance(uuid=f"M{at}", profile="1g.10gb") for at in range(7))
    gpu = Gpu(uuid="G", index=0, model="A100", memory_mib=81920, compute_capability=80, mig=True, instances=cut)
    found = msgspec.structs.replace(
        machine("a", 0, labels={"nvidia.com/mig.strategy": "single"}),
        gpus=(gpu,),
    )
    ground = Ground()
    ground.join(found)
    has = told(ground)
    assert (has.gpus, has.gpu_milli_free, has.largest_on_one_node) == (7, 7_000, OneNode(node="a", gpus=7))
    assert isinstance(find(ground.state, Request(gpu_milli=7000)), NodeSelection)


def jobs(level: str) -> Iterator[tuple[int, int, Request]]:
    """(nodes, GPUs on each, the job) of every size that a small pool may have room for."""
    require = () if level == POOL_LEVEL else (level,)
    for nodes in range(1, 6):
        for gpus in (*range(1, 9), 16):
            yield nodes, gpus, msgspec.structs.replace(ONE_GPU, nodes=nodes, gpu_milli=gpus * 1000, require=require)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(grounds())
def test_a_job_can_start_exactly_where_the_facts_report_it(ground: Ground) -> None:
    """The placer finds a place for exactly the gangs that are reported, at every level; free GPUs equal those of the
    nodes."""
    found = told(ground)
    for level, gangs in found.largest_gangs.items():
        assert [*gangs] == sorted(gangs, key=lambda gang: (-gang.gpus_per_node, gang.nodes)), "GPUs fall, nodes rise"
        for nodes, gpus, job in jobs(level):
            could = any(gang.nodes >= nodes and gang.gpus_per_node >= gpus for gang in gangs)
            assert isinstance(find(ground.state, job), NodeSelection) == could, (level, nodes, gpus)
    nodes = ground.state.nodes.values()
    assert found.gpus == sum(len(node.left.uuids) for node in nodes)
    assert found.gpu_milli_free + found.gpu_milli_aside == sum(node.left.free_milli for node in nodes)
    single = (
        gpus
        for nodes, gpus, job in jobs(POOL_LEVEL)
        if nodes == 1 and isinstance(find(ground.state, job), NodeSelection)
    )
    most = max(single, default=0)
    assert (found.largest_on_one_node.gpus if found.largest_on_one_node else 0) == most


def naive_unusable(ground: Ground, work: list[Request]) -> int:
    """By the definition: of a node that has no room for a request all that is free, else the GPUs with too little left;
    the mean over the work."""
    total = 0
    for request in work:
        ask = unit_requests(request)[0]
        for node in ground.state.nodes.values():
            if not node.open or node.keeper or not tolerates(node.taints, ()):
                continue
            rests = [node.left.rest(at) for at in range(len(node.left.uuids)) if node.left.rest(at)]
            enough = [rest for rest in rests if rest >= ask.milli]
            total += sum(rests) - (sum(enough) if len(enough) >= ask.gpus else 0)
    return total // len(work)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(grounds(), st.lists(st.sampled_from([1000, 1000, 2000, 3000, 8000, 250, 500]), min_size=1, max_size=6))
def test_fragmentation_is_what_its_definition_says(ground: Ground, sizes: list[int]) -> None:
    """Every node and every request asked, where CPU and memory do not matter; nodes with taints that bar work are aside."""
    work = [Request(gpu_milli=size, gpu_parts=int(size < 1000)) for size in sizes]
    arrivals: Arrivals[Request] = Arrivals()
    for request in work:
        arrivals.observe(request)
    found = told(ground, arrivals).gpu_milli_unusable
    assert found == naive_unusable(ground, work)
    assert found <= told(ground).gpu_milli_free
