"""Jobs that do not go back to nodes on which they have failed."""

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import PlacerWorld, cluster, names, placed, request


def test_a_failed_job_does_not_go_back_and_waits_for_the_others() -> None:
    """The other node is busy: the retry waits, a job of its class that has not failed takes the room."""
    world = cluster(2)
    world.offer(request(8))
    world.offer(request(8))
    ended = world.exit("n1", "1", exit_code=1)
    assert names(ended) == ["RunEnded"]
    assert world.core.state.failed_on == {"1": (("n1", "exited 1"),)}
    requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    [refused] = world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"avoided": 1, "free_gpus": 1}
    assert placed(world.offer(request(8))) == {"3": ["n1"]}
    assert placed(world.exit("n2", "2")) == {"1": ["n2"]}
    world.exit("n2", "1", attempt=2)
    world.queue(ev.JobSucceeded(cause="clock", job="1"))
    assert world.core.state.failed_on == {}


def test_with_nowhere_else_to_go_a_job_goes_back() -> None:
    """One node, or all others drained: a retry there is better than none."""
    world = cluster(1)
    world.offer(request(8))
    world.exit("n1", "1", exit_code=1)
    requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    assert placed(world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))) == {"1": ["n1"]}


@pytest.mark.parametrize(
    ("wanted", "racks"),
    [
        (request(8, nodes=2, require=("rack",)), ("r1", "r1", "r2")),  # two others are left, and in one rack none
        (request(3, nodes=5, tasks=True), ("r1", "r1", "r1")),  # two tasks to a node
        (request(8, also=(request(2), request(2))), ("r1", "r1", "r1")),  # a node for each kind
    ],
    ids=["rack", "tasks", "kinds"],
)
def test_other_nodes_serve_only_if_all_units_of_the_job_fit(wanted: Request, racks: tuple[str, ...]) -> None:
    """Otherwise the job would wait indefinitely for nodes that never hold all of it."""
    world = PlacerWorld()
    for name, rack in zip(("n1", "n2", "n3"), racks, strict=True):
        world.join(name, labels={"fairlead/rack": rack})
    [placement] = [event for event in world.offer(wanted) if isinstance(event, ev.JobPlaced)]
    for rank, part in enumerate(placement.parts):
        world.exit(part.node, "1", rank, exit_code=1 if rank == 0 else 0)
    again = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    events = world.queue(again, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))
    assert names(events) == ["JobPlaced"]


def test_a_run_says_where_its_job_has_failed_in_the_same_way() -> None:
    """By exit code or signal, of the rank that decided, and only while it was not stopped: then no node, and none of the
    others, has anything to do with it."""
    world = cluster(5)
    world.offer(request(8, nodes=1))
    found: list[tuple[str, ...]] = []
    for attempt, code in enumerate((1, 2, 1, 1, 143), 1):
        [run] = world.core.state.runs.values()
        if code == 143:
            world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=attempt, reason="cancelled"))
        [ended, *_] = world.exit(run.parts[0].node, "1", attempt=attempt, exit_code=code)
        assert isinstance(ended, ev.RunEnded)
        found.append(ended.alike)
        requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=attempt + 1)
        world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=attempt + 1, rank=1))
    assert found == [(), (), ("n1", "n3"), ("n1", "n3", "n4"), ()]


def test_of_a_gang_the_node_of_the_rank_that_failed_counts() -> None:
    """The others were stopped for it."""
    world = cluster(4)
    world.offer(request(8, nodes=2))
    world.exit("n2", "1", 1, exit_code=3)
    [ended, *_] = world.exit("n1", "1", 0, outcome="stopped", exit_code=143)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.rank, ended.alike) == (1, ())
    again = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    assert placed(world.queue(again, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))) == {"1": ["n1", "n3"]}
    world.exit("n3", "1", 1, attempt=2, exit_code=3)
    [ended, *_] = world.exit("n1", "1", 0, attempt=2, outcome="stopped", exit_code=143)
    assert isinstance(ended, ev.RunEnded)
    assert ended.alike == ("n2", "n3")
