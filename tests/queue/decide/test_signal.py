"""A person's signal: for what runs alone, one event, and the job stays where it is."""

import pytest

from fairlead_bus.core import MESSAGE_CHARS_MAX
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import QueueWorld


def send(world: QueueWorld, job: str, signal: str = "SIGUSR1") -> ev.QueueEvent:
    """Return the answer to a signal of bob."""
    return world.one(cmd.SignalJob(id=world._id(), user="bob", job=job, signal=signal))


def test_a_signal_is_one_event_each_time_and_ends_nothing() -> None:
    """Of the present attempt, by name; the job runs on, and ends as it would have."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    for signal in ("SIGUSR1", "SIGUSR1", "SIGINT"):
        sent = send(world, job, signal)
        assert sent == ev.JobSignalRequested(cause=sent.cause, job=job, attempt=1, signal=signal, by="bob")
        assert world.of(job) == "running"
    world.end(job)
    world.settle()
    assert world.of(job) == "succeeded"


def test_a_placed_job_gets_a_signal_though_the_log_has_not_its_start_yet() -> None:
    """Its program may have printed something that somebody answers with a signal."""
    world = QueueWorld()
    job = world.submit()
    world.settle()
    world.place(job)
    assert world.of(job) == "placed"
    sent = send(world, job)
    assert sent == ev.JobSignalRequested(cause=sent.cause, job=job, attempt=1, signal="SIGUSR1", by="bob")


@pytest.mark.parametrize("state", ["offered", "held", "stopping", "succeeded"])
def test_a_signal_for_a_job_that_does_not_run_is_refused(state: str) -> None:
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
    refused = send(world, job)
    assert isinstance(refused, ev.CommandRejected) and refused.code == "conflict"
    words = (
        "has already ended: succeeded" if state == "succeeded" else f"is {state}; only a job that runs gets a signal"
    )
    assert words in refused.message and len(refused.message) <= MESSAGE_CHARS_MAX and world.of(job) == state


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "", "USR1", "SIGUSR1;rm"])
def test_other_signals_are_refused_with_their_field(signal: str) -> None:
    """Those that end a run are a cancel; the field is named."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    refused = send(world, job, signal)
    assert isinstance(refused, ev.CommandRejected)
    assert refused.code == "invalid" and refused.message.startswith("signal: expected one of SIGUSR1")
    assert ("a cancel without a signal ends the run" in refused.message) == (signal in ("SIGKILL", "SIGTERM"))


def test_an_array_names_its_elements() -> None:
    """Each that runs gets its own; the array as such has no program."""
    world = QueueWorld()
    array = world.submit(array=(3, 4))
    world.settle()
    world.run(f"{array}_3")
    refused = send(world, array)
    assert isinstance(refused, ev.CommandRejected) and f"{array}_3" in refused.message
    assert isinstance(send(world, f"{array}_3"), ev.JobSignalRequested)
