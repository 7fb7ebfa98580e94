"""Starts, deadlines, concurrency of arrays, ageing, the order of lines, and clocks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas import events as ev
from fairlead_schemas.commands import SubmitJob
from fairlead_schemas.jobspec import PRIORITY_MAX
from fairlead_schemas.queues import Ageing
from tests.queue.cluster import Cluster
from tests.queue.world import SECOND, World, kinds


def order(world: World, path: str) -> list[str]:
    """Jobs in a queue's lines, first to last."""
    jobs = [
        job
        for leaf in world.state.queues[path].leaves.values()
        for lane in leaf.lanes.values()
        for job in lane.waiting()
    ]
    return [job.id for job in sorted(jobs, key=lambda job: job.order)]


def closed(world: World, path: str = "closed") -> str:
    """A queue in which everybody waits."""
    world.quota(path, 0)
    return path


# ---------------------------------------------------------------------------------------- deadlines


def test_the_earliest_deadline_goes_first_among_equals() -> None:
    """Behind a higher priority, before those without one; the earlier of equal deadlines came first."""
    world = World()
    path = closed(world)
    now = world.now
    late, none, early, urgent, same = (
        world.submit(queue=path, **more)
        for more in (
            {"deadline_ns": now + 900 * SECOND}, {}, {"deadline_ns": now + 100 * SECOND}, {"priority": 60},
            {"deadline_ns": now + 100 * SECOND},
        )
    )  # fmt: skip
    assert order(world, path) == [urgent, early, same, late, none]


def test_a_missed_deadline_is_said_once_and_the_job_goes_on_behind() -> None:
    """While it waits: at the moment from which too little time is left. It is one of those without from then on."""
    world = World()
    path = closed(world)
    first = world.submit(queue=path)
    job = world.submit(queue=path, deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND)
    assert order(world, path) == [job, first]
    assert world.pass_time(39) == []
    assert world.core.wake_at() == world.now + SECOND
    (missed,) = world.pass_time(2)
    assert missed == ev.DeadlineMissed(cause="clock", job=job, deadline_ns=world.now + 59 * SECOND)
    world.restart()
    assert (order(world, path), world.pass_time(1000)) == ([first, job], [])


def test_a_run_misses_its_deadline_when_that_has_come_and_not_before() -> None:
    """However long it may run; one that ends in time misses nothing."""
    world = World()
    jobs = [world.submit(deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND) for _ in range(2)]
    world.pass_time(39)
    world.run(*jobs)
    assert world.pass_time(50) == []
    world.end(jobs[0])
    assert kinds(world.settle()) == ["JobSucceeded"]
    assert [(type(e).__name__, e.job) for e in world.pass_time(11) if isinstance(e, ev.DeadlineMissed)] == [
        ("DeadlineMissed", jobs[1])
    ]


def test_time_used_before_counts_towards_the_deadline_and_lost_time_does_not() -> None:
    """A preempted run needs the rest of its time only; one that begins anew needs all of it."""
    for preempted, left in ((True, 30), (False, 60)):
        world = World()
        path = closed(world)
        job = world.submit(deadline_ns=world.now + 200 * SECOND, total_ns=60 * SECOND, retries=1)
        world.run(job)
        world.now += 30 * SECOND
        world.quota("default", 0)
        world.yielded(job) if preempted else world.end(job, 1)
        world.settle()
        other = world.submit(queue=path, deadline_ns=world.now + 170 * SECOND)
        assert world.state.jobs[job].alarm_ns == world.now + (170 - left) * SECOND
        assert [e.job for e in world.pass_time(170 - left)] == [job]
        assert [e.job for e in world.pass_time(left)] == [other]


def test_what_cannot_be_met_is_refused() -> None:
    """With how much time is missing; from its start time on, where it has one."""
    world = World()
    for more, short in (({}, "10s"), ({"start_at_ns": world.now + 20 * SECOND}, "30s")):
        refused = world.ask(world.submission(deadline_ns=world.now + 50 * SECOND, total_ns=60 * SECOND, **more))[0]
        assert (refused.code, refused.field) == ("deadline", "deadline")
        assert refused.message == f"cannot be met: {short} too little time until then; move it or shorten time.total"


