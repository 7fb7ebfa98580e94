"""Trees of queues through the core: borrowing and lending, guarantees, users, model classes, and who goes first."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.cluster import SimulatedCluster


def offers(events: list[Any]) -> list[str]:
    """Jobs that are offered, in order."""
    return [event.job for event in events if isinstance(event, ev.JobOffered)]


def queues_of(world: QueueWorld, jobs: list[str]) -> list[str]:
    """The queue of each, by its submit."""
    queue_of = {event.job: event.queue for event in world.said(ev.JobSubmitted)}
    return [queue_of[job] for job in jobs]


# ---------------------------------------------------------------------------------------- borrowing and lending


def test_a_queue_borrows_beyond_its_guarantee_as_far_as_it_may() -> None:
    """`borrowing` beyond the guarantee, the maximum whatever it borrows; the lower of the two holds."""
    for settings_, most in (
        ({"borrowing": {"gpu": 2_000}}, 6),
        ({"borrowing": {"gpu": 4_000}, "maximum": {"gpu": 5_000}}, 5),
        ({"borrowing": {"gpu": 0}}, 4),
        ({}, 8),
    ):
        world = QueueWorld()
        world.tree(q={"guaranteed": {"gpu": 4_000}} | settings_)
        world.ask(*(world.submission(1, queue="q") for _ in range(8)))
        world.settle()
        assert world.charged("q") == most * 1_000


@pytest.mark.parametrize("sequencer", ["drf", "fairshare", "fifo", "lifo", "promised"])
def test_a_job_refused_for_a_reservation_does_not_precede_its_owner(sequencer: str) -> None:
    """A sibling whose turn comes first waits for the rest; the reservation is offered to its owner."""
    world = QueueWorld()
    world.pool(sequencer=sequencer)
    world.node(gpus=16)
    world.tree(
        org={"maximum": {"gpu": 10_000}}, org__a={"guaranteed": {"gpu": 6_000}, "lending": {"gpu": 0}}, org__b={}
    )
    world.run(world.submit(4, queue="org/b"))
    first, owner = world.submission(1, queue="org/b", priority=90), world.submission(1, queue="org/a")
    accepted = [event.job for event in world.ask(first, owner) if isinstance(event, ev.JobSubmitted)]
    world.pass_time()
    assert [world.of(job) for job in accepted] == ["queued", "offered"]


def test_unlent_capacity_stays_free_for_its_owner() -> None:
    """At every level: siblings share the lent part, and the owner uses its own at once."""
    world = QueueWorld()
    world.node("n1", gpus=16)
    world.tree(
        org={"maximum": {"gpu": 8_000}},
        org__a={"guaranteed": {"gpu": 6_000}, "lending": {"gpu": 2_000}},
        org__b={},
        other={},
    )
    world.ask(*(world.submission(1, queue="org/b") for _ in range(8)))
    world.ask(*(world.submission(1, queue="other") for _ in range(16)))
    world.settle()
    assert (world.charged("org/b"), world.charged("other")) == (4_000, 8_000)
    world.submit(4, queue="org/a")
    assert world.charged("org/a") == 4_000
    waits = world.submit(1, queue="org/a")
    (said,) = [e for e in world.said(ev.JobDeferred) if e.job == waits]
    assert (said.queue, said.held, said.ceiling) == ("org", 8_000, 8_000)


def test_limits_hold_at_every_level_for_every_resource() -> None:
    """GPUs of the queue, CPUs of the one above, memory at the top."""
    world = QueueWorld()
    world.tree(
        a={"maximum": {"memory": 4_096}}, a__b={"maximum": {"cpu": 6_000}}, a__b__c={"maximum": {"gpu": 2_000}}, a__d={}
    )
    for _ in range(5):
        world.submit(1, queue="a/b/c", request=request(1, cpu=1))
        world.submit(0, queue="a/b/c", request=request(0, cpu=2, memory_mib=0))
        world.submit(0, queue="a/d", request=request(0, cpu=1))
    world.settle()
    assert [world.charged(*each) for each in (("a/b/c", "gpu"), ("a/b", "cpu"), ("a", "memory"))] == [
        2_000,
        6_000,
        4_096,
    ]


# ---------------------------------------------------------------------------------------- guarantees


def test_queues_within_their_guarantee_go_first() -> None:
    """Then by shares, whatever the submit order."""
    world = QueueWorld()
    world.node("n1", gpus=8)
    world.tree(a={}, b={"guaranteed": {"gpu": 2_000}}, c={"priority": 10})
    submits = [world.submission(1, queue=path) for path in ("a", "a", "a", "c", "b", "b", "b")]
    assert queues_of(world, offers(world.ask(*submits)))[:4] == ["b", "b", "c", "a"]


guaranteed_trees = st.fixed_dictionaries(
    {
        "a": st.sampled_from([0, 2_000, 4_000]),
        "b": st.sampled_from([0, 2_000, 4_000]),
        "c/x": st.sampled_from([0, 2_000]),
        "c/y": st.sampled_from([0, 2_000, 4_000]),
    }
)
demands = st.fixed_dictionaries({path: st.integers(0, 8) for path in ("a", "b", "c/x", "c/y")})


@settings(max_examples=30, deadline=None)
@given(
    guaranteed=guaranteed_trees, demand=demands, first=st.permutations(["a", "b", "c/x", "c/y"]), maximum=st.booleans()
)
def test_guarantees_are_met_if_there_are_demand_and_capacity(
    guaranteed: dict[str, int], demand: dict[str, int], first: list[str], maximum: bool
) -> None:
    """Even if one queue came first and took everything: soon each queue and each parent runs its guarantee, or all of
    its demand."""
    world = QueueWorld(careful=False)
    cluster = SimulatedCluster(world, 1, 16)
    soon = Preemption(protect_ns=SECOND)
    world.tree(
        **{
            path.replace("/", "__"): {"guaranteed": {"gpu": amount}, "preemption": soon}
            for path, amount in guaranteed.items()
        },
        **({"c": {"guaranteed": {"gpu": 6_000}, "maximum": {"gpu": 8_000}}} if maximum else {"c": {}}),
    )
    for path in first:
        for _ in range(demand[path]):
            cluster.submit(10_000, 1, queue=path)
        cluster.run(1)
    cluster.run(200)
    running = {path: sum(1 for job in cluster.runs if queues_of(world, [job]) == [path]) for path in demand}
    for path, amount in guaranteed.items():
        assert running[path] >= min(demand[path], amount // 1000), (running, path)
    below = demand["c/x"] + demand["c/y"]
    assert running["c/x"] + running["c/y"] >= min(below, 6 if maximum else 0)
    assert sum(running.values()) == min(16, demand["a"] + demand["b"] + (min(below, 8) if maximum else below))


def test_a_parents_guarantee_is_met_for_children_without_one() -> None:
    """The children take the capacity guaranteed to an organisation from other organisations, not from each other."""
    world = QueueWorld(careful=False)
    cluster = SimulatedCluster(world, 1, 8)
    soon = Preemption(protect_ns=SECOND)
    world.tree(
        org={"guaranteed": {"gpu": 4_000}},
        org__a={"preemption": soon},
        org__b={"preemption": soon},
        other={"preemption": soon},
    )
    for _ in range(8):
        cluster.submit(10_000, 1, queue="other")
    cluster.run(5)
    for path in ("org/a", "org/b"):
        for _ in range(4):
            cluster.submit(10_000, 1, queue=path)
    cluster.run(120)
    assert sorted(queues_of(world, list(cluster.runs))) == ["org/a"] * 2 + ["org/b"] * 2 + ["other"] * 4


# ---------------------------------------------------------------------------------------- users and models


def test_every_user_has_his_own_limit_and_those_not_named_the_default() -> None:
    """A user who is named with nothing is not limited; the queue's own maximum holds for all of them."""
    world = QueueWorld()
    world.configure("q", users={"*": {"gpu": 1_000}, "ada": {"gpu": 3_000}, "root": {}}, maximum={"gpu": 12_000})
    for user in ("ada", "bob", "eve", "root"):
        world.ask(*(world.submission(1, queue="q", user=user) for _ in range(6)))
    world.settle()
    held = {leaf.user: leaf.node.usage[0] for leaf in world.state.queues["q"].leaves.values()}
    assert held == {"ada": 3_000, "bob": 1_000, "eve": 1_000, "root": 6_000}
    world.ask(*(world.submission(1, queue="q", user="root") for _ in range(6)))
    assert world.charged("q") == 12_000


