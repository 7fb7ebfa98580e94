"""Reasons of waiting jobs: with their numbers, once, and again when another one has held for a while."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_queue.limits import NEWS_NS, PARKED_OFFERS_MAX
from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.cluster import SimulatedCluster

AFTER_NEWS_S = NEWS_NS // SECOND + 1


def told(world: QueueWorld, job: str = "") -> list[ev.JobDeferred]:
    """Return all recorded reasons, or those of one job."""
    return [event for event in world.said(ev.JobDeferred) if job in ("", event.job)]


# ---------------------------------------------------------------------------------------- reasons


def test_a_maximum_of_the_queue_or_of_a_parent() -> None:
    """The reason names the queue, the resource, the amount held, the amount needed and the maximum."""
    world = QueueWorld()
    world.tree(org={"maximum": {"cpu": 10_000}}, org__a={"maximum": {"gpu": 4_000}})
    world.run(world.submit(3, queue="org/a"))
    own, above = world.submit(2, queue="org/a"), world.submit(queue="org/a", request=request(0, cpu=10))
    world.settle()
    (said,) = told(world, own)
    assert (said.reason, said.queue, said.resource) == ("maximum", "org/a", "gpu")
    assert (said.held, said.needed, said.ceiling) == (3_000, 2_000, 4_000)
    (said,) = told(world, above)
    assert (said.reason, said.queue, said.resource, said.held, said.ceiling) == ("maximum", "org", "cpu", 1_000, 10_000)


def test_the_limit_of_one_user() -> None:
    """The queue is named, not an internal node of the tree; another user's job continues."""
    world = QueueWorld()
    world.configure("q", users={"*": {"gpu": 2_000}})
    world.run(world.submit(2, queue="q", user="a/da"))
    waits, goes = world.submit(1, queue="q", user="a/da"), world.submit(1, queue="q", user="bob")
    (said,) = told(world)
    assert (said.job, said.reason, said.queue, said.held, said.ceiling) == (waits, "user_limit", "q", 2_000, 2_000)
    assert world.of(goes) == "offered"


def test_capacity_reserved_for_other_queues_is_named() -> None:
    """In a parent queue, and in the whole pool."""
    world = QueueWorld()
    world.node(gpus=8)
    world.tree(
        kept={"guaranteed": {"gpu": 4_000}, "lending": {"gpu": 0}},
        org={"maximum": {"gpu": 6_000}},
        org__own={"guaranteed": {"gpu": 4_000}, "lending": {"gpu": 1_000}},
        org__b={},
        free={},
    )
    in_org, in_pool = world.submit(4, queue="org/b"), world.submit(5, queue="free")
    assert [(e.job, e.reason, e.queue, e.held, e.needed, e.ceiling) for e in told(world)] == [
        (in_org, "reserved", "org", 3_000, 4_000, 6_000),
        (in_pool, "reserved", "", 7_000, 5_000, 8_000),
    ]


def test_capacity_kept_for_an_older_job_is_named() -> None:
    """With the job that it is kept for."""
    world = QueueWorld()
    world.pool(patience_ns=30 * SECOND)
    world.quota("q", 4)
    world.run(*(world.submit(1, queue="q") for _ in range(3)))
    big = world.submit(2, queue="q")
    world.pass_time(31)
    world.settle()
    small = world.submit(1, queue="q")
    (said,) = told(world, small)
    assert (said.reason, said.queue, said.holder) == ("claimed", "q", big)
    assert (said.held, said.needed, said.ceiling) == (5_000, 1_000, 4_000)


def test_a_budget_that_is_spent() -> None:
    """The queue whose it is."""
    world = QueueWorld()
    world.now = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
    world.node(gpus=8)
    world.tree(org={"budget": Budget(gpu_milli_s=1_000)}, org__a={})
    job = world.submit(1, queue="org/a")
    world.place_on("n1", 1, job)
    waits = world.submit(8, queue="org/a", start_at_ns=world.now + 5 * SECOND)
    world.pass_time(1)
    world.pass_time(5)
    (said,) = told(world, waits)
    assert (said.reason, said.queue, said.resource, said.held) == ("budget", "org", "", 0)


def test_a_turn_that_has_not_come() -> None:
    """The placer has as many offers as it looks ahead over: of the class, or in all."""
    world = QueueWorld()
    world.refuse(world.submit(8))
    jobs = [world.submit(8) for _ in range(PARKED_OFFERS_MAX + 4)]
    world.settle()
    assert [(e.job, e.reason, e.queue) for e in told(world)] == [(jobs[PARKED_OFFERS_MAX - 1], "turn", "")]


def test_the_limit_of_an_array() -> None:
    """Once, when as many of its elements live as may; not with each that ends."""
    world = QueueWorld()
    array = world.submit(array=(0, 5), array_limit=2)
    world.settle()
    for index in range(4):
        world.run(f"{array}_{index}")
        world.end(f"{array}_{index}")
        world.pass_time(AFTER_NEWS_S)
        world.restart()
    (said,) = told(world)
    assert (said.job, said.reason, said.held, said.needed, said.ceiling) == (array, "array_limit", 2, 1, 2)


