"""Runs that yield for a place: who is asked, what is kept for whom, and how it ends."""

import pytest

from fairlead_placer.apply.jobs import VICTIMS_MAX
from fairlead_placer.core import PlacerCore
from fairlead_placer.scheduling import preempt
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import SECOND, PlacerWorld, names, placed, request
from tests.placer.preemption_requests import asked, made, plea, running


def test_the_node_with_the_least_loss_is_preempted_and_reserved() -> None:
    """GPU-seconds decide, not the order; the answer and the reservation are in one commit, caused by the request."""
    world = running((4,), (4,), (4,))
    world.offer(request(4))
    events = world.queue(plea("4", ("1", 50), ("2", 10), ("3", 30)))
    cause = f"{len(world.log) - 1}.0"
    assert events == [
        ev.PreemptionStarted(cause=cause, job="2", attempt=1, beneficiary="4", rule="lower_priority"),
        ev.ReservationMade(
            cause=cause,
            job="4",
            attempt=1,
            nodes=("b",),
            start_ns=world.now + 35 * SECOND,
            basis="limits",
            waits_for=("2",),
        ),
    ]
    assert (world.stops("a"), world.stops("b")) == ({"1.1": ""}, {"2.1": "preempted"})
    events = world.exit("b", "2", outcome="stopped", exit_code=None)
    assert isinstance(events[0], ev.RunEnded)
    assert (events[0].preempted, events[0].drained) == (True, False)
    assert placed(events) == {"4": ["b"]}
    assert world.core.state.reservations == {}


def test_equal_loss_goes_to_fewer_victims_then_to_the_name() -> None:
    """Two of 5 GPU-seconds or one of 10: one; of two such nodes the first."""
    world = running((2, 2), (4,), (4,))
    world.offer(request(4))
    events = world.queue(plea("5", ("1", 5), ("2", 5), ("4", 10), ("3", 10)))
    assert (asked(events), made(events)) == (["3"], ("b",))


def test_no_more_victims_than_needed() -> None:
    """The cheapest sufficient set, whatever the order; unneeded victims are spared."""
    world = running((1, 1, 2))
    world.offer(request(2))
    assert asked(world.queue(plea("4", ("1", 6), ("2", 6), ("3", 9)))) == ["3"]
    world = running((1, 1, 2))
    world.offer(request(2))
    assert asked(world.queue(plea("4", ("1", 1), ("2", 1), ("3", 9)))) == ["1", "2"]


def test_free_capacity_counts() -> None:
    """One GPU free and one being freed are two."""
    world = running((1, 1, 1))
    world.offer(request(2))
    events = world.queue(plea("4", ("1", 1), ("2", 1)))
    assert asked(events) == ["1"]


def test_cpu_and_memory_come_free_too() -> None:
    """A job that lacks CPU or memory gets them from those who hold them."""
    world = PlacerWorld()
    world.join("a", 4, cpu=4, memory_gib=4)
    world.offer(request(1, cpu=1, memory_gib=3))
    world.offer(request(1, cpu=3, memory_gib=1))
    world.offer(request(1, cpu=2, memory_gib=2))
    assert asked(world.queue(plea("3", ("1", 1), ("2", 1)))) == ["1", "2"]


def test_nothing_is_preempted_if_it_makes_no_room() -> None:
    """The request is declined with the causes that would remain on each node without the victims."""
    world = running((2, 2), (3,))
    world.command(CordonNode(id="c", node="b"))
    world.join("z", 2)
    world.offer(request(4))
    before = world.stops("a")
    events = world.queue(plea("4", ("1", 1), ("3", 1)))
    cause = f"{len(world.log) - 1}.0"
    reasons = {"cordoned": 1, "gpus": 1, "free_gpus": 1}
    assert events == [ev.PreemptionDeclined(cause=cause, job="4", attempt=1, reasons=reasons)]
    assert (world.stops("a"), world.core.state.preemption_requests, world.core.state.reservations) == (before, {}, {})


def test_reasons_of_a_declined_request_are_counted_without_the_victims() -> None:
    """Earlier counts do not apply: equal nodes are counted by rounded amounts and name other causes, and another task
    group may fit the fewest nodes."""
    for wanted, reasons in (
        (Request(nodes=2, gpu_milli=1000, cpu_milli=100, memory_mib=4096), {"memory": 1}),
        (
            Request(gpu_milli=1000, cpu_milli=500, memory_mib=64, also=(Request(gpu_milli=4000, cpu_milli=65_000),)),
            {"cpu": 2},
        ),
    ):
        world = PlacerWorld()
        world.join("a", 4, cpu=64, memory_gib=64)
        world.offer(request(1, cpu=64, memory_gib=64))
        world.join("b", 4, cpu=4, memory_gib=2)
        world.offer(wanted)
        [declined] = world.queue(plea("2", ("1", 1)))
        assert isinstance(declined, ev.PreemptionDeclined)
        assert declined.reasons == reasons


