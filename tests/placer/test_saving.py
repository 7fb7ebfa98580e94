"""Runs that say when they have saved: what is believed, what a stop gives them, and what it has cost in the end."""

from typing import Any

import msgspec
import pytest

from fairlead_placer.core import PlacerCore
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DrainNode
from fairlead_schemas.wire.reports import AppSeen, CheckpointSeen, HealthSeen
from tests.kit.placer_world import SECOND, PlacerWorld, names, request
from tests.placer.preemption_requests import plea

MINUTE = 60 * SECOND
TOLD = Checkpoint(signal="SIGUSR1", notice_ns=2 * MINUTE)


def saves(world: PlacerWorld, *nodes: str, checkpoint: Checkpoint | None = TOLD, gpus: int = 4) -> str:
    """A job that says when it has saved and runs on these nodes."""
    submitted, offered = world.submitted(request(gpus, nodes=len(nodes)))
    world.queue(msgspec.structs.replace(submitted, checkpoint=checkpoint), offered)
    for rank, node in enumerate(nodes):
        world.start(node, submitted.job, rank)
    return submitted.job


def running(**more: Any) -> PlacerWorld:
    """Job 1 on node a, which is full with it."""
    world = PlacerWorld()
    world.join("a", 4)
    saves(world, "a", **more)
    return world


def said(
    world: PlacerWorld, note: str = "", *, node: str = "a", rank: int = 0, noticed: bool = False
) -> list[ev.Event]:
    """The agent says that job 1 has saved."""
    report = CheckpointSeen(n=0, job="1", attempt=1, rank=rank, at_ns=world.now, note=note, noticed=noticed)
    return world.report(node, report)


def preempted(world: PlacerWorld) -> list[ev.Event]:
    """Another job comes, for which job 1 is asked to yield."""
    world.offer(request(4), job="2")
    return world.queue(plea("2", ("1", 5)))


def notice(world: PlacerWorld, node: str = "a") -> tuple[str, int]:
    """Return the stop of job 1's order."""
    order = world.orders(node)["1.1"]
    return order.stop, order.notice_ns


def test_a_checkpoint_report_is_an_event_and_part_of_the_end() -> None:
    """The end alone gives the time of the last checkpoint, and that no notice was given."""
    world = running()
    world.now += MINUTE
    assert names(said(world, "step=7")) == ["CheckpointSaved"]
    at_ns = world.now
    world.now += MINUTE
    [end] = [e for e in world.exit("a", "1", exit_code=1) if isinstance(e, ev.RunEnded)]
    assert (end.saved_ns, end.noticed_ns) == (at_ns, 0)


def test_checkpoint_reports_that_are_too_frequent_are_dropped() -> None:
    """The log is not a job's notebook, whatever its agent does."""
    world = running()
    events: list[ev.Event] = []
    for step in range(20):
        world.now += SECOND
        events += said(world, f"step={step}")
    assert [e.note for e in events if isinstance(e, ev.CheckpointSaved)] == ["step=0", "step=5", "step=10", "step=15"]
    assert world.core.state.nodes["a"].reported == world.numbers["a"]


def test_an_application_is_ready_once() -> None:
    """The first word of rank 0 counts, also after a snapshot; one after the end says nothing."""
    world = running()
    seen = AppSeen(n=0, job="1", attempt=1, rank=0, at_ns=world.now)
    [ready] = world.report("a", seen)
    assert ready == ev.AppReady(cause=ready.cause, job="1", attempt=1, ready_ns=world.now)
    assert world.report("a", seen) == []
    world.core = PlacerCore.restore(world.core.snapshot())
    assert world.report("a", seen) == []


def test_rank_zero_of_a_gang_reports_checkpoints_for_all() -> None:
    """A report of another rank is consumed without an event."""
    world = PlacerWorld()
    world.join("a", 4)
    world.join("b", 4)
    saves(world, "a", "b")
    assert said(world, node="b", rank=1) == []
    assert names(said(world, node="a")) == ["CheckpointSaved"]


def test_a_preemption_gives_notice_first() -> None:
    """The order names the notice, the end when it was given; and in the snapshot nothing is lost of it."""
    world = running()
    assert world.orders("a")["1.1"].checkpoint == TOLD
    preempted(world)
    told_ns = world.now
    assert notice(world) == ("preempted", 2 * MINUTE)
    world.core = PlacerCore.restore(world.core.snapshot())
    assert notice(world) == ("preempted", 2 * MINUTE)
    world.now += 10 * SECOND
    assert names(said(world, noticed=True)) == ["CheckpointSaved"]
    assert notice(world) == ("preempted", 0)
    [end] = [e for e in world.exit("a", "1", outcome="stopped", exit_code=0) if isinstance(e, ev.RunEnded)]
    assert (end.preempted, end.noticed_ns, end.saved_ns) == (True, told_ns, world.now)


def test_a_job_without_notice_gets_none() -> None:
    """It saves by itself, or not at all."""
    for checkpoint in (None, Checkpoint(every_ns=MINUTE)):
        world = running(checkpoint=checkpoint)
        preempted(world)
        assert notice(world) == ("preempted", 0)


@pytest.mark.parametrize(
    ("reason", "save", "given"),
    [
        ("cancelled", False, 0),
        ("cancelled", True, 2 * MINUTE),
        ("time_limit", False, 2 * MINUTE),
        ("reclaimed", False, 2 * MINUTE),
    ],
)
def test_the_notice_of_a_stop_is_the_queues_choice(reason: ev.StopReason, save: bool, given: int) -> None:
    """A cancel has no notice unless it was requested; all else has."""
    world = running()
    world.queue(ev.JobStopRequested(cause="clock", job="1", attempt=1, reason=reason, save=save))
    assert notice(world) == (reason, given)


def test_a_cancel_ends_a_running_notice() -> None:
    """A user who cancels does not want to wait."""
    world = running()
    preempted(world)
    world.queue(ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="cancelled"))
    assert notice(world) == ("cancelled", 0)


def test_drains_give_notice_and_a_faulted_gpu_does_not() -> None:
    """The GPU's memory can no longer be read."""
    world = running()
    world.command(DrainNode(id="c1", node="a", deadline_ns=SECOND))
    world.now += SECOND
    world.step()
    assert notice(world) == ("drained", 2 * MINUTE)
    world = running()
    world.report("a", HealthSeen(n=0, gpu="a-g0", code="xid79"))
    assert notice(world) == ("gpu_fault", 0)


def test_a_gang_that_has_lost_a_rank_has_nothing_to_save() -> None:
    """The others are ended at once, also out of their notice."""
    world = PlacerWorld()
    world.join("a", 4)
    world.join("b", 4)
    saves(world, "a", "b")
    preempted(world)
    assert notice(world, "b") == ("preempted", 2 * MINUTE)
    world.exit("a", "1", outcome="stopped", exit_code=0)
    assert notice(world, "b") == ("preempted", 0)


def test_the_next_attempt_knows_why_there_is_one() -> None:
    """The reason of the requeue goes with the order, once."""
    world = running()
    preempted(world)
    world.exit("a", "1", outcome="stopped", exit_code=None)
    world.queue(ev.JobRequeued(cause="9.0", job="1", attempt=2, reason="preempted"))
    world.core = PlacerCore.restore(world.core.snapshot())
    world.exit("a", "2")
    world.queue(ev.JobOffered(cause="9.0", job="1", attempt=2, rank=9))
    assert world.orders("a")["1.2"].restarted == "preempted"
    assert world.core.state.requeued == {}
