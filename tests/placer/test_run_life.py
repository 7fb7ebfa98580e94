"""The life of a run: placed, started, ended, released; gangs; stops; what is not believed."""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_placer.core import PlacerCore
from fairlead_placer.desired_state import OrderBook
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DrainNode
from fairlead_schemas.wire.desired import decode_desired
from fairlead_schemas.wire.reports import ExitSeen, ReportBatch, StartSeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, names, placed, request


def test_one_gpu_job_from_offer_to_end() -> None:
    """An offer is placed, starts, ends, and its GPU is free again; nothing is left behind."""
    world = cluster(1)
    assert placed(world.offer(request(1))) == {"1": ["n1"]}
    assert names(world.start("n1", "1")) == ["RunStarted"]
    [ended] = world.exit("n1", "1")
    assert ended == ev.RunEnded(
        cause="report:n1:3", job="1", attempt=1, outcome="exited", exit_code=0, released=("n1",)
    )
    assert world.core.state.runs == {}
    assert world.core.state.nodes["n1"].gpus_free == 8


def test_an_end_and_the_next_placement_share_a_commit() -> None:
    """Resources that a report frees are allocated in the commit that records it."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    report = world.batch("n1", ExitSeen(n=0, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True))
    decision = world.decide(report)
    assert names(decision.events) == ["RunEnded", "JobPlaced"]
    assert decision.cursors == {"report.n1": 2}


def test_gpus_return_on_clean_evidence_only() -> None:
    """An unclean exit ends the run and keeps its GPUs until the agent has seen them clean."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    assert names(world.exit("n1", "1", clean=False)) == ["RunEnded"]
    assert world.core.state.nodes["n1"].gpus_free == 0
    assert names(world.clean("n1", "1")) == ["AllocationReleased", "JobPlaced"]


def test_a_clean_report_before_the_end_is_ignored() -> None:
    """A running rank's GPUs are not released because a report calls them clean."""
    world = cluster(1)
    world.offer(request(1))
    world.start("n1", "1")
    [rejected] = world.clean("n1", "1")
    assert isinstance(rejected, ev.ReportRejected)
    assert rejected.code == "not_ended"
    assert world.core.state.nodes["n1"].gpus_free == 7


def test_a_gang_starts_with_its_last_rank() -> None:
    """RankStarted for each rank, RunStarted once, with the last."""
    world = cluster(2)
    assert placed(world.offer(request(8, nodes=2))) == {"1": ["n1", "n2"]}
    assert names(world.start("n2", "1", 1)) == ["RankStarted"]
    assert names(world.start("n1", "1", 0)) == ["RankStarted", "RunStarted"]


def test_a_gang_ends_with_its_last_rank() -> None:
    """RankEnded for all but the last, whose end is RunEnded; with no failure rank 0 speaks for it."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    assert names(world.exit("n1", "1", 0)) == ["RankEnded"]
    [ended] = world.exit("n2", "1", 1)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.exit_code, ended.rank, ended.released) == ("exited", 0, 0, ("n2",))


def test_a_failed_rank_stops_the_others_and_decides() -> None:
    """The first failure is the run's outcome, whatever the stopped ranks report afterwards."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    world.exit("n2", "1", 1, exit_code=3)
    assert world.stops("n1") == {"1.1": "rank_failed"}
    [ended] = world.exit("n1", "1", 0, outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.exit_code, ended.rank) == ("exited", 3, 1)


