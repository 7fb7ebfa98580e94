"""Free capacity by the gateway equals the placer's own core: shares of GPUs, whole ones, CPUs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_gateway.routes.documents import node_document
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import NodeRow
from fairlead_gateway.why import free_resources
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import HealthSeen
from fairlead_schemas.wire.resources import Request
from tests.gateway.placer_views import cluster, views_of
from tests.kit.placer_world import PlacerWorld, inventory, request

SHARES = st.builds(
    Request,
    gpu_milli=st.sampled_from((100, 300, 500, 700)),
    gpu_parts=st.just(1),
    cpu_milli=st.just(1000),
    memory_mib=st.just(1024),
    gpu_memory_mib=st.sampled_from((0, 0, 10240, 20480)),
)
PAIRS = st.builds(Request, gpu_milli=st.sampled_from((600, 1000)), gpu_parts=st.just(2), cpu_milli=st.just(1000))
WHOLE = st.builds(request, st.integers(1, 2), cpu=st.sampled_from((1, 20)), nodes=st.integers(1, 2))
WANTED = st.one_of(SHARES, PAIRS, WHOLE)


def rooms(views: Views, wanted: Request) -> list[free_resources.NodeFreeResources]:
    return [free_resources.free_on_node(node, wanted, node.held) for node in views.nodes.rows.values()]


def placed(events: list[ev.Event]) -> bool:
    return any(isinstance(event, ev.JobPlaced) for event in events)


@settings(deadline=None)
@given(st.lists(WANTED, max_size=8), WANTED)
def test_capacity_by_the_views_equals_placement(before: list[Request], wanted: Request) -> None:
    """Any runs on two nodes of two GPUs: the placer places exactly the requests that fit by the views."""
    world = cluster(2, 2)
    for each in before:
        world.offer(each)
    expected = free_resources.fits(wanted, rooms(views_of(world), wanted))
    assert expected == placed(world.offer(wanted))


def gpus_free(world: PlacerWorld) -> int:
    views = views_of(world)
    return node_document(views, views.nodes.rows["n1"]).gpus_free


def test_shared_gpus_are_counted_once() -> None:
    """Three shares lie on one GPU of four: three GPUs are free. One that is faulted and shared is not counted twice, either."""
    world = cluster(1, 4)
    for _ in range(3):
        world.offer(Request(gpu_milli=300, gpu_parts=1))
    assert gpus_free(world) == world.core.state.nodes["n1"].gpus_free == 3
    (held,) = {uuid for part in views_of(world).nodes.rows["n1"].held.values() for uuid in part.gpus}
    world.report("n1", HealthSeen(n=0, gpu=held, code="xid79"))
    views = views_of(world)
    assert world.core.state.nodes["n1"].gpus_free == 3
    assert node_document(views, views.nodes.rows["n1"]).gpu_states == {"held": 1, "closed": 3}, (
        "the fault taints the node"
    )


def test_a_gpu_that_is_gone_takes_nothing_from_those_that_are_there() -> None:
    """A run may still hold it."""
    held = {"1.1": ev.Part(node="n1", gpus=("gone", "n1-g0"))}
    row = NodeRow("n1", inventory("n1", 4), "boot", "i1", held=held)
    assert node_document(Views(), row).gpus_free == 3
