"""The slow look at the order leaves alone what is right, and comes when it is needed."""

from unittest.mock import patch

import pytest

from fairlead_bus.core import Input
from fairlead_queue.decide import offers
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, Preemption, QueueEntry, QueueSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import JobDeferred, JobUnplaceable, PreemptionDeclined, PreemptionRequested
from tests.kit.queue_world import SECOND, QueueWorld, kinds


def world(sequencer: str = "drf", **queue: object) -> QueueWorld:
    """Queues a and b on one node of 8 GPUs."""
    found = QueueWorld()
    found.node()
    settings = QueueSettings(**queue)  # type: ignore[arg-type] -- the settings' own fields
    found.apply(
        pools=(PoolEntry(pool="default", settings=PoolSettings(sequencer=sequencer)),),
        queues=tuple(QueueEntry(path=path, settings=settings) for path in ("a", "b")),
    )
    return found


def woken(world: QueueWorld, until_s: float) -> list[str]:
    """Return the decisions while time passes and the core is called only at its wake times."""
    until, decided = world.now + int(until_s * SECOND), list[object]()
    for _ in range(100):
        decided += world.settle()
        at_ns = world.core.wake_at()
        if at_ns is None or at_ns > until:
            return kinds([event for event in decided if not isinstance(event, JobDeferred | JobUnplaceable)])
        world.now = max(world.now, at_ns)
    raise AssertionError("it wants to be asked again and again")


@pytest.mark.parametrize("sequencer", ["drf", "fifo", "lifo", "promised", "fairshare"])
def test_offers_in_order_stay_open_if_no_other_job_waits(sequencer: str) -> None:
    """At a review all of them still deserve an offer; nothing more is recorded after it."""
    here = world(sequencer)
    here.run(here.submit(8, queue="a"))
    waiting = [here.submit(gpus, queue=queue) for queue, gpus in (("b", 4), ("a", 8), ("b", 8), ("a", 4))]
    here.refuse(waiting[0], waiting[1])
    assert "OfferWithdrawn" not in woken(here, 250)
    assert sorted(here.offered()) == sorted(waiting)
    assert woken(here, 30) == []


def test_a_class_at_its_bound_takes_no_turn_from_others() -> None:
    """Sixteen of a parked class are open and more of it wait; offers of other classes without waiting jobs stay."""
    here = world()
    here.run(here.submit(8, queue="a"))
    here.refuse(here.submit(8, queue="a"))
    for _ in range(20):
        here.submit(8, queue="a")
    others = [here.submit(gpus, queue="a") for gpus in (2, 4, 6)]
    here.refuse(*others)
    assert woken(here, 100) == []
    assert {here.of(other) for other in others} == {"offered"}


def test_a_job_refused_between_two_reviews_is_helped_at_the_next() -> None:
    """An offer that is too recent at one review is considered later although nothing else happens."""
    here = world(preemption=Preemption(protect_ns=0))
    here.now += SECOND // 10
    running = here.submit(8, queue="a", slice_ns=SECOND)
    here.run(running)
    here.now += 10 * SECOND
    waiting = here.submit(8, queue="b")
    here.refuse(waiting)
    assert woken(here, 5) == ["PreemptionRequested"]


def test_one_order_holds_over_queues_with_a_skipped_class() -> None:
    """First come, first served over both queues: a job behind a class at its bound does not take its place."""
    here = world("fifo")
    here.run(here.submit(8, queue="a"))
    here.refuse(here.submit(8, queue="a"))
    for _ in range(20):
        here.submit(8, queue="a")
    here.ask(here.submission(2, queue="b"), here.submission(2, queue="a"))
    offered = [here.state.jobs[job] for job in here.offered()[-2:]]
    assert [job.lane.leaf.queue.path for job in offered] == ["b", "a"]


def test_victims_of_one_node_are_nominated_if_the_cheapest_make_no_room() -> None:
    """Eight small runs hold enough together, but on two nodes; the large one costs more, and makes room."""
    here = world(guaranteed={"gpu": 8000})
    here.node("n2")
    large = here.submit(8, queue="b")
    here.run(large)
    here.now += 600 * SECOND
    here.run(*[here.submit(1, queue="b") for _ in range(8)])
    here.now += 600 * SECOND
    waiting = here.submit(8, queue="a")
    here.refuse(waiting)
    first = [event for event in here.pass_time(2) if isinstance(event, PreemptionRequested)]
    assert len(first[0].victims) == 8
    here.says(PreemptionDeclined(cause="1.0", job=waiting, attempt=1))
    again = [event for event in here.pass_time(10) if isinstance(event, PreemptionRequested)]
    assert [victim.job for victim in again[0].victims] == [large]