def test_a_rank_that_succeeds_leaves_the_others_running() -> None:
    """Exit code 0 of one rank stops no other."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    world.exit("n2", "1", 1)
    assert world.stops("n1") == {"1.1": ""}


def test_the_message_names_the_rank_that_failed_first() -> None:
    """The end of the job names that rank and its node."""
    world = gang_of_two()
    world.exit("n2", "1", 1, exit_code=3)
    [ended] = world.exit("n1", "1", 0, outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert ended.message == "rank 1 on n2 was the first to end: exited 3"


def test_ranks_continue_after_a_failure_if_the_job_allows_it() -> None:
    """onFailure: continue. No rank is stopped, and the first failure is still the outcome."""
    world = gang_of_two("continue")
    world.exit("n2", "1", 1, exit_code=3)
    assert world.stops("n1") == {"1.1": ""}
    [ended] = world.exit("n1", "1", 0)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.exit_code, ended.rank) == ("exited", 3, 1)


def test_with_a_leader_the_others_end_when_rank_0_has_succeeded() -> None:
    """The other ranks are stopped, and their stop is no failure."""
    world = gang_of_two("leader")
    assert world.stops("n2") == {"1.1": ""}
    assert names(world.exit("n1", "1", 0)) == ["RankEnded"]
    assert world.stops("n2") == {"1.1": "leader_ended"}
    [ended] = world.exit("n2", "1", 1, outcome="stopped", exit_code=143)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.exit_code, ended.rank, ended.message) == ("exited", 0, 0, "")


def test_a_leader_that_fails_decides() -> None:
    """Then it is as in any gang."""
    world = gang_of_two("leader")
    world.exit("n1", "1", 0, exit_code=7)
    assert world.stops("n2") == {"1.1": "rank_failed"}
    [ended] = world.exit("n2", "1", 1, outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.exit_code, ended.rank) == (7, 0)


def test_the_end_condition_of_ranks_survives_a_snapshot() -> None:
    """A placer that restarts between the leader's end and the others' still stops them."""
    world = gang_of_two("leader")
    world.exit("n1", "1", 0)
    world.core = PlacerCore.restore(world.core.snapshot())
    assert world.stops("n2") == {"1.1": "leader_ended"}


def test_orders_of_a_gang_say_which_nodes_and_how_many_processes() -> None:
    """Of whole nodes as many as GPUs, of tasks as many as these."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    order = world.orders("n1")["1.1"]
    assert (order.nodes, order.slots) == (("n1", "n2"), (8, 8))
    world = cluster(2)
    world.offer(request(2, nodes=5, tasks=True))
    assert world.orders("n1")["1.1"].slots in ((4, 1), (1, 4))


def gang_of_two(gang: GangRule = "") -> PlacerWorld:
    """Job 1 runs on n1 and n2."""
    world = cluster(2)
    submitted, offered = world.submitted(request(8, nodes=2))
    world.queue(msgspec.structs.replace(submitted, gang=gang), offered)
    world.start("n1", "1", 0)
    world.start("n2", "1", 1)
    return world


def test_the_rendezvous_is_on_rank_0_and_always_the_same() -> None:
    """Address of rank 0's node and a port that follows from job and attempt."""
    first, second = cluster(2), cluster(2)
    [a] = first.offer(request(8, nodes=2))
    [b] = second.offer(request(8, nodes=2))
    assert isinstance(a, ev.JobPlaced)
    assert a.master_address == first.core.state.nodes["n1"].inventory.address
    assert 20000 <= a.master_port <= 29999
    assert a == b


def test_a_stop_of_an_open_offer_returns_it() -> None:
    """The placer alone decides an offer's fate: stopped while open, it is returned and never placed."""
    world = cluster(1, 1)
    world.offer(request(1))
    world.offer(request(1))
    events = world.queue(ev.JobStopRequested(cause="cmd:9", job="2", attempt=1, reason="cancelled"))
    assert events == [ev.OfferReturned(cause=f"{len(world.log) - 1}.0", job="2", attempt=1)]
    assert names(world.exit("n1", "1")) == ["RunEnded"]


def test_a_recall_of_an_open_offer_returns_it_and_it_can_be_offered_again() -> None:
    """A hold takes the offer back; a later offer of the same attempt is placed."""
    world = cluster(1)
    submitted, offered = world.submitted(request(9))
    world.queue(submitted, offered)
    withdrawn = ev.OfferWithdrawn(cause="cmd:9", job="1", attempt=1, reason="hold")
    assert names(world.queue(withdrawn)) == ["OfferReturned"]
    world.join("n2", 16)
    assert placed(world.queue(offered)) == {"1": ["n2"]}


def test_a_stop_of_a_placed_run_marks_its_orders() -> None:
    """The run is stopped through its node's desired state, and ends when the agent says so."""
    world = cluster(1)
    world.offer(request(1))
    assert world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=1, reason="cancelled")) == []
    assert world.stops("n1") == {"1.1": "cancelled"}
    assert world.core.state.touched == {"n1"}
    [ended] = world.exit("n1", "1", outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.outcome, ended.drained) == ("stopped", False)


