"""By which rules runs may be asked to yield, and to whom."""

from typing import Any

import pytest

from fairlead_schemas.queuefile.settings import Ageing, Preemption
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, kinds
from tests.queue.yielding import SOON, pleas, refused, running, world_of

# ---------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("own", "other", "asked"),
    [({}, {}, ["lower_priority"]), ({"lower_priority": False}, {}, []), ({}, {"priority": 50}, [])],
)
def test_a_job_of_higher_priority_may_displace_one_of_its_queue(own: Any, other: Any, asked: list[str]) -> None:
    """Unless its queue says otherwise; equals do not."""
    world = world_of(q={"preemption": Preemption(protect_ns=0, **own)})
    run = running(world, 8, "q", **({"priority": 40} | other))
    job = refused(world, 4, "q", priority=50)
    world.pass_time()
    assert pleas(world) == [(job, [(run, rule)]) for rule in asked]


def test_ageing_gives_no_right_to_preempt() -> None:
    """Otherwise two equal jobs would preempt each other indefinitely."""
    world = world_of(q={}, pool={"ageing": Ageing(every_ns=SECOND, most=10)})
    world.quota("closed", 0)
    run = running(world, 8, "q")
    blocked = world.submit(8, queue="closed")
    world.pass_time(100)
    assert world.state.jobs[blocked].aged == 10
    job = refused(world, 8, "q")
    world.pass_time(100)
    assert (pleas(world), world.of(run), world.of(job)) == ([], "running", "offered")


def test_a_queue_takes_back_what_it_is_guaranteed() -> None:
    """From those who use more than their own guarantee; of no other queue below it, and not for more than it is owed."""
    world = world_of(
        a={"guaranteed": {"gpu": 4_000}}, b={"guaranteed": {"gpu": 2_000}}, c={"guaranteed": {"gpu": 2_000}}
    )
    within = running(world, 2, "c")
    over = [running(world, 2, "b") for _ in range(3)]
    job = refused(world, 4, "a")
    world.pass_time()
    assert pleas(world) == [(job, [(run, "over_guarantee") for run in reversed(over[1:])])]
    assert within not in str(pleas(world))
    world.decline(job)
    more = refused(world, 5, "a")
    world.pass_time(60)
    assert more not in [asked for asked, _ in pleas(world)]


@pytest.mark.parametrize(
    ("reclaim", "priority", "asked"),
    [("any", 10, True), ("lower_priority", 60, True), ("lower_priority", 50, False), ("never", 90, False)],
)
def test_a_queue_sets_which_runs_it_preempts_for_its_guarantee(reclaim: Any, priority: int, asked: bool) -> None:
    """Any, those of lower priority, or none."""
    world = world_of(a={"guaranteed": {"gpu": 4_000}, "preemption": Preemption(protect_ns=0, reclaim=reclaim)}, b={})
    running(world, 8, "b")
    refused(world, 4, "a", priority=priority)
    world.pass_time()
    assert bool(pleas(world)) == asked


def test_open_offers_do_not_count_as_use_of_a_guarantee() -> None:
    """A queue that only waits does not use its guarantee, and waiting offers do not make it exceed its share."""
    world = world_of(a={"guaranteed": {"gpu": 4_000}}, b={"guaranteed": {"gpu": 8_000}})
    running(world, 8, "b")
    refused(world, 2, "b")
    jobs = [world.submit(2, queue="a") for _ in range(6)]
    world.refuse(jobs[0])
    world.pass_time()
    assert pleas(world) == []
    world.configure("b", guaranteed={"gpu": 0}, preemption=SOON)
    world.pass_time()
    assert [asked for asked, _ in pleas(world)] == jobs[:1]
    world.decline(jobs[0])
    world.pass_time(10)
    assert {asked for asked, _ in pleas(world)} <= set(jobs[:2])


def test_a_job_that_fits_a_guarantee_is_not_blocked_by_a_larger_one_ahead() -> None:
    """Two of eight are left: too few for the job of four, which would wait for its own queue's runs in any case, but
    enough for the small ones behind it."""
    world = world_of(gpus=16, a={"guaranteed": {"gpu": 8_000}}, b={})
    running(world, 6, "a")
    over = [running(world, 1, "b") for _ in range(10)]
    refused(world, 4, "a")
    small = [refused(world, 1, "a"), world.submit(1, queue="a"), world.submit(1, queue="a")]
    world.pass_time(2)
    for job in small[:2]:
        (asked, victims) = pleas(world)[-1]
        assert (asked, len(victims)) == (job, len(over))
        run = over.pop()
        world.preempt(job, (run, "over_guarantee"))
        world.yielded(run)
        world.place_on("n1", 1, job)
        for _ in range(3):
            world.pass_time()
    assert [asked for asked, _ in pleas(world)] == small[:2]