# ---------------------------------------------------------------------------------------- how often


def test_a_reason_is_recorded_once_and_again_when_another_has_held_for_a_while() -> None:
    """The core wakes for it although nothing else happens, and repeated reviews do not repeat it."""
    world = QueueWorld()
    world.tree(org={"maximum": {"gpu": 4_000}}, org__a={"maximum": {"gpu": 2_000}}, org__b={})
    runs = [world.submit(2, queue="org/a"), world.submit(2, queue="org/b")]
    world.run(*runs)
    waits = world.submit(2, queue="org/a")
    begun = world.now
    for _ in range(8):
        world.pass_time(0.5)
        world.restart()
    assert [e.queue for e in told(world)] == ["org/a"]
    world.configure("org/a", maximum={"gpu": 4_000})
    world.settle()
    while world.now < begun + NEWS_NS - SECOND:
        world.pass_time(0.25)
    assert [e.queue for e in told(world)] == ["org/a"]
    for _ in range(8):
        wake_at = world.core.wake_at()
        assert wake_at is not None
        world.now = wake_at
        world.settle()
        if len(told(world)) == 2:
            break
    assert [(e.job, e.queue) for e in told(world)] == [(waits, "org/a"), (waits, "org")]
    assert world.now <= begun + NEWS_NS + SECOND


def test_a_job_that_waits_again_after_its_turn_gets_its_reason_again() -> None:
    """Its lane was empty meanwhile."""
    world = QueueWorld()
    world.quota("q", 1)
    jobs = [world.submit(1, queue="q") for _ in range(2)]
    world.run(jobs[0])
    world.end(jobs[0])
    world.settle()
    world.submit(1, queue="q")
    assert [e.job for e in told(world)] == ["2", "3"]


loads = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 3, 12]),  # pause
        st.integers(1, 6),  # GPUs
        st.integers(1, 40),  # seconds
        st.sampled_from(["org/a", "org/b", "u"]),
        st.sampled_from(["ada", "bob"]),
        st.integers(1, 4),  # how many
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(load=loads)
def test_recorded_reasons_are_true_and_not_too_frequent(load: list[tuple[int, int, int, str, str, int]]) -> None:
    """Checked at every commit: no job gets a reason to wait and an offer at once; the amount in the reason is what the
    limit holds after the commit; without an offer in the lane no reason is repeated, and no other one is recorded
    before its time."""
    world = QueueWorld(careful=False)
    cluster = SimulatedCluster(world, 2, 8)
    world.pool(patience_ns=20 * SECOND)
    world.tree(
        org={"maximum": {"gpu": 8_000}},
        org__a={"maximum": {"gpu": 6_000}},
        org__b={"guaranteed": {"gpu": 4_000}},
        u={"users": {"*": {"gpu": 3_000}}},
    )
    last: dict[tuple[str, str, Any], tuple[str, int]] = {}
    lanes: dict[str, tuple[str, str, Any]] = {}
    checked = _Checked(world, last, lanes)
    world.fold, world_fold = checked.fold, world.fold
    checked.through = world_fold
    for pause, gpus, seconds, path, user, times in load:
        for _ in range(times):
            cluster.submit(seconds, gpus, queue=path, user=user)
        cluster.run(pause)
    cluster.run(500)


class _Checked:
    """Looks at every commit of the queue as it is folded."""

    through: Any

    def __init__(self, world: QueueWorld, last: dict[Any, tuple[str, int]], lanes: dict[str, Any]) -> None:
        self.world, self.last, self.lanes = world, last, lanes

    def fold(self, writer: str, events: Any, cursors: Any = None) -> None:
        self.through(writer, events, cursors)
        offered = {event.job for event in events if isinstance(event, ev.JobOffered)}
        for event in events:
            if isinstance(event, ev.JobSubmitted):
                self.lanes[event.job] = (event.queue, event.user if event.queue == "u" else "", event.request)
        for job in offered:
            self.last.pop(self.lanes[job], None)
        for event in events:
            if isinstance(event, ev.JobDeferred):
                assert event.job not in offered
                self.check(event)

    def check(self, event: ev.JobDeferred) -> None:
        lane = self.lanes[event.job]
        reason = f"{event.reason} {event.queue} {event.resource}"
        before = self.last.get(lane)
        if before is not None:
            assert reason != before[0]
            assert self.world.now >= before[1] + NEWS_NS
        self.last[lane] = (reason, self.world.now)
        if event.resource:
            assert event.held + event.needed > event.ceiling
        if event.reason == "maximum":
            assert event.held == self.world.charged(event.queue)
            assert event.needed == lane[2].gpu_milli


@pytest.mark.parametrize("crowd", [1, 200])
def test_many_jobs_that_begin_to_wait_get_their_reasons_as_there_is_room(crowd: int) -> None:
    """The first of each kind, some at a time, and all in the end."""
    world = QueueWorld(careful=False)
    world.quota("q", 0)
    for cpu in range(1, crowd + 1):
        world.submit(queue="q", request=request(1, cpu=cpu))
    world.settle()
    assert len(told(world)) == crowd