@pytest.mark.parametrize(
    ("event", "stop"),
    [
        (ev.JobStopRequested(cause="cmd:9", job="1", attempt=1, reason="cancelled"), "cancelled"),
        (ev.OfferWithdrawn(cause="cmd:9", job="1", attempt=1, reason="hold"), ""),
    ],
)
def test_a_stop_that_crosses_the_placement_stops_the_run_and_a_withdrawal_does_not(event: ev.Event, stop: str) -> None:
    """The event is in the log before the commit that placed the job. After a stop the run begins as stopping; a withdrawal
    is too late, for a hold stops no run.
    """
    world = cluster(1)
    world.fold("queue", list(world.submitted(request(1))))
    decision = world.decide()
    world.fold("queue", [event])
    world.fold("placer", decision.events)
    assert world.stops("n1") == {"1.1": stop}
    assert world.step() == []


def test_repeated_reports_change_nothing() -> None:
    """A batch that comes again is passed over whole: no events, no cursor."""
    world = cluster(1)
    world.offer(request(1))
    batch = world.batch("n1", StartSeen(n=0, job="1", attempt=1, rank=0))
    assert names(world.step(batch)) == ["RunStarted"]
    decision = world.decide(batch)
    assert (decision.events, decision.cursors) == ([], {})


def test_a_message_with_old_and_new_reports_is_taken_from_where_we_are() -> None:
    """An agent resends from what it thinks is unconfirmed: what is known is passed over, the rest is taken up."""
    world = cluster(1)
    world.offer(request(1))
    first = world.batch("n1", StartSeen(n=0, job="1", attempt=1, rank=0)).body
    world.step(Input("report", 2, first))
    end = ExitSeen(n=3, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True)
    both = ReportBatch(node="n1", incarnation=first.incarnation, reports=[*first.reports, end])
    assert names(world.step(Input("report", 3, both))) == ["RunEnded"]


def test_a_gap_waits_for_what_is_missing() -> None:
    """A report whose predecessor never came is not taken up, until it has."""
    world = cluster(1)
    world.offer(request(1))
    start = world.batch("n1", StartSeen(n=0, job="1", attempt=1, rank=0))
    end = world.batch("n1", ExitSeen(n=0, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True))
    assert world.step(end) == []
    assert names(world.step(start, end)) == ["RunStarted", "RunEnded"]


def test_an_unauthorised_start_is_rejected() -> None:
    """A rank that was never placed on the node is recorded as rejected, and its number is consumed."""
    world = cluster(1)
    [rejected] = world.start("n1", "77")
    assert isinstance(rejected, ev.ReportRejected)
    assert (rejected.node, rejected.code, rejected.cause) == ("n1", "not_authorised", "report:n1:2")
    assert world.core.state.nodes["n1"].reported == 2


def test_a_node_cannot_speak_for_another_rank() -> None:
    """A gang's rank is reported by its own node only."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    [rejected] = world.exit("n1", "1", 1)
    assert isinstance(rejected, ev.ReportRejected)
    assert rejected.code == "wrong_rank"
    assert world.core.state.runs["1.1"].ended == 0


def test_the_end_of_a_run_that_is_gone_is_ignored() -> None:
    """No event, and the number moves."""
    world = cluster(1)
    assert world.exit("n1", "77") == []
    assert world.core.state.nodes["n1"].reported == 2


def test_an_array_shares_its_parents_spec() -> None:
    """Elements are placed with the array's request; the spec is kept until the array is done."""
    world = cluster(1)
    submitted, _ = world.submitted(request(1), job="5")
    events = world.queue(submitted, *(ev.JobOffered(cause="clock", job=f"5_{i}", attempt=1, rank=i) for i in range(3)))
    assert sorted(placed(events)) == ["5_0", "5_1", "5_2"]
    world.exit("n1", "5_0")
    world.queue(ev.JobSucceeded(cause="1.0", job="5_0", attempt=1))
    assert set(world.core.state.jobs) == {"5"}
    world.queue(ev.JobSucceeded(cause="1.0", job="5"))
    assert world.core.state.jobs == {}


def test_finished_jobs_leave_nothing() -> None:
    """Success, failure and cancellation all let go of the spec."""
    world = cluster(1)
    for end in (
        ev.JobSucceeded(cause="c", job="1"),
        ev.JobFailed(cause="c", job="2", reason="exit_code"),
        ev.JobCancelled(cause="c", job="3"),
    ):
        world.offer(request(1))
        world.exit("n1", end.job)
        world.queue(end)
    assert (world.core.state.jobs, world.core.state.runs) == ({}, {})