def test_an_array_misses_its_deadline_once_and_its_elements_each_their_own() -> None:
    """Elements that are born later have none any more; those that run have it until it has come."""
    world = World()
    world.quota("q", 1)
    array = world.submit(queue="q", array=(0, 2), deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND)
    world.settle()
    world.run(f"{array}_0")
    assert [e.job for e in world.pass_time(40)] == [array]
    world.end(f"{array}_0")
    assert [e.job for e in world.settle()] == [f"{array}_0", f"{array}_1"]
    world.run(f"{array}_1")
    assert world.pass_time(59) == []


# ---------------------------------------------------------------------------------------- arrays


@settings(max_examples=15, deadline=None)
@given(
    limit=st.integers(1, 4), elements=st.integers(1, 10), gpus=st.integers(1, 4),
    ends=st.lists(st.sampled_from(["ok", "ok", "fail", "yield", "lost"]), min_size=5, max_size=25),
)  # fmt: skip
def test_no_more_elements_live_at_once_than_the_array_allows(
    limit: int, elements: int, gpus: int, ends: list[str]
) -> None:
    """However they end and come back; and all of them come to their end."""
    world = World()
    array = world.submit(gpus, array=(0, elements - 1), array_limit=limit, retries=2)

    def live() -> list[str]:
        found = [job for job, each in world.state.jobs.items() if each.parent is not None]
        assert len(found) <= limit
        return sorted(found)

    for end in [*ends, *["ok"] * 60]:
        world.pass_time(700)
        offered = [job for job in live() if world.state.jobs[job].open]
        world.run(*offered)
        running = [job for job in live() if world.of(job) == "running"]
        if not world.state.jobs:
            break
        if not running:
            continue  # a delay between attempts
        if end == "yield":
            world.yielded(running[0])
        elif end == "lost":
            world.end(running[0], None, "node_lost")
        else:
            world.end(running[0], 0 if end == "ok" else 1)
    world.pass_time()
    assert world.of(array) in ("succeeded", "failed")
    assert world.state.jobs == {}


# ---------------------------------------------------------------------------------------- order


def test_ageing_raises_a_priority_step_by_step_and_no_further() -> None:
    """One for each time it has waited, `most` at most, never above the highest; a new attempt begins where it was."""
    world = World()
    world.pool(ageing=Ageing(every_ns=60 * SECOND, most=3))
    path = closed(world)
    old = world.submit(queue=path, priority=50)
    world.now += 100 * SECOND
    young, top = world.submit(queue=path, priority=52), world.submit(queue=path, priority=PRIORITY_MAX)
    assert order(world, path) == [top, young, old]
    world.settle()
    assert [e.jobs for e in world.said(ev.JobsAged)] == [(old,)]
    world.pass_time(25)
    assert order(world, path) == [top, old, young]
    world.restart()
    world.pass_time(10_000)
    assert [world.state.jobs[job].aged for job in (old, young, top)] == [3, 3, 0]
    assert order(world, path) == [top, young, old]
    world.quota(path, None)
    world.settle()
    world.run(old)
    world.yielded(old)
    world.quota(path, 0)
    world.settle()
    assert world.state.jobs[old].aged == 0


@pytest.mark.parametrize("sequencer", ["drf", "lifo", "promised"])
def test_all_of_a_line_age_whoever_stands_first(sequencer: str) -> None:
    """The newest first, a new attempt first, the earliest deadline first: those behind them rise all the same."""
    world = World()
    world.pool(sequencer=sequencer, ageing=Ageing(every_ns=60 * SECOND, most=3))
    path = closed(world)
    old = world.submit(queue=path)
    world.now += 50 * SECOND
    world.submit(queue=path, deadline_ns=world.now + 10**6 * SECOND)
    world.submit(queue=path)
    assert [e.jobs for e in world.pass_time(10) if isinstance(e, ev.JobsAged)] == [(old,)]


@pytest.mark.parametrize(
    ("sequencer", "expected"),
    [("fifo", ["1", "2", "3", "4"]), ("lifo", ["4", "3", "2", "1"]), ("drf", ["1", "4", "2", "3"])],
)
def test_lines_go_by_the_pools_sequencer(sequencer: str, expected: list[str]) -> None:
    """One line for all queues, the newest first, or by what each queue has."""
    world = World()
    world.pool(sequencer=sequencer)
    world.node("n1", gpus=8)
    world.tree(a={}, b={})
    events = world.ask(*(world.submission(1, queue=path) for path in ("a", "a", "a", "b")))
    assert [event.job for event in events if isinstance(event, ev.JobOffered)] == expected