def test_gpus_are_counted_by_model_where_they_are_limited_by_it() -> None:
    """A job must say which it means; those of other models, and those without GPUs, are not held up."""
    world = QueueWorld()
    world.node("n1", gpus=8, model="a100")
    world.node("n2", gpus=8, model="l40s")
    world.tree(org={"maximum": {"gpu:a100": 4_000, "gpu": 10_000}}, org__a={})
    (refused,) = world.ask(world.submission(1, queue="org/a"))
    assert (refused.code, refused.field) == ("model_needed", "nodeSelector.nvidia.com/gpu.product")
    assert refused.message == (
        "queue org counts GPUs by model; name one in nodeSelector, such as nvidia.com/gpu.product: a100"
    )
    world.submit(queue="org/a", request=request(0))
    for model in ("a100", "l40s"):
        world.ask(*(world.submission(queue="org/a", request=request(2, model=model)) for _ in range(4)))
    world.settle()
    assert [world.charged("org", each) for each in ("gpu", "gpu:a100")] == [10_000, 4_000]
    assert world.state.pools["default"].tree.capacity[3] == 8_000


# ---------------------------------------------------------------------------------------- order across the tree


def test_turns_follow_dominant_shares_across_the_tree() -> None:
    """Organisations by their weights, their teams among themselves; a queue that needs another resource does not
    interfere."""
    world = QueueWorld()
    world.node("n1", gpus=24, cpu=24)
    world.tree(x={"weight": 2}, x__a={}, x__b={}, y={})
    submits = [
        world.submission(1, queue=path, request=request(1, cpu=1)) for path in ("x/a", "x/b", "y") for _ in range(8)
    ]
    given_ = queues_of(world, offers(world.ask(*submits)))
    assert [given_[:9].count(path) for path in ("x/a", "x/b", "y")] == [3, 3, 3]