def test_a_guarantee_is_taken_back_under_a_limit_that_both_share() -> None:
    """The queue above is full: so much as is missing there must come free before the job is offered, and it is kept."""
    world = world_of(
        gpus=16, org={"maximum": {"gpu": 8_000}}, org__a={"guaranteed": {"gpu": 4_000}}, org__b={}, other={}
    )
    runs = [running(world, 4, "org/b") for _ in range(2)]
    running(world, 4, "other")
    job = world.submit(4, queue="org/a")
    assert world.of(job) == "queued"
    world.pass_time()
    (asked,) = world.said(ev.PreemptionRequested)
    assert (asked.job, asked.queue, asked.amounts) == (job, "org", {"gpu": 4_000})
    assert [victim.job for victim in asked.victims] == [runs[1]]
    world.preempt(job, (runs[1], "over_guarantee"))
    late = world.submit(1, queue="org/b")
    world.yielded(runs[1])
    assert kinds(world.settle()) == ["JobRequeued", "JobOffered"]
    assert (world.of(job), world.of(late), world.of(runs[1])) == ("offered", "queued", "queued")


def test_a_larger_share_yields_only_where_it_is_asked_for() -> None:
    """`rebalance`: to a queue that has no larger share even with the job, as many as leave theirs no smaller."""
    for rebalance, asked in ((False, []), (True, ["over_share", "over_share", "over_share"])):
        world = world_of(a={"preemption": Preemption(protect_ns=0, rebalance=rebalance)}, b={})
        for _ in range(8):
            running(world, 1, "b")
        job = refused(world, 1, "a")
        world.pass_time()
        found = [rule for _, victims in pleas(world) for _, rule in victims]
        assert found[:3] == asked
        assert len(found) in (0, 7)
        assert job


# ---------------------------------------------------------------------------------------- slices


def test_a_run_yields_at_the_end_of_its_slice_if_an_eligible_job_waits() -> None:
    """Not before; not to a lower priority; and never while no job waits."""
    world = world_of(q={})
    run = running(world, 8, "q", slice_ns=60 * SECOND)
    assert world.pass_time(100) == []
    refused(world, 8, "q", priority=10)
    assert world.pass_time(100) == []
    job = refused(world, 8, "q")
    world.pass_time(2)
    assert pleas(world) == [(job, [(run, "over_slice")])]


def test_a_slice_yields_between_queues_by_share() -> None:
    """With equal weights and one place, the queues alternate. With a third of the weight, the other waits for its turn."""
    for weight, asks in ((1, True), (3, False)):
        world = world_of(a={"weight": weight}, b={})
        running(world, 4, "a", slice_ns=SECOND)
        running(world, 4, "b")
        refused(world, 4, "b")
        world.pass_time(5)
        assert pleas(world) == []
        world = world_of(a={"weight": weight}, b={})
        run = running(world, 8, "a", slice_ns=SECOND)
        job = refused(world, 8, "b")
        world.pass_time(5)
        assert pleas(world) == ([(job, [(run, "over_slice")])] if asks else [])


def test_a_run_at_the_end_of_its_slice_requeues_with_the_rest_of_its_time() -> None:
    """Its limit is that of all its runs together; its place is behind the jobs that wait already."""
    world = world_of(q={})
    run = running(world, 8, "q", slice_ns=60 * SECOND, total_ns=100 * SECOND)
    second, third = refused(world, 8, "q"), refused(world, 8, "q")
    world.pass_time(70)
    world.preempt(second, (run, "over_slice"))
    world.yielded(run)
    world.settle()
    world.pass_time()
    assert world.offered() == [second, third, run]
    assert world.state.jobs[run].used_ns == 70 * SECOND
    world.restart()
    world.place_on("n1", 8, run)
    assert world.pass_time(29) == []
    (stop,) = world.pass_time(1)
    assert (stop.job, stop.reason, stop.attempt) == (run, "time_limit", 2)
