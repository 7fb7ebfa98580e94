"""Jobs that wait for other jobs."""

from typing import Any

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import Dependency
from tests.kit.queue_world import SECOND, QueueWorld, kinds


def after(*jobs: str, state: ev.DependencyState = "succeeded") -> tuple[Dependency, ...]:
    """Waits for these."""
    return tuple(Dependency(job=job, state=state) for job in jobs)


ENDS: list[tuple[ev.DependencyState, str, bool]] = [
    ("succeeded", "succeeded", True),
    ("succeeded", "failed", False),
    ("succeeded", "cancelled", False),
    ("failed", "failed", True),
    ("failed", "cancelled", True),
    ("failed", "succeeded", False),
    ("ended", "succeeded", True),
    ("ended", "failed", True),
    ("ended", "cancelled", True),
]


def bring_to(world: QueueWorld, job: str, end: str) -> None:
    """An offered job ends so."""
    if end == "cancelled":
        world.cancel(job)
        world.give_back(job)
    else:
        world.run(job)
        world.end(job, 0 if end == "succeeded" else 1)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("wanted", "end", "met"), ENDS)
def test_a_job_waits_until_another_has_ended_as_it_wants(wanted: Any, end: str, met: bool, before: bool) -> None:
    """Ended already or later; what can never be met fails the job, with the other's id."""
    world = QueueWorld()
    other = world.submit()
    if before:
        bring_to(world, other, end)
        world.settle()
    job = world.submit(after=after(other, state=wanted))
    if not before:
        assert (world.of(job), world.settle()) == ("scheduled", [])
        bring_to(world, other, end)
    world.settle()
    assert world.of(job) == ("offered" if met else "failed")
    if not met:
        (failed,) = [e for e in world.said(ev.JobFailed) if e.job == job]
        assert failed.reason == "dependency"
        assert failed.message == f"it was to start after job {other}, which has ended otherwise"


def test_all_that_it_waits_for_must_have_come_and_then_its_start_time() -> None:
    """In whatever order; and the log says when it is queued."""
    world = QueueWorld()
    first, second = world.submit(), world.submit()
    job = world.submit(after=after(first, second, state="ended"), start_at_ns=world.now + 100 * SECOND)
    bring_to(world, second, "failed")
    world.settle()
    world.restart()
    bring_to(world, first, "succeeded")
    assert (kinds(world.settle()), world.of(job)) == (["JobSucceeded"], "scheduled")
    assert kinds(world.pass_time(100)) == ["JobQueued", "JobOffered"]


def test_jobs_that_wait_for_one_and_for_several_dependencies_continue_in_time() -> None:
    """One end serves all jobs that waited for it, whatever else they wait for."""
    world = QueueWorld()
    first, second = world.submit(), world.submit()
    one, both, other = (
        world.submit(after=after(first)),
        world.submit(after=after(first, second)),
        world.submit(after=after(first)),
    )
    bring_to(world, first, "succeeded")
    world.settle()
    assert [world.of(job) for job in (one, both, other)] == ["offered", "scheduled", "offered"]
    bring_to(world, second, "succeeded")
    world.settle()
    assert (world.of(both), len(world.state.dependents)) == ("offered", 0)


def test_chains_fail_along_and_run_along() -> None:
    """The first that cannot start takes the others with it; a chain of one message is a chain."""
    world = QueueWorld()
    events = world.ask(world.submission(), *(world.submission(after=after(str(n))) for n in range(1, 5)))
    assert kinds(events).count("JobSubmitted") == 5
    bring_to(world, "1", "succeeded")
    world.settle()
    bring_to(world, "2", "failed")
    world.settle()
    assert [world.of(str(n)) for n in range(1, 6)] == ["succeeded", "failed", "failed", "failed", "failed"]
    assert not world.state.dependents


@pytest.mark.parametrize("element", [False, True])
def test_an_array_is_waited_for_as_a_whole_or_by_element(element: bool) -> None:
    """And an array may wait itself: all of its elements do."""
    world = QueueWorld()
    array = world.submit(array=(0, 1))
    world.settle()
    waits = world.submit(array=(0, 1), after=after(f"{array}_0" if element else array))
    for index in (0, 1):
        assert world.of(waits) == "scheduled" or (element and index == 1)
        bring_to(world, f"{array}_{index}", "succeeded")
        world.settle()
    assert sorted(world.offered()) == [f"{waits}_0", f"{waits}_1"]


def test_a_held_job_waits_for_its_release_and_its_dependencies() -> None:
    """In any order; a failed dependency fails it at once. An array that was held meanwhile still runs."""
    for end, expected in (("succeeded", "offered"), ("failed", "failed")):
        for release_first in (True, False):
            world = QueueWorld()
            other = world.submit()
            job, array = world.submit(after=after(other)), world.submit(after=after(other), array=(0, 1))
            for each in (job, array):
                world.hold(each)
                if release_first:
                    world.release(each)
            assert world.settle() == []
            bring_to(world, other, end)
            world.settle()
            if not release_first:
                assert world.of(job) == "held"
                world.release(job)
                world.release(array)
                world.settle()
            assert (world.of(job), world.of(array)) == (expected, "queued" if end == "succeeded" else "failed")
            assert len(world.offered()) == (3 if end == "succeeded" else 0)


def test_a_job_cancelled_while_it_waits_for_dependencies_leaves_none() -> None:
    """The end of the other job finds nothing."""
    world = QueueWorld()
    other = world.submit()
    job = world.submit(after=after(other))
    last = world.submit(after=after(job))
    assert isinstance(world.cancel(job), ev.JobCancelled)
    world.settle()
    assert (world.of(last), len(world.state.dependents)) == ("failed", 0)
    bring_to(world, other, "succeeded")
    assert kinds(world.settle()) == ["JobSucceeded"]


@pytest.mark.parametrize(
    ("jobs", "field", "message"),
    [
        (("77",), "dependsOn[0]", 'no job "77" is known here; it may have ended long ago'),
        (("1", "1_5"), "dependsOn[1]", 'no job "1_5" is known here; it may have ended long ago'),
        (("1", "1"), "dependsOn[1]", "job 1 is named twice; keep one of them"),
    ],
)
def test_an_impossible_dependency_is_refused(jobs: Any, field: str, message: str) -> None:
    """Unknown, not created yet, named twice."""
    world = QueueWorld()
    world.submit()
    refused = world.ask(world.submission(after=after(*jobs)))[0]
    assert (refused.field, refused.message) == (field, message)