def test_the_image_of_a_run_is_in_the_log() -> None:
    """By its digest: of a run on one node with its start, of a gang with each rank's."""
    world = cluster(2, 2)
    world.offer(request(1))
    node = next(iter(world.core.state.runs["1.1"].parts)).node
    [start] = world.report(node, StartSeen(n=0, job="1", attempt=1, rank=0, image="x@sha256:12"))
    assert isinstance(start, ev.RunStarted) and start.image == "x@sha256:12"
    world.offer(request(1, nodes=2))
    parts = world.core.state.runs["2.1"].parts
    told = [
        world.report(part.node, StartSeen(n=0, job="2", attempt=1, rank=rank, image=f"x@sha256:{rank}"))
        for rank, part in enumerate(parts)
    ]
    assert [getattr(event, "image", None) for events in told for event in events] == ["x@sha256:0", "x@sha256:1", ""]


def started_gang() -> PlacerWorld:
    """Job 1 runs on n1 and n2."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    world.start("n1", "1", 0)
    world.start("n2", "1", 1)
    return world


def test_an_end_says_how_long_the_run_ran_by_its_node() -> None:
    """It is the time of the rank that decided the outcome; a time below zero is none."""
    for seen_ns, counted_ns in ((7 * SECOND, 7 * SECOND), (-1, 0)):
        world = started_gang()
        failed = ExitSeen(n=0, job="1", attempt=1, rank=1, outcome="exited", exit_code=1, clean=True, ran_ns=seen_ns)
        [end] = [each for each in world.report("n2", failed) if isinstance(each, ev.RankEnded)]
        assert end.ran_ns == counted_ns
        last = msgspec.structs.replace(failed, rank=0, exit_code=0, ran_ns=9 * SECOND)
        [end] = [each for each in world.report("n1", last) if isinstance(each, ev.RunEnded)]
        assert (end.rank, end.ran_ns) == (1, counted_ns)


def test_a_time_limit_is_handed_to_the_agents_until_a_rank_ends() -> None:
    """The order names the time that the run is to have run; a gang that has lost a rank is stopped at once."""
    world = started_gang()
    world.queue(ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="time_limit", ran_ns=9 * SECOND))
    book = OrderBook()

    def asked() -> tuple[str, int]:
        state = world.core.state
        [order] = decode_desired(book.desired(state, state.nodes["n1"])).runs
        return order.stop, order.ran_ns

    assert asked() == ("time_limit", 9 * SECOND)
    assert PlacerCore.restore(world.core.snapshot()).state.runs["1.1"].ran_ns == 9 * SECOND
    world.exit("n2", "1", 1, exit_code=1)
    assert asked() == ("time_limit", 0)


def limited_world() -> PlacerWorld:
    """A gang that was asked to stop for its time limit, which its agents hold back."""
    world = started_gang()
    world.queue(ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="time_limit", ran_ns=9 * SECOND))
    return world


def asked_of(world: PlacerWorld) -> set[tuple[str, int]]:
    """(reason, run time to wait for) of the orders of both ranks."""
    return {(order.stop, order.ran_ns) for node in ("n1", "n2") for order in world.orders(node).values()}


def test_a_cancel_replaces_a_held_back_limit() -> None:
    """It waits for nothing; the same holds for what the queue asks back."""
    for reason in ("cancelled", "reclaimed", "idle"):
        world = limited_world()
        world.queue(ev.JobStopRequested(cause="x", job="1", attempt=1, reason=reason))
        assert asked_of(world) == {(reason, 0)}


def test_a_drain_replaces_a_postponed_limit() -> None:
    """The end names the drain as its reason: the job continues elsewhere with the rest of its time."""
    world = limited_world()
    world.command(DrainNode(id="d", node="n2", deadline_ns=5 * SECOND))
    assert asked_of(world) == {("time_limit", 9 * SECOND)}
    world.now += 5 * SECOND
    world.step()
    assert asked_of(world) == {("drained", 0)}
    world.exit("n1", "1", 0, outcome="stopped", exit_code=143)
    [end] = [
        each for each in world.exit("n2", "1", 1, outcome="stopped", exit_code=143) if isinstance(each, ev.RunEnded)
    ]
    assert (end.outcome, end.drained) == ("stopped", True)


def test_a_limit_does_not_hold_back_a_stop_that_has_begun() -> None:
    """The limit comes while the run is being drained: its orders stay as they are."""
    world = started_gang()
    world.command(DrainNode(id="d", node="n2", deadline_ns=SECOND))
    world.now += SECOND
    world.step()
    before = asked_of(world)
    world.queue(ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="time_limit", ran_ns=9 * SECOND))
    assert asked_of(world) == before == {("drained", 0)}
