"""Concurrency of arrays, ageing, the order of lines, and clocks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.queuefile.settings import Ageing
from fairlead_schemas.units.ids import PRIORITY_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import SubmitJob
from tests.kit.queue_world import SECOND, QueueWorld, kinds
from tests.queue.cluster import SimulatedCluster
from tests.queue.lines import closed, order

# ---------------------------------------------------------------------------------------- arrays


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    limit=st.integers(1, 4),
    elements=st.integers(1, 10),
    gpus=st.integers(1, 4),
    ends=st.lists(st.sampled_from(["ok", "ok", "fail", "yield", "lost"]), min_size=5, max_size=25),
)
def test_an_array_keeps_its_limit_of_live_elements(limit: int, elements: int, gpus: int, ends: list[str]) -> None:
    """Elements end and return in any order, and all of them reach their end."""
    world = QueueWorld()
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
    world = QueueWorld()
    world.pool(ageing=Ageing(every_ns=60 * SECOND, most=3))
    path = closed(world)
    old = world.submit(queue=path, priority=50)
    world.now += 100 * SECOND
    young, top = world.submit(queue=path, priority=52), world.submit(queue=path, priority=PRIORITY_MAX)
    assert order(world, path) == [top, young, old]
    world.settle()
    assert [e.jobs for e in world.said(ev.PriorityAged)] == [(old,)]
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
def test_all_jobs_of_a_queue_age_whichever_is_first(sequencer: str) -> None:
    """Newest first, a new attempt first, the earliest deadline first: the jobs behind age all the same."""
    world = QueueWorld()
    world.pool(sequencer=sequencer, ageing=Ageing(every_ns=60 * SECOND, most=3))
    path = closed(world)
    old = world.submit(queue=path)
    world.now += 50 * SECOND
    world.submit(queue=path, deadline_ns=world.now + 10**6 * SECOND)
    world.submit(queue=path)
    assert [e.jobs for e in world.pass_time(10) if isinstance(e, ev.PriorityAged)] == [(old,)]


@pytest.mark.parametrize(
    ("sequencer", "expected"),
    [("fifo", ["1", "2", "3", "4"]), ("lifo", ["4", "3", "2", "1"]), ("drf", ["1", "4", "2", "3"])],
)
def test_lines_go_by_the_pools_sequencer(sequencer: str, expected: list[str]) -> None:
    """One line for all queues, the newest first, or by what each queue has."""
    world = QueueWorld()
    world.pool(sequencer=sequencer)
    world.node("n1", gpus=8)
    world.tree(a={}, b={})
    events = world.ask(*(world.submission(1, queue=path) for path in ("a", "a", "a", "b")))
    assert [event.job for event in events if isinstance(event, ev.JobOffered)] == expected


def test_fairshare_uses_past_use() -> None:
    """A queue with much recent use waits, although it holds nothing now."""
    world = QueueWorld()
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


def test_a_moved_job_gets_the_position_it_would_have_had_from_the_beginning() -> None:
    """Queued, held, scheduled or withdrawn; and it counts there."""
    world = QueueWorld()
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


def test_a_clock_that_does_not_advance_loses_nothing() -> None:
    """Commit after commit at one moment: answers, offers and ends as usual; the order is reviewed when time moves on."""
    world = QueueWorld()
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
    world = QueueWorld()
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


def test_the_order_is_reviewed_in_a_busy_log_too() -> None:
    """Another writer commits at every moment between the queue's decisions."""
    world = QueueWorld(careful=False)
    cluster = SimulatedCluster(world, 1, 8)
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
    world = QueueWorld()
    base = world.submission()
    bad: list[dict[str, Any]] = [
        {"deadline_ns": -1},
        {"slice_ns": -1},
        {"array_limit": -1},
        {"start_at_ns": 1 << 63},
        {"grace_ns": -1},
    ]
    for fields in bad:
        command = SubmitJob(**({f: getattr(base, f) for f in base.__struct_fields__} | fields))
        (answer,) = world.ask(command)
        assert (type(answer).__name__, answer.code) == ("JobRejected", "invalid"), fields