# ---------------------------------------------------------------------------------------- a settled order


def turns_run(world: QueueWorld, seconds: float) -> int:
    """Return how many times reviews have run the turns of all offers again while time passes in steps of 250 ms. The world
    compares every decision with that of a core that knows of no earlier review."""
    with patch.object(offers, "reorder", side_effect=offers.reorder) as reorder:
        for _ in range(int(seconds * 4)):
            world.pass_time(0.25)
        return sum(1 for call in reorder.call_args_list if call.args[0].state is world.state)


def test_a_review_after_which_nothing_came_is_not_repeated() -> None:
    """Events that change no turn leave the order settled; a run's end does not."""
    here = world()
    running = here.submit(8, queue="a")
    here.run(running)
    for queue in ("b", "a", "b"):
        here.submit(4, queue=queue)
    assert turns_run(here, 1) >= 1
    here.says(ev.CheckpointSaved(cause="1.0", job=running, attempt=1))
    assert turns_run(here, 2) == 0
    here.says(ev.JobUnplaceable(cause="1.0", job="2", attempt=1, reasons={}, nodes=1))  # a class of few offers
    assert turns_run(here, 2) == 0
    here.end(running)
    assert turns_run(here, 1) >= 1


def test_help_for_the_first_in_order_leaves_the_others_in_order() -> None:
    """Places are kept for the first, which has no turn from then on; and it may be placed: its charge stays."""
    here = QueueWorld()
    here.pool(patience_ns=3 * SECOND)
    here.node(gpus=8)
    here.tree(a={}, b={})
    running = here.submit(8, queue="a")
    here.run(running)
    first = here.submit(4, queue="b")
    for queue in ("a", "b", "b"):
        here.submit(2, queue=queue)
    assert turns_run(here, 2) >= 1
    assert turns_run(here, 4) == 0
    assert [each.job for each in here.said(ev.ReservationRequested)] == [first]
    here.place(first)
    assert turns_run(here, 2) == 0


def test_a_refused_class_of_many_offers_is_reviewed() -> None:
    """The placer looks ahead over few offers of a class that it has refused: the others are withdrawn."""
    here = world()
    here.run(here.submit(8, queue="a"))
    many = [here.submit(1, queue="a") for _ in range(17)]
    turns_run(here, 1)
    here.refuse(many[0])
    assert turns_run(here, 1) >= 1
    assert here.state.jobs[many[16]].withdrawal == "order"


def test_a_decision_that_is_never_committed_settles_nothing() -> None:
    """Its offers are not in the log, so the next decision makes them."""
    here = world()
    here.run(here.submit(8, queue="a"))
    here.submit(4, queue="b")
    here.pass_time(1)
    urgent = here.submission(4, queue="b", priority=90)
    here.now += SECOND
    lost = here.core.decide([Input("CMD", 99, [urgent])], here.now)
    assert kinds(lost.events) == ["JobSubmitted", "JobOffered"]
    job = here.submit(4, queue="b", priority=90)
    assert here.of(job) == "offered"


def test_a_job_of_a_class_with_many_offers_finds_its_place_after_a_settled_review() -> None:
    """No turn was taken for it when it was accepted: the next review gives it one, and withdraws the last of the others."""
    here = world()
    here.run(here.submit(8, queue="a"))
    many = [here.submit(1, queue="a") for _ in range(17)]
    here.refuse(many[0])
    here.pass_time(1)
    first = here.submit(1, queue="b")
    here.pass_time(1)
    assert here.state.jobs[many[15]].withdrawal == "order"
    here.give_back(many[15])
    here.settle()
    assert here.of(first) == "offered"


def test_an_offer_of_a_job_with_a_claim_frees_what_it_claimed() -> None:
    """The order is not settled by the review that offers it: jobs that its claim held back have their turn next."""
    here = QueueWorld()
    here.pool(patience_ns=3 * SECOND)
    here.node(gpus=8)
    here.tree(q={"maximum": {"gpu": 4_000}}, other={})
    running = here.submit(4, queue="q")
    here.run(running)
    here.submit(8, queue="other")
    claimant = here.submit(3, queue="q")
    here.pass_time(4)
    small = here.submit(1, queue="q", user="bob")
    assert (claimant, "q") in [(each.job, each.queue) for each in here.said(ev.ReservationRequested)]
    here.end(running)
    here.pass_time(1)
    assert (here.of(claimant), here.of(small)) == ("offered", "offered")
