"""Victims nominated for a starving job, protected runs, and the fate of victims and beneficiary."""

from typing import Any

import pytest

from fairlead_queue.limits import ASK_AFTER_NS, ASK_AGAIN_NS, REVIEW_NS
from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, kinds, request
from tests.queue.yielding import pleas, refused, running, world_of

# ---------------------------------------------------------------------------------------- order and protection


def test_the_cheapest_victims_are_nominated_first() -> None:
    """GPU-seconds since their start, recorded with each; with equal loss the newest."""
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


def test_no_victim_is_stopped_in_a_jobs_first_moment_where_runs_end_by_themselves() -> None:
    """Most jobs start that way in a busy pool; but the wait is bounded."""
    world = world_of(q={})
    runs = [running(world, 1, "q", priority=10) for _ in range(8)]
    refused(world, 8, "q")
    for run in runs[:3]:
        world.end(run)
        world.pass_time(ASK_AFTER_NS / SECOND / 4)
        assert pleas(world) == []
    world.restart()
    world.refuse(*world.offered())
    world.pass_time(ASK_AFTER_NS / SECOND / 4)
    assert len(pleas(world)) == 1


def test_victims_are_stopped_at_the_next_review_if_nothing_was_freed_by_itself() -> None:
    """Capacity freed by a preemption does not count."""
    world = world_of(q={})
    runs = [running(world, 4, "q", priority=10) for _ in range(2)]
    first = refused(world, 4, "q")
    world.pass_time(REVIEW_NS / SECOND)
    assert [asked for asked, _ in pleas(world)] == [first]
    world.preempt(first, (runs[1], "lower_priority"))
    world.yielded(runs[1])
    world.place_on("n1", 4, first)
    world.settle()
    world.restart()
    second = refused(world, 4, "q")
    world.pass_time(REVIEW_NS / SECOND)
    assert [asked for asked, _ in pleas(world)] == [first, second]


def test_an_offer_that_the_placer_may_not_have_tried_waits() -> None:
    """There is room in total, and the placer has not refused it yet; in a full pool it need not."""
    for gpus, asked in ((4, 0), (8, 1)):
        world = world_of(q={})
        world.node("n2")
        for _ in range(2):
            running(world, gpus, "q", priority=10)
        world.submit(8, queue="q")
        world.pass_time(2 * REVIEW_NS / SECOND)
        assert len(pleas(world)) == asked


def test_no_victim_is_stopped_in_vain() -> None:
    """All eligible victims together do not free enough, or not of the right kind."""
    world = world_of(gpus=8, q={})
    running(world, 4, "q", priority=90)
    running(world, 4, "q", priority=10)
    refused(world, 8, "q")
    refused(world, 0, "q", request=request(0, cpu=64), priority=5)
    world.pass_time(10)
    assert pleas(world) == []


def test_two_starving_jobs_do_not_nominate_the_same_run() -> None:
    """The second nominates others, or waits until the first has been answered."""
    world = world_of(q={})
    runs = [running(world, 4, "q", priority=10) for _ in range(2)]
    first, second = refused(world, 4, "q"), world.submit(4, queue="q")
    world.pass_time()
    assert pleas(world) == [(first, [(runs[1], "lower_priority"), (runs[0], "lower_priority")])]
    world.preempt(first, (runs[1], "lower_priority"))
    world.pass_time()
    assert pleas(world)[1:] == [(second, [(runs[0], "lower_priority")])]


def test_stopping_runs_do_not_count_towards_a_remaining_guarantee() -> None:
    """Two requests, one after the other or at the same moment, do not together take what a third queue is guaranteed."""
    for together in (False, True):
        eager: dict[str, Any] = {"preemption": Preemption(protect_ns=0, rebalance=True)}
        world = world_of(a={"guaranteed": {"gpu": 4_000}}, b=eager, c=eager, d={})
        runs = [running(world, 2, "a") for _ in range(3)]
        running(world, 2, "d")
        first, second = refused(world, 2, "b"), world.submit(2, queue="c") if together else ""
        world.pass_time(2)
        assert pleas(world) == [(first, [(runs[2], "over_share")])]
        world.preempt(first, (runs[2], "over_share"))
        second = second or refused(world, 2, "c")
        world.pass_time(60)
        assert second not in [asked for asked, _ in pleas(world)]


def test_a_run_stopped_by_this_very_decision_counts_as_stopping() -> None:
    """A user cancels a run at the moment at which another would be preempted."""
    world = world_of(a={"guaranteed": {"gpu": 4_000}}, b={"preemption": Preemption(protect_ns=0, rebalance=True)}, d={})
    runs = [running(world, 2, "a") for _ in range(3)]
    running(world, 2, "d")
    refused(world, 2, "b")
    world.now += 2 * SECOND
    world.cancel(runs[0])
    assert (world.of(runs[0]), pleas(world)) == ("stopping", [])


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
def test_a_cancelled_beneficiary_leaves_no_reservation(how: str) -> None:
    """The quota and the request are gone; the other jobs of its queue continue."""
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
    """A user's cancel precedes the queue's preemption; so does the end of its time."""
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


def test_a_request_that_crosses_the_placement_or_the_offers_return_is_void() -> None:
    """The job sends another when it waits again: nothing of the unanswered request remains."""
    for crosses in ("place", "give_back"):
        world = world_of(q={})
        running(world, 8, "q", priority=10)
        job = refused(world, 8, "q")
        world.now += 2 * SECOND
        events = world.decide()
        assert kinds(events) == ["PreemptionRequested"]
        if crosses == "give_back":
            world.fold("queue", [ev.OfferWithdrawn(cause="clock", job=job, attempt=1, reason="order")])
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
