"""A person's requeue: it ends a run and no job, and no purse pays for the next one."""

import pytest

from fairlead_bus.core import MESSAGE_CHARS_MAX
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds


def requeue(world: QueueWorld, job: str) -> ev.QueueEvent:
    """Return the answer to a requeue by bob."""
    return world.one(cmd.RequeueJob(id=world._id(), user="bob", job=job))


def test_a_requeued_job_waits_again_with_the_rest_of_its_time_and_all_its_retries() -> None:
    """However often; a job without retries as well."""
    world = QueueWorld()
    job = world.submit(total_ns=100 * SECOND)
    for attempt in (1, 2, 3):
        world.run(job)
        world.now += 10 * SECOND
        asked = requeue(world, job)
        assert asked == ev.JobStopRequested(cause=asked.cause, job=job, attempt=attempt, reason="requeued", by="bob")
        world.end(job, None, "stopped")
        world.settle()
        (again,) = world.said(ev.JobRequeued)[attempt - 1 :]
        assert (again.attempt, again.reason, again.not_before_ns) == (attempt + 1, "requeued", 0)
        found = world.state.jobs[job]
        assert (found.failures, found.losses, found.starts, found.stop) == (0, 0, 0, "")
        assert found.used_ns == attempt * 10 * SECOND


def test_a_run_that_ends_well_before_the_stop_has_succeeded() -> None:
    """Nothing is left to do again."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    requeue(world, job)
    world.end(job)
    world.settle()
    assert world.of(job) == "succeeded" and world.said(ev.JobRequeued) == []


def test_a_cancel_goes_before_a_requeue() -> None:
    """While the run is being stopped, its job may still be ended."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    requeue(world, job)
    assert isinstance(world.cancel(job), ev.JobStopRequested)
    world.end(job, None, "stopped")
    world.settle()
    assert world.of(job) == "cancelled"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("offered", "is offered; only a job that runs can be requeued, and it waits already"),
        ("held", "is held; only a job that runs"),
        ("stopping", "is stopping; only a job that runs"),
        ("succeeded", "has already ended: succeeded"),
    ],
)
def test_a_requeue_of_what_does_not_run_is_refused(state: str, words: str) -> None:
    """With its state; nothing is changed."""
    world = QueueWorld()
    job = world.submit()
    if state == "held":
        world.hold(job)
        world.give_back(job)
    elif state != "offered":
        world.run(job)
        _ = world.cancel(job) if state == "stopping" else world.end(job)
    if state != "stopping":
        world.settle()
    assert world.of(job) == state
    refused = requeue(world, job)
    assert isinstance(refused, ev.CommandRejected) and refused.code == "conflict" and words in refused.message
    assert len(refused.message) <= MESSAGE_CHARS_MAX and world.of(job) == state


def test_elements_of_an_array_are_requeued_one_by_one() -> None:
    """The array names one of them; an element whose array is cancelled is not tried again."""
    world = QueueWorld()
    array = world.submit(array=(3, 4))
    world.settle()
    world.run(f"{array}_3", f"{array}_4")
    refused = requeue(world, array)
    assert isinstance(refused, ev.CommandRejected) and f"{array}_3" in refused.message
    requeue(world, f"{array}_3")
    assert kinds(world.ask(cmd.CancelJob(id=world._id(), user="bob", job=array)))[:1] == ["JobStopRequested"]
    world.end(f"{array}_3", None, "stopped")
    world.settle()
    assert world.of(f"{array}_3") == "cancelled"