def test_with_equal_shares_the_earlier_job_has_its_turn() -> None:
    """The names of the queues do not matter."""
    world = QueueWorld()
    world.node("n1", gpus=8)
    world.tree(a={}, b={}, c={})
    given_ = queues_of(world, offers(world.ask(*(world.submission(1, queue=path) for path in ("c", "a", "b")))))
    assert given_ == ["c", "a", "b"]


@pytest.mark.parametrize("sequencer", ["drf", "fifo", "lifo", "fairshare", "promised"])
def test_usage_never_exceeds_any_limit_whatever_the_sequencer(sequencer: str) -> None:
    """Filled to the brim, by everybody at once."""
    world = QueueWorld()
    world.node("n1", gpus=32)
    world.pool(sequencer=sequencer)
    world.tree(
        o={"maximum": {"gpu": 10_000}},
        o__a={"guaranteed": {"gpu": 2_000}, "borrowing": {"gpu": 3_000}},
        o__b={"users": {"*": {"gpu": 2_000}}},
        o__c={"maximum": {"gpu": 4_000}},
    )
    for user in ("ada", "bob"):
        for path in ("o/a", "o/b", "o/c"):
            world.ask(*(world.submission(gpus, queue=path, user=user) for gpus in (1, 2, 3, 1)))
    world.settle()
    charged = {path: world.charged(path) for path in ("o", "o/a", "o/b", "o/c")}
    assert charged["o"] == 10_000
    assert charged["o/a"] <= 5_000 and charged["o/b"] <= 4_000 and charged["o/c"] <= 4_000
