"""An offer that is open already gets another rank; one that comes too late opens nothing."""

from fairlead_placer.core import PlacerCore
from fairlead_schemas.wire import events as ev
from tests.kit.placer_world import PlacerWorld, cluster, names, placed, request


def again(job: str, rank: int, attempt: int = 1) -> ev.JobOffered:
    """The offer of an attempt, once more."""
    return ev.JobOffered(cause="clock", job=job, attempt=attempt, rank=rank)


def test_an_open_offer_gets_another_rank() -> None:
    """The order of what waits is the newest one; the offer is still the one that was made first."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    world.offer(request(1))
    offered = world.core.state.offers["3"]
    assert world.queue(again("3", 1)) == []
    assert world.core.state.offers["3"] == offered._replace(rank=1)
    [_, event] = world.exit("n1", "1")
    assert isinstance(event, ev.JobPlaced)
    assert (event.job, event.cause) == ("3", offered.cause)
    assert placed(world.exit("n1", "3")) == {"2": ["n1"]}


def test_a_new_rank_is_no_news_of_a_parked_class() -> None:
    """The cause of the class is not reported again, also for its only offer, and no placement is tried."""
    world = cluster(1, 1)
    [refused] = world.offer(request(2))
    assert isinstance(refused, ev.JobUnplaceable)
    group = world.core.state.classes[request(2)]
    failed_at = group.failed_at
    assert world.queue(again("1", 7)) == []
    assert world.core.state.classes[request(2)] is group
    assert (group.offers, group.failed_at) == ([(7, "1")], failed_at)
    state = world.core.state
    assert not state.pools.gained_since(group.request, state.work_of(group.request), failed_at)


def test_a_late_offer_of_a_placed_attempt_opens_nothing() -> None:
    """The queue gave another rank while the placement was under way: the attempt is placed once."""
    world = cluster(2, 1)
    world.offer(request(1))
    assert world.queue(again("1", 9)) == []
    assert world.core.state.offers == {}
    world.exit("n1", "1", clean=False)
    assert world.queue(again("1", 10)) == []


def test_a_late_offer_of_an_ended_attempt_opens_nothing() -> None:
    """A short run ends before the queue's commit is in the log: its end is remembered until the queue answers it."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.exit("n1", "1")
    assert world.core.state.runs == {}
    world.core = PlacerCore.restore(world.core.snapshot())
    assert world.queue(again("1", 9)) == []
    requeued = ev.JobRequeued(cause="clock", job="1", attempt=2, reason="retry")
    assert placed(world.queue(requeued, again("1", 11, attempt=2))) == {"1": ["n1"]}
    world.exit("n1", "1", attempt=2)
    world.queue(ev.JobSucceeded(cause="clock", job="1", attempt=2))
    assert world.core.state.unanswered == {}


def test_an_end_is_remembered_though_its_devices_come_free_later() -> None:
    """The queue answers the end before the release: nothing stays behind."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.exit("n1", "1", clean=False)
    world.queue(ev.JobFailed(cause="clock", job="1", reason="exit_code", attempt=1))
    world.clean("n1", "1")
    assert (world.core.state.unanswered, world.core.state.runs) == ({}, {})


def test_an_offer_that_came_back_may_be_made_again() -> None:
    """A held job keeps its attempt; released, it is offered and placed under it."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    withdrawn = world.queue(ev.OfferWithdrawn(cause="cmd:h", job="2", attempt=1, reason="hold"))
    assert names(withdrawn) == ["OfferReturned"]
    world.queue(again("2", 5))
    assert placed(world.exit("n1", "1")) == {"2": ["n1"]}


def test_another_rank_that_is_only_tried_is_taken_back() -> None:
    """The inverse of a new rank is the old one."""
    world = PlacerWorld()
    world.offer(request(1))
    state = world.core.state
    before = world.core.snapshot()
    state.journal = []
    state.rerank("1", 99)
    assert state.offers["1"].rank == 99
    state.rollback()
    assert world.core.snapshot() == before
    assert state.classes[request(1)].offers == [(1, "1")]


def test_a_moved_job_runs_under_its_new_queue() -> None:
    """The order that its node gets names the queue that it is in now."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    world.queue(ev.JobMoved(cause="cmd:m", job="2", queue="research/vision"))
    world.exit("n1", "1")
    assert world.orders("n1")["2.1"].queue == "research/vision"
