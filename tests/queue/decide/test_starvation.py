"""No starvation: the stated bound, and its proof under load. The first job of its pool's order that the placer or a
limit refuses gets a reservation after the pool's patience, one at a time for placement and one under each limit; a
placer that keeps freed capacity for it starts it within the patience and the longest run that blocks it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.queuefile.settings import Budget, Preemption, Reclaim
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.cluster import SimulatedCluster

PATIENCE_S = 30


def world_with(nodes: int = 1, gpus: int = 4, *, careful: bool = True, sequencer: str = "drf") -> SimulatedCluster:
    """A small cluster and a short patience."""
    world = QueueWorld(careful=careful)
    world.pool(patience_ns=PATIENCE_S * SECOND, sequencer=sequencer)
    return SimulatedCluster(world, nodes, gpus)


def test_the_first_in_order_gets_a_reservation_after_the_patience_and_not_before() -> None:
    """Once; the next only when it has its place."""
    cluster = world_with()
    world = cluster.world
    cluster.submit(500, 2)
    first, second = cluster.submit(1, 4), cluster.submit(1, 4)
    begun = world.now
    cluster.run(PATIENCE_S - 1)
    assert world.said(ev.ReservationRequested) == []
    cluster.run(1)
    (asked,) = world.said(ev.ReservationRequested)
    assert (asked.job, asked.queue, asked.waited_ns) == (first, "", PATIENCE_S * SECOND)
    cluster.run(400)
    assert len(world.said(ev.ReservationRequested)) == 1
    cluster.run(100)
    assert cluster.started[first] == begun + 500 * SECOND
    assert [each.job for each in world.said(ev.ReservationRequested)] == [first, second]
    assert cluster.started[second] == begun + 501 * SECOND


@pytest.mark.slow
@pytest.mark.parametrize("sequencer", ["drf", "fifo", "fairshare"])
@settings(max_examples=15, deadline=None)
@given(
    big=st.sampled_from([(4, 2), (4, 1), (3, 2), (2, 2)]),
    path=st.sampled_from(["a", "b"]),
    stream=st.lists(
        st.tuples(st.sampled_from([1, 1, 2]), st.integers(1, 40), st.integers(0, 2)), min_size=30, max_size=60
    ),
)
def test_a_big_job_in_a_stream_of_small_ones_starts_within_the_bound(
    sequencer: str, big: tuple[int, int], path: str, stream: list[tuple[int, int, int]]
) -> None:
    """Patience, then the longest run that blocks it; in the stream's own queue or in another."""
    cluster = world_with(2, 4, careful=False, sequencer=sequencer)
    cluster.world.tree(a={}, b={})
    for gpus, seconds, pause in stream[:10]:
        cluster.submit(seconds, gpus, queue="a")
        cluster.run(pause)
    job = cluster.submit(10, queue=path, request=request(big[0], nodes=big[1]))
    begun, longest = cluster.world.now, 40
    for gpus, seconds, pause in stream[10:] * 9:
        cluster.submit(seconds, gpus, queue="a")
        cluster.run(pause)
        if job in cluster.started or cluster.world.now > begun + 200 * SECOND:
            break
    cluster.run(PATIENCE_S + longest)
    # Those that were first in order before it, in its own queue, have waited longer, and are spoken for first.
    assert cluster.started[job] <= begun + (PATIENCE_S + 2 * longest + 1) * SECOND