def test_a_gang_that_lacks_one_node_is_declined_with_the_nodes_that_would_do_left_out() -> None:
    """Reasons count what would still be missing: a node that would come free is none."""
    world = running((4,), (4,))
    world.offer(request(4, nodes=2))
    [declined] = world.queue(plea("3", ("1", 1)))
    assert isinstance(declined, ev.PreemptionDeclined)
    assert declined.reasons == {"free_gpus": 1}


def test_a_victim_that_is_gone_is_passed_over() -> None:
    """Ended, of another attempt, or never known."""
    world = running((2, 2))
    world.offer(request(4))
    world.exit("a", "1", clean=False)
    other = ev.Victim(job="2", attempt=2, rule="over_share")
    asked_for = plea("3", ("1", 1), ("99", 1))
    asked_for = ev.PreemptionRequested(cause="clock", job="3", attempt=1, victims=(*asked_for.victims, other))
    assert names(world.queue(asked_for)) == ["PreemptionDeclined"]


def test_a_stopping_run_counts_as_freed() -> None:
    """No run is preempted twice or in its place; the node is kept all the same."""
    world = running((2, 2))
    world.offer(request(4))
    world.queue(ev.JobStopRequested(cause="cmd:c", job="1", attempt=1, reason="cancelled"))
    events = world.queue(plea("3", ("1", 1), ("2", 1)))
    assert (asked(events), made(events)) == (["2"], ("a",))
    assert world.stops("a") == {"1.1": "cancelled", "2.1": "preempted"}
    again = world.queue(plea("3", ("1", 1), ("2", 1)))
    assert names(again) == ["ReservationMade"]


def test_gpus_come_free_on_evidence_only() -> None:
    """A victim that ended and is not clean holds on; the job has its place when it is."""
    world = running((4,))
    world.offer(request(4))
    world.queue(plea("2", ("1", 1)))
    assert names(world.exit("a", "1", outcome="stopped", exit_code=None, clean=False)) == ["RunEnded"]
    assert placed(world.clean("a", "1")) == {"2": ["a"]}


def test_no_job_takes_the_freed_node() -> None:
    """It is reserved for the waiting job, even against a job ahead of it."""
    world = running((2, 2))
    wide, offered = world.submitted(request(4))
    world.queue(wide, ev.JobOffered(cause="clock", job="3", attempt=1, rank=900))
    world.queue(plea("3", ("1", 1), ("2", 1)))
    assert offered.rank < 900
    assert placed(world.offer(request(2))) == {}
    assert placed(world.exit("a", "1", outcome="stopped", exit_code=None)) == {}
    assert placed(world.exit("a", "2", outcome="stopped", exit_code=None)) == {"3": ["a"]}


