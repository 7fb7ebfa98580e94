"""Best fit: which nodes and GPUs a request gets. Vectors of (free per node, request, nodes chosen)."""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.scheduling.allocate import master_port
from fairlead_placer.scheduling.node_selection import find
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.placer_world import PlacerWorld, cluster, inventory, names, placed, request


def chosen(world: PlacerWorld, wanted: Request) -> list[str] | None:
    found = find(world.core.state, wanted)
    return None if isinstance(found, Shortfall) else [node.name for node in found.nodes]


def gpus_for(world: PlacerWorld, wanted: Request) -> tuple[str, ...]:
    found = find(world.core.state, wanted)
    assert not isinstance(found, Shortfall)
    return found.parts[0].gpus


def with_free(**free: int) -> PlacerWorld:
    """Nodes of 8 GPUs with so many free: each is filled by one job of the rest."""
    world = PlacerWorld()
    for name, count in free.items():
        world.join(name, 8, labels={"name": name})
        if count < 8:
            world.offer(request(8 - count, selector=(f"name={name}",)))
    return world


@pytest.mark.parametrize(
    ("free", "gpus", "nodes", "expected"),
    [
        ({"a": 8, "b": 3, "c": 1}, 1, 1, ["c"]),  # fewest GPUs left
        ({"a": 8, "b": 3, "c": 1}, 2, 1, ["b"]),
        ({"a": 8, "b": 3, "c": 1}, 4, 1, ["a"]),
        ({"a": 8, "b": 3, "c": 1}, 8, 1, ["a"]),
        ({"b": 4, "a": 4}, 4, 1, ["a"]),  # equal: by name
        ({"a": 7, "b": 3, "c": 1}, 8, 1, None),
        ({"a": 8, "b": 8, "c": 4}, 4, 2, ["a", "c"]),  # a gang fills what is open first
        ({"a": 8, "b": 8, "c": 4}, 8, 2, ["a", "b"]),
        ({"a": 8, "b": 8, "c": 4}, 8, 3, None),  # all or nothing
        ({"a": 8}, 4, 2, None),  # never a node twice
    ],
)
def test_best_fit_by_gpus(free: dict[str, int], gpus: int, nodes: int, expected: list[str] | None) -> None:
    """The node with the fewest GPUs left after the placement gets it."""
    assert chosen(with_free(**free), request(gpus, nodes=nodes)) == expected


def test_equal_gpus_left_goes_to_the_least_cpu_left() -> None:
    """CPU left breaks the tie before the name does."""
    world = PlacerWorld()
    world.join("a", 4, cpu=64)
    world.join("b", 4, cpu=16)
    assert chosen(world, request(1, cpu=8)) == ["b"]
    assert chosen(world, request(1, cpu=32)) == ["a"]


def test_memory_that_does_not_fit_passes_the_node_over() -> None:
    """A better fit by GPUs is of no use without memory."""
    world = PlacerWorld()
    world.join("a", 1, memory_gib=4)
    world.join("b", 8, memory_gib=64)
    assert chosen(world, request(1, memory_gib=16)) == ["b"]


def test_cpu_only_jobs_prefer_nodes_without_gpus() -> None:
    """Then nodes whose GPUs are all taken, then those with the fewest free."""
    world = with_free(a=8, b=0)
    assert chosen(world, request(0)) == ["b"]
    world.join("z", 0)
    assert chosen(world, request(0)) == ["z"]


def test_a_selector_names_its_nodes() -> None:
    """All labels must be there, with their values."""
    world = PlacerWorld()
    world.join("a", labels={"pool": "x", "disk": "nvme"})
    world.join("b", labels={"pool": "y", "disk": "nvme"})
    assert chosen(world, request(1, selector=("disk=nvme", "pool=y"))) == ["b"]
    assert chosen(world, request(1, selector=("pool=z",))) is None


@pytest.mark.parametrize("count", [3, 80])
def test_constraints_choose_alike_among_few_and_many(count: int) -> None:
    """A selector that all nodes suit chooses as no selector does."""
    world = PlacerWorld()
    for i in range(count):
        world.join(f"n{i:02}", 1 + i % 8, labels={"pool": "x"})
    wanted = request(1, selector=("pool=x",))
    assert chosen(world, wanted) == chosen(world, request(1))


