"""Who may be asked to yield to whom, in which order, and what becomes of both."""

from typing import Any

import pytest

from fairlead_queue.limits import ASK_AFTER_NS, ASK_AGAIN_NS
from fairlead_schemas import events as ev
from fairlead_schemas.queues import Ageing, Preemption
from tests.queue.world import SECOND, World, kinds, request

SOON = Preemption(protect_ns=0)


def world_of(*, gpus: int = 8, pool: dict[str, Any] | None = None, **queues: dict[str, Any]) -> World:
    """One node, and queues whose runs are not protected unless they say so."""
    world = World()
    world.node("n1", gpus=gpus)
    if pool:
        world.pool(**pool)
    world.tree(**{name: {"preemption": SOON} | settings for name, settings in queues.items()})
    return world


def running(world: World, gpus: int, queue: str, **more: Any) -> str:
    """A job that has its place."""
    job = world.submit(gpus, queue=queue, **more)
    world.place_on("n1", gpus, job)
    return job


def refused(world: World, gpus: int, queue: str, **more: Any) -> str:
    """A job that has its turn and no place."""
    job = world.submit(gpus, queue=queue, **more)
    world.refuse(job)
    return job


def pleas(world: World) -> list[tuple[str, list[tuple[str, str]]]]:
    """(who asked, [(who may yield, by which rule)]) of every request in the log."""
    return [(e.job, [(v.job, v.rule) for v in e.victims]) for e in world.said(ev.PreemptionRequested)]


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


def test_waiting_long_is_no_higher_priority() -> None:
    """Or two equals would displace each other for ever, each by having waited."""
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
def test_a_queue_says_whose_runs_it_takes_back_its_guarantee_from(reclaim: Any, priority: int, asked: bool) -> None:
    """Anybody's, those of lower priority, nobody's."""
    world = world_of(a={"guaranteed": {"gpu": 4_000}, "preemption": Preemption(protect_ns=0, reclaim=reclaim)}, b={})
    running(world, 8, "b")
    refused(world, 4, "a", priority=priority)
    world.pass_time()
    assert bool(pleas(world)) == asked


def test_open_offers_make_no_queue_one_that_uses_what_it_is_guaranteed() -> None:
    """Neither does a queue that only waits use its guarantee, nor does one whose offers wait hold more than its own."""
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


def test_at_a_slices_end_a_run_yields_if_somebody_who_deserves_it_waits() -> None:
    """Not before; not to a lower priority; and never while nobody waits."""
    world = world_of(q={})
    run = running(world, 8, "q", slice_ns=60 * SECOND)
    assert world.pass_time(100) == []
    refused(world, 8, "q", priority=10)
    assert world.pass_time(100) == []
    job = refused(world, 8, "q")
    world.pass_time(2)
    assert pleas(world) == [(job, [(run, "over_slice")])]


def test_between_queues_a_slice_yields_to_who_is_not_ahead_by_it() -> None:
    """Of equal weight, one place: it goes back and forth. With a third of the weight, the other waits for its turn."""
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


def test_who_has_had_a_slice_goes_on_with_the_rest_of_its_time_behind_the_others() -> None:
    """Its limit is that of all its runs together; it takes its place behind those who wait already."""
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


# ---------------------------------------------------------------------------------------- order and protection


def test_the_cheapest_are_named_first_by_what_they_would_lose() -> None:
    """GPU-seconds since they started, said with each; of equals the one that came last."""
    world = world_of(q={})
    long_small = running(world, 1, "q", priority=10)
    world.now += 100 * SECOND
    big = running(world, 5, "q", priority=20)
    world.now += 10 * SECOND
    twins = [running(world, 1, "q", priority=10) for _ in range(2)]
    refused(world, 8, "q")
    world.pass_time(2)
    (asked,) = world.said(ev.PreemptionRequested)
    assert [(v.job, v.gpu_s) for v in asked.victims] == [(twins[1], 2), (twins[0], 2), (big, 60), (long_small, 112)]


def test_a_run_is_safe_for_as_long_as_its_queue_protects_it() -> None:
    """Its own queue's time counts, not that of who asks; the core wakes when it is over."""
    world = world_of(q={"preemption": Preemption(protect_ns=50 * SECOND)})
    run = running(world, 8, "q", priority=10)
    job = refused(world, 8, "q")
    world.pass_time(2)
    assert (pleas(world), world.core.wake_at()) == ([], world.state.jobs[run].started_ns + 50 * SECOND)
    world.pass_time(48)
    assert pleas(world) == [(job, [(run, "lower_priority")])]


def test_nobody_is_asked_within_a_jobs_first_moment_nor_for_one_that_waits_for_nothing() -> None:
    """Most places come free by themselves."""
    world = world_of(q={})
    running(world, 8, "q", priority=10)
    refused(world, 8, "q")
    world.pass_time(ASK_AFTER_NS / SECOND / 2)
    assert pleas(world) == []
    world.pass_time(ASK_AFTER_NS / SECOND / 2)
    assert len(pleas(world)) == 1


