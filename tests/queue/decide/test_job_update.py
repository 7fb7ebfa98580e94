"""Changes of jobs that wait or run: their order, their time limit, and what a person may not change."""

from typing import Any

import pytest

from fairlead_bus.core import Input
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_schemas.queuefile.settings import Ageing
from fairlead_schemas.units.ids import PRIORITY_MAX
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds
from tests.queue.lines import closed, order


def update(world: QueueWorld, job: str, **changes: Any) -> Any:
    """Answer to a change by bob."""
    return world.one(cmd.UpdateJob(id=world._id(), user="bob", job=job, **changes))


def test_a_higher_priority_goes_first() -> None:
    """Queued, held or scheduled: the job stands where it would with that priority from the beginning."""
    world = QueueWorld()
    path = closed(world)
    first, second, third = (world.submit(queue=path) for _ in range(3))
    later = world.submit(queue=path, start_at_ns=world.now + 60 * SECOND)
    world.hold(second)
    changed = update(world, second, priority=70, name="new", labels={"a": "b"})
    assert changed == ev.JobUpdated(
        cause=changed.cause, job=second, priority=70, name="new", labels={"a": "b"}, by="bob"
    )
    update(world, later, priority=60)
    assert order(world, path) == [first, third]
    world.release(second)
    world.pass_time(60)
    assert order(world, path) == [second, later, first, third]
    update(world, second, priority=0)
    assert order(world, path) == [later, first, third, second]


def test_what_was_gained_by_waiting_is_kept_up_to_the_highest_priority() -> None:
    """Another attempt begins without it, as before."""
    world = QueueWorld()
    path = closed(world)
    world.pool(ageing=Ageing(every_ns=10 * SECOND, most=5))
    job = world.submit(queue=path)
    world.pass_time(30)
    assert world.state.jobs[job].aged == 3
    update(world, job, priority=PRIORITY_MAX - 1)
    assert world.state.jobs[job].aged == 1
    update(world, job, priority=10)
    assert world.state.jobs[job].aged == 1


def test_a_lowered_limit_stops_a_run_and_a_removed_one_does_not() -> None:
    """Counted from the start of the run, also where the new limit is over already."""
    world = QueueWorld()
    job, other = world.submit(total_ns=100 * SECOND), world.submit()
    world.run(job, other)
    world.now += 30 * SECOND
    assert isinstance(update(world, job, total_ns=20 * SECOND), ev.JobUpdated)
    assert world.settle() == [
        ev.JobStopRequested(cause="clock", job=job, attempt=1, reason="time_limit", ran_ns=20 * SECOND)
    ]
    update(world, other, total_ns=50 * SECOND)
    assert world.settle() == []
    assert update(world, other, total_ns=0, extends=True).extends
    assert world.pass_time(100) == []
    world.end(other)
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_a_limit_that_others_were_promised_is_only_raised_by_those_who_may() -> None:
    """A job that waits is another matter: nobody was promised its end. Without a need, the event does not say that it was extended."""
    world = QueueWorld()
    job = world.submit(total_ns=100 * SECOND)
    waits = world.submit(queue=closed(world), total_ns=100 * SECOND)
    assert not update(world, waits, total_ns=200 * SECOND, extends=True).extends
    assert world.state.jobs[job].open
    for total_ns in (200 * SECOND, 0):
        refused = update(world, job, total_ns=total_ns)
        assert (refused.code, "at most the present limit, 1m 40s" in refused.message) == ("limit_promised", True)
    assert world.state.jobs[job].total_ns == 100 * SECOND
    assert not update(world, job, total_ns=50 * SECOND, extends=True).extends
    assert update(world, job, total_ns=200 * SECOND, extends=True).extends


def test_an_array_changes_with_its_elements() -> None:
    """Those that live and those that come; an element alone is refused by the name of its array."""
    world = QueueWorld()
    array = world.submit(array=(0, 5), array_limit=2, total_ns=100 * SECOND)
    world.settle()
    world.run(f"{array}_0", f"{array}_1")
    refused = update(world, f"{array}_0", priority=60)
    assert (refused.code, f"update array {array}" in refused.message) == ("conflict", True)
    assert update(world, array, total_ns=200 * SECOND).code == "limit_promised"
    assert isinstance(update(world, array, total_ns=10 * SECOND, priority=60), ev.JobUpdated)
    assert kinds(world.pass_time(10)) == ["JobStopRequested", "JobStopRequested"]
    for element in ("0", "1"):
        world.end(f"{array}_{element}", 143, "stopped")
    world.settle()
    born = world.state.jobs[f"{array}_2"]
    assert (born.total_ns, priority_of(born.order)) == (10 * SECOND, 60)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({}, "invalid", "expected at least one of"),
        ({"priority": PRIORITY_MAX + 1}, "invalid", "priority: expected 0 to"),
        ({"name": "a\nb"}, "invalid", "name: expected"),
        ({"labels": {"": "x"}}, "invalid", "labels.: expected a key"),
        ({"labels": {"a": "\0"}}, "invalid", "labels.a: expected a value"),
        ({"labels": {str(n): "" for n in range(101)}}, "invalid", "labels: expected at most 100"),
        ({"total_ns": -1}, "invalid", "time.total: expected 0 to"),
        ({"total_ns": 1000 * SECOND}, "deadline", "time.total: the deadline of job 1 cannot be met"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], code: str, words: str) -> None:
    """By the name of the field, and nothing is changed."""
    world = QueueWorld()
    job = world.submit(queue=closed(world), deadline_ns=world.now + 500 * SECOND)
    before = world.core.snapshot()
    (refused,) = world.decide(Input("CMD", 99, [cmd.UpdateJob(id="x", job=job, **changes)]))
    assert (refused.code, words in refused.message) == (code, True), refused.message
    assert world.core.snapshot() == before


def test_a_job_that_ends_or_has_ended_cannot_be_changed() -> None:
    """Nor one that nobody knows."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.cancel(job)
    assert update(world, job, priority=1).code == "conflict"
    world.end(job, 143, "stopped")
    world.settle()
    assert update(world, job, priority=1).code == "conflict"
    assert update(world, "99", priority=1).code == "not_found"