@pytest.mark.parametrize("limit", ["queue", "above", "user"])
def test_a_starving_job_refused_by_a_limit_is_helped_under_that_limit(limit: str) -> None:
    """For any limit, and whatever other offers wait for placement meanwhile."""
    cluster = world_with(2, 8)
    world = cluster.world
    two = {"maximum": {"gpu": 2_000}}
    world.tree(
        org=two if limit == "above" else {},
        org__a=two if limit == "queue" else {},
        org__b={},
        u={"users": {"*": {"gpu": 2_000}}},
    )
    path = "u" if limit == "user" else "org/a"
    for gpus in (8, 6):
        cluster.submit(10_000, gpus)
    stuck = cluster.submit(10, 8)
    for seconds in (12, 20):
        cluster.submit(seconds, 1, queue=path)
    cluster.run(1)
    big, begun = cluster.submit(10, 2, queue=path), world.now
    for _ in range(60):
        cluster.submit(20, 1, queue=path)
        cluster.run(1)
        if big in cluster.started:
            break
    expected = {"queue": "org/a", "above": "org", "user": "u/@ada"}[limit]
    assert (big, expected) in [(each.job, each.queue) for each in world.said(ev.ReservationRequested)]
    assert stuck not in cluster.started
    assert cluster.started[big] <= begun + (PATIENCE_S + 20 + 2) * SECOND


def test_capacity_that_can_never_be_freed_is_not_reserved() -> None:
    """A sibling never lends it: the small jobs of the queue continue, and the big one gets its reason."""
    cluster = world_with(2, 8)
    world = cluster.world
    world.tree(
        org={"maximum": {"gpu": 10_000}}, org__a={"guaranteed": {"gpu": 8_000}, "lending": {"gpu": 0}}, org__b={}
    )
    big = cluster.submit(10, 4, queue="org/b")
    for _ in range(50):
        cluster.submit(3, 1, queue="org/b")
        cluster.run(2)
    assert world.said(ev.ReservationRequested) == []
    assert len(cluster.started) == 50
    assert [e.reason for e in world.said(ev.JobDeferred) if e.job == big] == ["reserved"]


def test_an_impossible_reservation_is_requested_again_but_seldom() -> None:
    """No node could serve it: the placer refuses at once, and the next in order has its turn."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    world.node(gpus=8)
    job = world.submit(8)
    world.refuse(job)
    asked = 0
    for _ in range(60):
        for event in world.pass_time():
            if isinstance(event, ev.ReservationRequested):
                asked += 1
                world.unreserve(job)
                world.refuse(job)
    assert 3 <= asked <= 7


def test_a_starving_job_that_is_placed_or_cancelled_leaves_no_reservation() -> None:
    """The two commits cross: the next job in order is helped in its turn."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    jobs = [world.submit(8) for _ in range(3)]
    world.refuse(*jobs)
    world.now += PATIENCE_S * SECOND
    events = world.decide()
    assert [type(event) for event in events] == [ev.ReservationRequested]
    world.place(jobs[0])
    world.fold("queue", events)
    assert world.state.pools["default"].claimant == ""
    world.pass_time()
    assert world.said(ev.ReservationRequested)[-1].job == jobs[1]
    world.restart()
    world.cancel(jobs[1])
    world.give_back(jobs[1])
    world.pass_time()
    assert world.said(ev.ReservationRequested)[-1].job == jobs[2]


def test_a_reservation_request_that_crosses_the_offers_return_reserves_nothing() -> None:
    """The job is queued again; nothing of the pool is kept for it."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    job = world.submit(8)
    world.refuse(job)
    world.now += PATIENCE_S * SECOND
    events = world.decide()
    world.fold("queue", [ev.OfferWithdrawn(cause="clock", job=job, attempt=1, reason="order")])
    world.give_back(job)
    world.fold("queue", events)
    assert [type(event) for event in events] == [ev.ReservationRequested]
    assert world.state.pools["default"].tree.root.claim is None


def test_nothing_is_kept_for_an_array_that_is_being_stopped() -> None:
    """Its elements may take long to end; what is free meanwhile is for others."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    world.tree(a={"users": {"*": {"gpu": 4_000}}})
    array = world.submit(2, queue="a", array=(0, 2))
    world.settle()
    world.run(f"{array}_0", f"{array}_1")
    world.pass_time(PATIENCE_S)
    assert [(e.job, e.queue) for e in world.said(ev.ReservationRequested)] == [(array, "a/@ada")]
    world.cancel(array)
    assert world.state.pools["default"].tree.nodes["a/@ada"].claim is None