def test_fairshare_goes_by_what_was_used() -> None:
    """Who has used much of late waits, though he holds nothing now."""
    world = World()
    world.pool(sequencer="fairshare", half_life_ns=3600 * SECOND)
    world.node("n1", gpus=8)
    world.tree(a={}, b={})
    job = world.submit(8, queue="a")
    world.run(job)
    world.now += 3600 * SECOND
    world.end(job)
    world.settle()
    events = world.ask(*(world.submission(1, queue=path) for path in ("a", "b", "b")))
    offers = [event.job for event in events if isinstance(event, ev.JobOffered)]
    assert offers == ["3", "4", "2"]


def test_a_moved_job_stands_in_its_new_queue_as_it_would_have_from_the_beginning() -> None:
    """In line, held, waiting for its time or recalled; and it counts there."""
    world = World()
    world.tree(a={"maximum": {"gpu": 0}}, b={"maximum": {"gpu": 0}})
    first, moved, last = world.submit(queue="b"), world.submit(queue="a"), world.submit(queue="b")
    later = world.submit(queue="a", start_at_ns=world.now + 60 * SECOND)
    for job in (moved, later):
        assert isinstance(world.move(job, "b"), ev.JobMoved)
    assert order(world, "b") == [first, moved, last]
    assert kinds(world.pass_time(60)) == ["JobQueued"]
    assert order(world, "b") == [first, moved, last, later]
    refused = world.move(first, "nowhere")
    assert (refused.code, "expected one of" in refused.message) == ("unknown_queue", True)
    world.configure("c", maximum={"gpu:a100": 0})
    assert world.move(first, "c").code == "model_needed"


# ---------------------------------------------------------------------------------------- the clock


def test_a_clock_that_stands_still_loses_nothing() -> None:
    """Commit after commit at one moment: answers, offers and ends as ever; the order is looked at when it moves on."""
    world = World()
    world.refuse(world.submit(8))
    for _ in range(20):
        world.submit(8)
    urgent = world.submit(8, priority=90)
    world.settle()
    assert world.of(urgent) == "queued"
    world.pass_time()
    assert world.offered()[0] == urgent


def test_another_writers_clock_that_is_ahead_stops_no_look_at_the_order() -> None:
    """By an hour, and it speaks all the time: what starves is helped as by one clock."""
    world = World()
    world.pool(patience_ns=10 * SECOND)
    world.node(gpus=8)
    job = world.submit(8)
    for _ in range(40):
        world.now += 3600 * SECOND
        world.free_something()
        world.refuse(job)
        world.now -= 3600 * SECOND
        world.now += SECOND
        world.settle()
    assert [e.job for e in world.said(ev.ReservationRequested)] == [job]


def test_in_a_busy_log_the_order_is_looked_at_all_the_same() -> None:
    """Somebody else commits at every moment between the queue's decisions."""
    world = World(careful=False)
    cluster = Cluster(world, 1, 8)
    world.pool(patience_ns=2 * SECOND)
    cluster.submit(100, 8)
    cluster.settle()
    big = cluster.submit(1, 8)
    for _ in range(40):
        world.now += SECOND // 8
        world.says(ev.NodeCordoned(cause="cmd:x", node="n0"))
        world.step()
    assert [e.job for e in world.said(ev.ReservationRequested)] == [big]


def test_a_submit_has_its_answer_whatever_it_asks_for() -> None:
    """Numbers that no gateway lets through."""
    world = World()
    base = world.submission()
    bad: list[dict[str, Any]] = [
        {"deadline_ns": -1}, {"slice_ns": -1}, {"array_limit": -1}, {"start_at_ns": 1 << 63}, {"grace_ns": -1},
    ]  # fmt: skip
    for fields in bad:
        command = SubmitJob(**({f: getattr(base, f) for f in base.__struct_fields__} | fields))
        (answer,) = world.ask(command)
        assert (type(answer).__name__, answer.code) == ("JobRejected", "invalid"), fields
