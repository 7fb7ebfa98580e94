"""Offers in order, parked classes, and the recorded causes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import Offer
from fairlead_placer.explain.reasons import cause_of, refusal
from fairlead_placer.scheduling import allocate
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX, encode_commit
from fairlead_schemas.wire.placement_causes import CAUSES
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, inventory, names, placed, request


def test_offers_are_taken_in_rank_order() -> None:
    """The lower rank is placed first, whatever order the offers came in."""
    world = cluster(1, 1)
    a, _ = world.submitted(request(1))
    b, _ = world.submitted(request(1))
    events = world.queue(
        a,
        b,
        ev.JobOffered(cause="clock", job="1", attempt=1, rank=20),
        ev.JobOffered(cause="clock", job="2", attempt=1, rank=10),
    )
    assert list(placed(events)) == ["2"]


def test_a_job_that_does_not_fit_lets_others_pass() -> None:
    """A job too big for now is parked; a later, smaller one is placed in the same commit."""
    world = cluster(1, 4)
    events = world.queue(*world.submitted(request(8)), *world.submitted(request(2)))
    assert names(events) == ["JobUnplaceable", "JobPlaced"]


def test_a_class_is_refused_once_for_all_its_offers() -> None:
    """Equal requests fit or do not fit together: one event, for the first of them."""
    world = cluster(1, 4)
    events = world.queue(*world.submitted(request(8)), *world.submitted(request(8)), *world.submitted(request(8)))
    assert [(type(e), e.job) for e in events if isinstance(e, ev.JobUnplaceable)] == [(ev.JobUnplaceable, "1")]


def test_a_parked_class_is_tried_again_only_when_a_node_it_could_use_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs free on a node do not wake a class that needs eight; eight do."""
    world = cluster(1, 8)
    world.offer(request(3))
    world.offer(request(5))
    world.offer(request(8))
    tried: list[int] = []
    find = allocate.find
    monkeypatch.setattr(allocate, "find", lambda state, wanted: tried.append(1) or find(state, wanted))
    world.exit("n1", "1")
    assert tried == []
    assert placed(world.exit("n1", "2")) == {"3": ["n1"]}
    assert tried


def test_reasons_are_counted_over_nodes_one_cause_each() -> None:
    """Every node is counted once, under the first cause that holds."""
    world = PlacerWorld()
    world.join("a", 8)
    world.join("b", 8)
    world.join("c", 8)
    world.join("d", 2)
    world.join("e", 8, cpu=2)
    world.join("f", 8, memory_gib=1)
    world.join("g", 8)
    world.offer(request(5, cpu=33))
    world.silent("a")
    world.command(CordonNode(id="1", node="b"), DrainNode(id="2", node="c"))
    world.offer(request(5, cpu=33, memory_gib=2))
    [refused] = world.offer(request(5, cpu=32, memory_gib=16))
    assert isinstance(refused, ev.JobUnplaceable)
    assert sum(refused.reasons.values()) == refused.nodes == 7
    assert refused.reasons == {
        "lost": 1,
        "cordoned": 1,
        "draining": 1,
        "gpus": 1,
        "free_gpus": 1,
        "cpu": 1,
        "memory": 1,
    }
    assert refused.gpu_milli_total == 50_000
    assert refused.gpu_milli_free == (2 + 8 + 8 + 3) * 1000


@pytest.mark.parametrize(
    ("constraint", "cause"),
    [
        ({"selector": ("pool=x",)}, "selector"),
        ({"gpu_memory_mib": 80_000}, "gpu_memory"),
        ({"compute_capability": 90}, "compute_capability"),
    ],
)
def test_constraints_have_causes_of_their_own(constraint: dict[str, Any], cause: str) -> None:
    """Permanent causes are named before transient ones."""
    world = cluster(1)
    world.offer(request(8))
    [refused] = world.offer(request(1, **constraint))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {cause: 1}


def test_causes_that_waiting_ends_come_last() -> None:
    """A node's cause is the first that holds: one that no end of a run ends is named before one that it does."""
    order = list(CAUSES)
    lasting = max(order.index(name) for name, cause in CAUSES.items() if cause.lasting)
    assert lasting < min(order.index(name) for name, cause in CAUSES.items() if cause.short)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 8)), max_size=6),
    gpus=st.integers(0, 5),
    cpu=st.integers(0, 5),
    memory=st.integers(0, 9),
)
def test_the_short_count_is_the_long_one(nodes: list[tuple[int, int, int]], gpus: int, cpu: int, memory: int) -> None:
    """Counting causes by rows of equal nodes gives what asking every node gives."""
    world = PlacerWorld()
    for i, (count, cores, gib) in enumerate(nodes):
        world.join(f"n{i}", count, cpu=cores, memory_gib=gib)
        if i % 3 == 1:
            world.command(CordonNode(id=str(i), node=f"n{i}"))
    world.offer(request(1, cpu=1, memory_gib=1))
    wanted = request(gpus, cpu=cpu, memory_gib=memory)
    index = world.core.state.pools.of(wanted)
    each = [cause_of(node, unit_requests(wanted)[0], "0") for node in index.members.values()]
    short = refusal(world.core.state, Offer("0", 1, 1, "1.0", wanted))
    assert short.reasons == {cause: each.count(cause) for cause in set(each) - {""}}
    assert (short.fitting, short.nodes) == (each.count(""), len(nodes))