def test_gpu_memory_and_capability_are_least_amounts() -> None:
    """A larger or newer GPU will do, a smaller or older one will not."""
    world = PlacerWorld()
    world.join("old", 8, gpu_memory_mib=16384, capability=70)
    world.join("new", 8, gpu_memory_mib=81920, capability=90)
    assert chosen(world, request(1, gpu_memory_mib=40960)) == ["new"]
    assert chosen(world, request(1, compute_capability=80)) == ["new"]
    assert chosen(world, request(1, gpu_memory_mib=16384, compute_capability=70)) == ["new"]  # by name
    assert chosen(world, request(1, compute_capability=100)) is None


def test_on_a_mixed_node_only_suitable_gpus_are_given() -> None:
    """Of a node's different GPUs the request gets those that satisfy it, and no more than there are."""
    gpus = tuple(Gpu(uuid=f"g{i}", index=i, model="M", memory_mib=size) for i, size in enumerate([16, 80, 16, 80]))
    world = PlacerWorld()
    world.join("a", 0)
    report = world.first_batch("a", 0).reports[0]
    changed = Inventory(gpus=gpus, cpu_milli=64000, memory_mib=2**20)
    world.report("a", msgspec.structs.replace(report, n=0, inventory=changed))
    assert gpus_for(world, request(2, gpu_memory_mib=80)) == ("g1", "g3")
    assert chosen(world, request(3, gpu_memory_mib=80)) is None
    assert placed(world.offer(request(1, gpu_memory_mib=80))) == {"1": ["a"]}
    assert chosen(world, request(2, gpu_memory_mib=80)) is None
    assert gpus_for(world, request(3)) == ("g0", "g2", "g3")


def test_gpus_are_given_in_the_nodes_order() -> None:
    """The first free ones, so that the same history gives the same devices."""
    world = cluster(1)
    world.offer(request(2))
    world.offer(request(1))
    world.exit("n1", "1")
    [event] = world.offer(request(3))
    assert isinstance(event, ev.JobPlaced)
    assert event.parts[0].gpus == ("n1-g0", "n1-g1", "n1-g3")


def test_the_score_says_what_is_left() -> None:
    """Whole numbers of the choice: GPUs and CPU left on the chosen nodes."""
    world = cluster(1)
    [event] = world.offer(request(3, cpu=4))
    assert isinstance(event, ev.JobPlaced)
    assert (event.score["gpus_left"], event.score["cpu_left_milli"]) == (5, 60_000)


def test_the_choice_does_not_depend_on_history() -> None:
    """Two clusters with the same things running choose alike, however they came there."""
    one, two = cluster(4), cluster(4)
    two.offer(request(8))
    two.offer(request(1))
    two.exit("n1", "1")
    two.exit("n2", "2")
    two.join("n0")
    two.silent("n0")
    assert chosen(one, request(1, nodes=3)) == chosen(two, request(1, nodes=3))


def test_gangs_take_their_nodes_at_once_or_not_at_all() -> None:
    """A gang that lacks one node holds nothing while it waits."""
    world = cluster(1)
    [refused] = world.offer(request(8, nodes=2))
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.fitting, refused.reasons) == (1, {})
    assert world.core.state.nodes["n1"].gpus_free == 8
    assert names(world.join("n2")) == ["NodeJoined", "JobPlaced"]


def test_ports_are_spread_over_their_range() -> None:
    """20000 to 29999, from the job's id and attempt alone."""
    ports = {master_port(str(job), attempt) for job in range(500) for attempt in (1, 2)}
    assert all(20000 <= port <= 29999 for port in ports)
    assert len(ports) > 900


def test_inventory_builder_gives_what_its_name_says() -> None:
    """The world's own builder: as many GPUs as asked for, named by node."""
    assert [gpu.uuid for gpu in inventory("n1", 2).gpus] == ["n1-g0", "n1-g1"]


def test_nodes_that_join_and_change_are_matched_too() -> None:
    """The cache of a constraint's nodes follows joins and inventories, and drops speculative results."""
    world = PlacerWorld()
    wanted = request(1, selector=("pool=x",))
    world.join("a", labels={"pool": "x"})
    assert chosen(world, wanted) == ["a"]
    world.join("a", labels={"pool": "y"}, incarnation="second")
    assert chosen(world, wanted) is None
    world.incarnations["b"], world.numbers["b"] = "first", 0
    world.decide(Input("report", 1, world.first_batch("b", 8, labels={"pool": "x"})))
    assert chosen(world, wanted) is None
    world.join("b", labels={"pool": "x"})
    assert chosen(world, wanted) == ["b"]