def test_nobody_is_asked_where_it_would_not_do() -> None:
    """All of those who may yield do not come to what is needed, or not of the kind."""
    world = world_of(gpus=8, q={})
    running(world, 4, "q", priority=90)
    running(world, 4, "q", priority=10)
    refused(world, 8, "q")
    refused(world, 0, "q", request=request(0, cpu=64), priority=5)
    world.pass_time(10)
    assert pleas(world) == []


def test_two_who_starve_do_not_name_the_same_run() -> None:
    """The second asks for others, or when the first has been answered."""
    world = world_of(q={})
    runs = [running(world, 4, "q", priority=10) for _ in range(2)]
    first, second = refused(world, 4, "q"), world.submit(4, queue="q")
    world.pass_time()
    assert pleas(world) == [(first, [(runs[1], "lower_priority"), (runs[0], "lower_priority")])]
    world.preempt(first, (runs[1], "lower_priority"))
    world.pass_time()
    assert pleas(world)[1:] == [(second, [(runs[0], "lower_priority")])]


# ---------------------------------------------------------------------------------------- what becomes of them


def test_one_that_was_declined_asks_again_after_a_while() -> None:
    """Not at every look, each time half as often; and while it is being asked nothing is asked again."""
    world = world_of(q={})
    running(world, 8, "q", priority=10)
    job = refused(world, 8, "q")
    assert kinds(world.pass_time(2)) == ["PreemptionRequested"]
    assert world.pass_time(60) == []
    world.decline(job)
    for doubling in range(4):
        assert world.pass_time((ASK_AGAIN_NS << doubling) / SECOND - 1) == []
        world.restart()
        assert kinds(world.pass_time(1)) == ["PreemptionRequested"]
        world.decline(job)


def test_a_victim_that_ends_by_itself_counts_no_longer() -> None:
    """The one it was to yield to is free to ask for another."""
    world = world_of(q={})
    runs = [running(world, 4, "q", priority=10) for _ in range(2)]
    job = refused(world, 8, "q")
    world.pass_time()
    for run in runs:
        world.preempt(job, (run, "lower_priority"))
    assert world.state.jobs[job].yielders == 2
    world.end(runs[0], 0)
    world.restart()
    assert (kinds(world.settle()), world.state.jobs[job].yielders) == (["JobSucceeded"], 1)
    assert world.pass_time() == []
    world.yielded(runs[1])
    world.place(job)
    assert (world.state.jobs[job].yielders, world.state.jobs[job].asked) == (0, "")


@pytest.mark.parametrize("how", ["cancel", "hold", "move"])
def test_one_that_goes_away_leaves_nothing_that_is_kept_for_it(how: str) -> None:
    """Neither the quota nor the request; the others of its queue go on."""
    world = world_of(org={"maximum": {"gpu": 8_000}}, org__a={"guaranteed": {"gpu": 8_000}}, org__b={})
    run = running(world, 8, "org/b")
    job = world.submit(8, queue="org/a")
    world.pass_time()
    world.preempt(job, (run, "over_guarantee"))
    world.restart()
    assert world.state.queues["org"].node.claim is not None
    answer = world.cancel(job) if how == "cancel" else world.hold(job) if how == "hold" else world.move(job, "org/b")
    assert type(answer).__name__ in ("JobCancelled", "JobHeld", "JobMoved")
    assert world.state.queues["org"].node.claim is None
    small = world.submit(1, queue="org/b")
    world.yielded(run)
    world.settle()
    assert {"cancel": [run], "hold": [run], "move": [run]}[how][0] in world.offered()
    assert small


def test_a_victim_that_is_cancelled_ends_cancelled() -> None:
    """A person's wish stands above the queue's; so does the end of its time."""
    world = world_of(q={})
    runs = [running(world, 4, "q", priority=10, total_ns=limit) for limit in (0, 5 * SECOND)]
    job = refused(world, 8, "q")
    world.pass_time(2)
    for run in runs:
        world.preempt(job, (run, "lower_priority"))
    world.cancel(runs[0])
    world.pass_time(5)
    for run in runs:
        world.yielded(run)
    assert kinds(world.settle()) == ["JobCancelled", "JobFailed"]
    assert world.state.jobs[job].yielders == 0


def test_a_request_that_crosses_the_placement_or_the_return_of_the_offer_is_none() -> None:
    """The job asks anew when it waits again: nothing of the request that nobody answers is left."""
    for crosses in ("place", "give_back"):
        world = world_of(q={})
        running(world, 8, "q", priority=10)
        job = refused(world, 8, "q")
        world.now += 2 * SECOND
        events = world.decide()
        assert kinds(events) == ["PreemptionRequested"]
        if crosses == "give_back":
            world.fold("queue", [ev.JobRecalled(cause="clock", job=job, attempt=1, reason="order")])
            world.give_back(job)
        else:
            world.place(job)
        world.fold("queue", events)
        assert world.state.jobs[job].asked == ""


def test_a_run_that_yields_by_a_rule_keeps_its_place_among_equals() -> None:
    """Only a slice that was had sends it to the back."""
    world = world_of(q={})
    run = running(world, 8, "q", priority=10)
    later = world.submit(8, queue="q", priority=10)
    job = refused(world, 8, "q")
    world.pass_time(2)
    world.preempt(job, (run, "lower_priority"))
    world.yielded(run)
    world.settle()
    world.pass_time()
    assert world.offered() == [job, run, later]