def test_another_cause_is_reported_once() -> None:
    """A cause that was not named before is news; changed numbers are not, and a repeated cause is not."""
    world = cluster(2, 1)
    world.offer(request(2))
    assert names(world.silent("n2")) == ["NodeLost", "JobUnplaceable"]
    assert names(world.heard("n2")) == ["NodeReturned"]
    assert names(world.silent("n2")) == ["NodeLost"]


def test_a_cause_that_ended_is_reported_after_a_while() -> None:
    """Nothing is reported within the interval; the next check after it reports the current causes."""
    world = cluster(2, 1)
    world.silent("n2")
    [first] = world.offer(request(2))
    assert isinstance(first, ev.JobUnplaceable)
    assert first.reasons == {"lost": 1, "gpus": 1}
    world.now += 11 * SECOND
    events = world.heard("n2")
    assert names(events) == ["NodeReturned", "JobUnplaceable"]
    assert isinstance(events[1], ev.JobUnplaceable)
    assert events[1].reasons == {"gpus": 2}


@pytest.mark.slow
def test_a_full_cluster_with_churn_stays_silent() -> None:
    """A thousand ends and placements of two mixed classes on a full cluster: a handful of refusals, not one each."""
    world = cluster(2, 8, cpu=16)
    for _ in range(20):
        world.queue(*world.submitted(request(1)), *world.submitted(request(4, cpu=6)))
    refusals = 0
    for _ in range(300):
        key = min(world.core.state.runs)
        run = world.core.state.runs[key]
        world.now += SECOND // 100
        world.fold("queue", list(world.submitted(request(1) if world.jobs % 3 else request(4, cpu=6))))
        end = ExitSeen(n=0, job=run.job, attempt=1, rank=0, outcome="exited", exit_code=0, clean=True)
        refusals += names(world.report(run.parts[0].node, end)).count("JobUnplaceable")
    assert refusals <= 12


def test_nothing_to_decide_is_nothing() -> None:
    """At rest the core answers without events or cursors, again and again, and asks for no wake-up."""
    world = cluster(1, 1)
    world.offer(request(2))
    for _ in range(3):
        decision = world.decide()
        assert (decision.events, decision.cursors) == ([], {})
    assert world.core.wake_at() is None


def test_a_decision_that_is_lost_is_made_again() -> None:
    """Deciding twice without folding gives the same answer: what is remembered between is no state."""
    world = cluster(1, 1)
    world.fold("queue", [*world.submitted(request(2)), *world.submitted(request(1))])
    first = world.decide()
    assert names(first.events) == ["JobUnplaceable", "JobPlaced"]
    assert world.decide() == first


def test_a_commit_is_bounded_and_the_rest_follows() -> None:
    """More placements than one commit takes: wake_at says at once, and the next commit has the rest."""
    world = cluster(20, 64, cpu=200)
    for _ in range(12):
        world.fold("queue", [event for _ in range(100) for event in world.submitted(request(1))])
    first = world.decide()
    assert len(first.events) <= 1000
    assert world.core.wake_at() == 0
    world.fold("placer", first.events)
    assert len(first.events) + len(world.step()) == 1200
    assert world.core.wake_at() is None


def test_a_gang_that_fills_a_commit_travels_alone() -> None:
    """Under a steady stream of reports a gang of thousands of GPUs still gets its commit, and none is over-full."""
    world = PlacerWorld()
    world.joined({f"n{number}": inventory(f"n{number}", 8, cpu=80) for number in range(1, 501)})
    world.fold("queue", [*world.submitted(request(8, nodes=500))])
    starts = [StartSeen(n=0, job="999", attempt=1, rank=0)] * 200  # none of them authorised: 200 rejections
    for _ in range(3):
        decision = world.decide(world.batch("n1", *starts))
        world.fold("placer", decision.events, decision.cursors)
        assert len(encode_commit(world.log[-1])) <= COMMIT_BYTES_MAX
        world.numbers["n1"] = world.core.state.nodes["n1"].reported
    assert "1.1" in world.core.state.runs
    assert world.core.state.nodes["n1"].reported == 2 * len(starts)