def test_a_gang_is_preempted_as_a_whole() -> None:
    """Every rank is stopped, also one that was starting, and the end is recorded once, with the last of them."""
    world = PlacerWorld()
    for name in ("a", "b"):
        world.join(name, 4)
    world.offer(request(4, nodes=2))
    world.start("a", "1", 0)
    world.offer(request(4))
    assert asked(world.queue(plea("2", ("1", 1)))) == ["1"]
    assert (world.stops("a"), world.stops("b")) == ({"1.1": "preempted"}, {"1.1": "preempted"})
    events = world.exit("a", "1", 0, outcome="stopped", exit_code=None)
    assert names(events) == ["RankEnded", "JobPlaced"]
    [ended] = world.exit("b", "1", 1, outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert ended.preempted


def test_a_gang_gets_all_its_nodes_or_none() -> None:
    """Free nodes and those of victims make one hole; the cheapest that make it."""
    world = running((4,), (2,), (4,), ())
    world.offer(request(4, nodes=3))
    events = world.queue(plea("4", ("2", 1), ("1", 9), ("3", 5)))
    assert (asked(events), made(events)) == (["2", "3"], ("b", "c", "d"))
    assert placed(world.offer(request(2))) == {}
    world.exit("c", "3", outcome="stopped", exit_code=None)
    assert placed(world.exit("b", "2", outcome="stopped", exit_code=None)) == {"4": ["b", "c", "d"]}


def test_a_victim_on_several_nodes_may_be_needed_for_two() -> None:
    """A gang makes room on both its nodes at once: one run is fewer than two that lose as much."""
    world = PlacerWorld()
    for name in ("a", "b"):
        world.join(name, 4, labels={"name": name})
    world.offer(request(2, nodes=2))
    world.offer(request(2, selector=("name=a",)))
    world.offer(request(2, selector=("name=b",)))
    world.offer(request(2, nodes=2))
    assert asked(world.queue(plea("4", ("2", 1), ("1", 2), ("3", 1)))) == ["1"]


def test_requests_of_users_precede_a_preemption() -> None:
    """Cancelled while it stops, or before the placer's event is in the log: the end is no preemption."""
    for late in (False, True):
        world = running((4,))
        world.offer(request(4))
        world.fold("queue", [plea("2", ("1", 1))])
        decision = world.decide()
        cancel = ev.JobStopRequested(cause="cmd:c", job="1", attempt=1, reason="cancelled")
        if late:
            world.fold("queue", [cancel])
        world.fold("placer", decision.events)
        if not late:
            world.queue(cancel)
        assert world.stops("a") == {"1.1": "cancelled"}
        [ended, *_] = world.exit("a", "1", outcome="stopped", exit_code=None)
        assert isinstance(ended, ev.RunEnded)
        assert not ended.preempted


def test_of_a_drain_and_a_preemption_the_first_is_the_reason() -> None:
    """A run is stopped once."""
    world = running((4,), ())
    world.command(CordonNode(id="c", node="b"))
    world.offer(request(4))
    world.queue(plea("2", ("1", 1)))
    world.command(DrainNode(id="d", node="a", deadline_ns=SECOND))
    world.now += SECOND
    world.step()
    [ended, *_] = world.exit("a", "1", outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.preempted, ended.drained) == (True, False)


def test_an_end_of_its_own_is_no_preemption() -> None:
    """It had finished before the notice came."""
    world = running((4,))
    world.offer(request(4))
    world.queue(plea("2", ("1", 1)))
    [ended, *_] = world.exit("a", "1")
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.preempted) == ("exited", False)