def test_capacity_that_the_whole_pool_reserves_is_claimed_of_the_whole_pool() -> None:
    """The limit is that of the root: a queue keeps the part that it does not lend, and the rest is one line."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    world.node(gpus=8)
    world.tree(kept={"guaranteed": {"gpu": 2_000}, "lending": {"gpu": 0}}, free={})
    runs = [world.submit(1, queue="free") for _ in range(6)]
    world.run(*runs)
    big = world.submit(2, queue="free")
    world.pass_time(PATIENCE_S + 1)
    assert [(e.job, e.queue) for e in world.said(ev.ReservationRequested)] == [(big, "")]
    world.restart()
    small = world.submit(1, queue="free")
    for run in runs[:2]:
        world.end(run)
        world.settle()
    assert (world.of(big), world.of(small)) == ("offered", "queued")
    assert world.state.pools["default"].tree.root.claim is None


def entitled_and_borrower(sequencer: str, reclaim: Reclaim = "any") -> SimulatedCluster:
    """Three nodes, a patience of 3 s: `team` lends its guarantee, `kept` lends nothing, `default` borrows."""
    world = QueueWorld()
    world.pool(patience_ns=3 * SECOND, sequencer=sequencer)
    cluster = SimulatedCluster(world, 3, 4)
    world.tree(
        default={"preemption": Preemption(protect_ns=SECOND)},
        team={"guaranteed": {"gpu": 4_000}, "preemption": Preemption(reclaim=reclaim)},
        kept={"guaranteed": {"gpu": 4_000}, "lending": {"gpu": 0}},
    )
    return cluster


@pytest.mark.parametrize("sequencer", ["drf", "fifo", "fairshare"])
@pytest.mark.parametrize(("waiting", "entitled"), [(1, 1), (4, 1), (1, 4), (4, 4)])
def test_a_claim_under_a_limit_holds_against_no_queue_within_its_guarantee(
    sequencer: str, waiting: int, entitled: int
) -> None:
    """The borrowers run without an end, so the borrower's waiting job claims and cannot start: the queue that is within its
    guarantee gets what they hold."""
    cluster = entitled_and_borrower(sequencer)
    world = cluster.world
    for _ in range(8):
        cluster.submit(10_000, 1)
    cluster.run(1)
    claimant = cluster.submit(10, waiting)
    cluster.run(5)
    assert [each.job for each in world.said(ev.ReservationRequested)] == [claimant]
    owed, begun = cluster.submit(10, entitled, queue="team"), world.now
    cluster.run(10)
    assert cluster.started[owed] <= begun + 5 * SECOND
    assert claimant not in cluster.started


@pytest.mark.parametrize("sequencer", ["drf", "fifo", "fairshare"])
@pytest.mark.parametrize("reclaim", ["any", "never"])
def test_places_kept_for_a_borrower_go_to_a_job_within_its_guarantee(sequencer: str, reclaim: Reclaim) -> None:
    """All nodes are kept for a borrower's wide job. The entitled job gets the first place that comes free, and the wide job
    starts when the runs have ended, asked back only once."""
    cluster = entitled_and_borrower(sequencer, reclaim)
    world = cluster.world
    world.remove("kept")
    for number in range(12):
        cluster.submit(60 + 10 * number, 1)
    cluster.run(1)
    wide = cluster.submit(10, request=request(4, nodes=3))
    cluster.run(5)
    assert [each.job for each in world.said(ev.ReservationRequested)] == [wide]
    owed = cluster.submit(10, 1, queue="team")
    cluster.run(60)
    assert owed in cluster.started
    assert [(each.job, each.reason) for each in world.said(ev.OfferWithdrawn)] == [(wide, "order")]
    cluster.run(120)
    assert wide in cluster.started


def test_a_job_for_which_no_place_can_be_kept_takes_none_from_others() -> None:
    """Its guarantee entitles it, but no node can ever serve it: the reservation of the other job stays."""
    world = QueueWorld()
    world.pool(patience_ns=3 * SECOND)
    world.node(gpus=8)
    world.tree(team={"guaranteed": {"gpu": 4_000}, "preemption": Preemption(reclaim="never")})
    owed = world.submit(request=request(2, nodes=2), queue="team")
    world.refuse(owed)
    world.pass_time(4)
    world.unreserve(owed)
    other = world.submit(1)
    world.fold(
        "queue", [ev.ReservationRequested(cause=world.state.jobs[other].cause, job=other, attempt=1, waited_ns=1)]
    )
    assert world.state.pools["default"].claimant == other
    world.pass_time(60)
    assert world.said(ev.OfferWithdrawn) == []


@pytest.mark.parametrize("change", ["lowered limit", "node gone", "guarantee not lent", "spent budget"])
def test_a_claim_that_can_no_longer_succeed_lapses(change: str) -> None:
    """Nothing is kept for a job that could not start even if nothing ran."""
    world = QueueWorld()
    world.pool(patience_ns=PATIENCE_S * SECOND)
    world.node("n0", gpus=4)
    world.node("n1", gpus=4)
    world.tree(org={"maximum": {"gpu": 8_000}}, org__a={}, org__b={}, lab={})
    running = world.submit(request=request(4, nodes=2), queue="org/a")
    world.run(running)
    claimant = world.submit(request=request(3, nodes=2), queue="org/b")
    world.pass_time(PATIENCE_S + 1)
    org = world.state.pools["default"].tree.nodes["org"]
    assert org.claim is not None and org.claim.holder == claimant
    match change:
        case "lowered limit":
            world.configure("org", maximum={"gpu": 4_000})
        case "node gone":
            world.fold("placer", [ev.NodeRemoved(cause="clock", node="n1")])
        case "guarantee not lent":
            world.configure("org/a", guaranteed={"gpu": 4_000}, lending={"gpu": 0})
        case _:
            budget = Budget(gpu_milli_s=1_000)
            world.configure("org/b", budget=budget)
            world.fold(
                "queue",
                [ev.BudgetReached(cause="clock", queue="org/b", percent=100, spent=1, budget=1_000, period_ns=0)],
            )
    assert org.claim is None
    assert world.state.jobs[claimant].lane.claim == ""


jobs_of = st.lists(
    st.tuples(
        st.integers(0, 20),  # pause before it, in seconds
        st.sampled_from([1, 1, 2, 3, 4]),  # GPUs
        st.sampled_from([1, 1, 2]),  # nodes
        st.integers(1, 60),  # seconds of work
        st.sampled_from(["a", "b", "c/d", "c/e"]),
    ),
    min_size=5,
    max_size=40,
)


@pytest.mark.parametrize("sequencer", ["drf", "fifo", "fairshare"])
@settings(max_examples=15, deadline=None)
@given(jobs=jobs_of, maximum=st.sampled_from([4_000, 6_000, 16_000]))
def test_every_job_that_can_run_starts(
    sequencer: str, jobs: list[tuple[int, int, int, int, str]], maximum: int
) -> None:
    """Random load in queues with limits, equal priorities: each job that could run alone starts within the time of all
    work before it and with it."""
    cluster = world_with(2, 4, careful=False, sequencer=sequencer)
    world = cluster.world
    calm = Preemption(reclaim="never")
    world.tree(
        a={"maximum": {"gpu": maximum}, "preemption": calm},
        b={"weight": 3, "preemption": calm},
        c={"maximum": {"gpu": 8_000}},
        c__d={"preemption": calm},
        c__e={"preemption": calm},
    )
    most = {"a": maximum, "b": 8_000, "c/d": 8_000, "c/e": 8_000}
    begun: dict[str, int] = {}
    for pause, gpus, nodes, seconds, path in jobs:
        if gpus * nodes * 1000 <= most[path]:
            job = cluster.submit(seconds, queue=path, request=request(gpus, nodes=nodes))
            begun[job] = world.now
        cluster.run(pause)
    work = sum(each for _, _, _, each, _ in jobs)
    cluster.run(work + (PATIENCE_S + 60) * len(jobs))
    assert cluster.started.keys() == begun.keys()
    assert world.state.jobs == {}