def test_if_the_job_is_cancelled_its_nodes_are_released_and_the_victims_still_stop() -> None:
    """A stop that was ordered is not withdrawn."""
    world = running((4,))
    world.offer(request(4))
    world.queue(plea("2", ("1", 1)))
    events = world.queue(ev.JobStopRequested(cause="cmd:c", job="2", attempt=1, reason="cancelled"))
    assert names(events) == ["ReservationEnded", "OfferReturned"]
    assert world.stops("a") == {"1.1": "preempted"}
    [ended] = world.exit("a", "1", outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert ended.preempted


def test_a_placed_job_needs_no_victims() -> None:
    """Placed in the commit that would answer, placed before, or withdrawn: no answer and no preemption."""
    world = running((4,))
    world.offer(request(4))
    world.fold("queue", [plea("2", ("1", 1))])
    end = ev.RunEnded(cause="clock", job="1", attempt=1, outcome="exited", exit_code=0, released=("a",))
    world.fold("placer", [end])
    assert names(world.step()) == ["JobPlaced"]
    assert world.queue(plea("2", ("1", 1))) == []
    world.offer(request(4))
    withdrawn = world.queue(plea("3", ("2", 1)), ev.OfferWithdrawn(cause="cmd:h", job="3", attempt=1, reason="hold"))
    assert names(withdrawn) == ["OfferReturned"]


def test_victims_of_another_pool_make_no_room() -> None:
    """Their nodes would not take the job."""
    world = PlacerWorld()
    world.join("a", 4)
    world.join("x", 4, labels={POOL_LABEL: "big"})
    world.offer(request(4))
    world.offer(request(4, pool="big"))
    world.offer(request(4))
    [declined] = world.queue(plea("3", ("2", 1)))
    assert isinstance(declined, ev.PreemptionDeclined)
    assert declined.reasons == {"free_gpus": 1}
    assert asked(world.queue(plea("3", ("2", 1), ("1", 9)))) == ["1"]


def test_nodes_reserved_for_another_job_are_not_used() -> None:
    """The job's own reserved nodes are, and are given up for better ones."""
    world = running((2, 2), (4,))
    world.offer(request(4))
    world.offer(request(4))
    world.queue(ev.ReservationRequested(cause="clock", job="4", attempt=1, waited_ns=1))
    assert world.core.state.reservations["4"].nodes == ("b",)
    assert names(world.queue(plea("5", ("3", 1)))) == ["PreemptionDeclined"]
    events = world.queue(plea("4", ("1", 1), ("2", 1), ("3", 50)))
    assert (asked(events), made(events)) == (["1", "2"], ("a",))
    assert asked(world.queue(plea("5", ("3", 1)))) == ["3"]


def test_nodes_freed_by_preemption_are_no_reservation_claim() -> None:
    """The pool's one claim is still available during a preemption, and a claim of the same job is met by its freed
    nodes."""
    world = running((4,), (4,))
    world.offer(request(4))
    world.offer(request(4))
    claim = ev.ReservationRequested(cause="clock", job="3", attempt=1, waited_ns=1)
    events = world.queue(claim, plea("3", ("1", 1)))
    assert names(events) == ["PreemptionStarted", "ReservationMade"]
    assert world.core.state.claims == {}
    assert names(world.queue(ev.ReservationRequested(cause="clock", job="4", attempt=1, waited_ns=1))) == [
        "ReservationMade"
    ]


def test_a_lost_node_of_a_preemption_is_replaced() -> None:
    """The node is lost while the victim stops: another is kept for the job, and no other victim is asked."""
    world = running((4,), (4,))
    world.offer(request(4))
    world.queue(plea("3", ("1", 1), ("2", 9)))
    events = world.silent("a")
    assert (asked(events), made(events)) == ([], ("b",))
    assert world.core.state.reservations["3"].hole


def test_only_so_many_victims_are_looked_at() -> None:
    """The next one after VICTIMS_MAX is not, though it alone would do."""
    world = running((4,))
    world.offer(request(4))
    strangers = [(str(n), 1) for n in range(1000, 1000 + VICTIMS_MAX)]
    assert names(world.queue(plea("2", *strangers, ("1", 1)))) == ["PreemptionDeclined"]
    assert asked(world.queue(plea("2", *strangers[1:], ("1", 1)))) == ["1"]


def test_the_number_of_reserved_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request beyond it is declined with the reserved nodes named; one for a job that has its nodes is accepted."""
    monkeypatch.setattr(preempt, "HOLES_MAX", 1)
    world = running((4,), (4,))
    world.offer(request(4))
    world.offer(request(4))
    world.queue(plea("3", ("1", 1)))
    [declined] = world.queue(plea("4", ("2", 1)))
    assert isinstance(declined, ev.PreemptionDeclined)
    assert declined.reasons == {"reserved": 1}
    assert names(world.queue(plea("3", ("1", 1)))) == ["ReservationMade"]


def test_a_request_is_not_lost_with_the_answer_to_an_earlier_one() -> None:
    """The queue sends another while the first answer is under way: both are answered."""
    world = running((4,), (4,))
    world.offer(request(4))
    world.fold("queue", [plea("3", ("1", 1))])
    decision = world.decide()
    world.fold("queue", [plea("3", ("2", 1))])
    world.fold("placer", decision.events)
    assert list(world.core.state.preemption_requests) == ["3"]
    assert names(world.step()) == ["ReservationMade"]  # what comes free already is enough
    assert world.core.state.preemption_requests == {}


def test_preemption_requests_are_answered_in_order_of_arrival() -> None:
    """Not in the order of job names; the second finds the node taken."""
    world = running((4,))
    for _ in range(10):
        world.offer(request(4))
    events = world.queue(plea("9", ("1", 1)), plea("10", ("1", 1)))
    assert names(events) == ["PreemptionStarted", "ReservationMade", "PreemptionDeclined"]
    assert made(events) == ("a",)
    assert isinstance(events[2], ev.PreemptionDeclined)
    assert (events[2].job, events[2].reasons) == ("10", {"reserved": 1})


def test_a_preemption_request_survives_a_restart() -> None:
    """With its victims; the restored core gives the same answer."""
    world = running((4,))
    world.offer(request(4))
    world.fold("queue", [plea("2", ("1", 1))])
    restored = PlacerCore.restore(world.core.snapshot())
    assert restored.snapshot() == world.core.snapshot()
    decision = world.decide()
    assert asked(decision.events) == ["1"]
    assert restored.decide((), world.now) == decision
    world.fold("placer", decision.events)
    world.core = PlacerCore.restore(world.core.snapshot())
    assert world.stops("a") == {"1.1": "preempted"}


def test_many_answers_are_spread_over_commits() -> None:
    """Each whole in one commit, none of them too large."""
    world = PlacerWorld()
    for node in range(5):
        world.join(f"n{node}", 0, cpu=200, labels={"name": str(node)})
        wanted = request(0, memory_gib=0, selector=(f"name={node}",))
        world.queue(*(event for _ in range(200) for event in world.submitted(wanted)))
    jobs = [str(1001 + node) for node in range(5)]
    for node in range(5):
        world.offer(request(0, cpu=200, selector=(f"name={node}",)))
    before = len(world.log)
    pleas = [plea(job, *((str(200 * i + n + 1), 1) for n in range(200))) for i, job in enumerate(jobs)]
    events = world.queue(*pleas)
    assert len(asked(events)) == 1000
    commits = [commit.events for commit in world.log[before + 1 :]]
    assert [names(commit).count("PreemptionStarted") for commit in commits] == [800, 200]
