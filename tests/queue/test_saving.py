"""Runs that say when they have saved: who is asked to yield first, when their time is over, and what their end means."""

import pytest

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld
from tests.queue.yielding import refused, running, world_of

MINUTE = 60 * SECOND
TOLD = Checkpoint(signal="SIGUSR1", notice_ns=2 * MINUTE)


def saved(world: QueueWorld, job: str) -> None:
    """It says that it has saved."""
    world.says(ev.CheckpointSaved(cause="report:n1:5", job=job, attempt=world.attempt(job)))


def named(world: QueueWorld) -> list[tuple[str, int]]:
    """Return the victims of the newest preemption request, with their loss in GPU-seconds."""
    return [(victim.job, victim.gpu_s) for victim in world.said(ev.PreemptionRequested)[-1].victims]


def test_the_run_that_has_just_saved_is_preempted_first() -> None:
    """Of two equally old runs it loses less; its loss counts from its last checkpoint."""
    world = world_of(gpus=4, q={})
    never = running(world, 2, "q", priority=40)
    saves = running(world, 2, "q", priority=40, checkpoint=TOLD)
    world.pass_time(600)
    saved(world, saves)
    world.pass_time(30)
    refused(world, 2, "q", priority=60)
    world.pass_time()
    assert named(world)[0] == (saves, 2 * 31)
    assert named(world)[1:] in ([], [(never, 2 * 631)])


def test_a_job_with_a_known_interval_of_checkpoints_loses_at_most_that() -> None:
    """The declared interval is trusted."""
    world = world_of(gpus=4, q={})
    job = running(world, 4, "q", priority=40, checkpoint=Checkpoint(every_ns=MINUTE))
    world.pass_time(600)
    refused(world, 2, "q", priority=60)
    world.pass_time()
    assert named(world) == [(job, 4 * 60)]


def test_a_checkpoint_counts_for_its_attempt_only() -> None:
    """The next attempt has saved nothing, whatever it resumed from: that is already safe."""
    world = world_of(gpus=4, q={})
    job = running(world, 4, "q", priority=40, checkpoint=TOLD)
    world.pass_time(10)
    saved(world, job)
    world.yielded(job)
    world.settle()
    world.place_on("n1", 4, job)
    assert world.state.jobs[job].saved_ns == 0
    world.says(ev.CheckpointSaved(cause="report:n1:5", job=job, attempt=1))
    assert world.state.jobs[job].saved_ns == 0


def test_the_notice_of_a_time_limit_is_over_when_the_time_is() -> None:
    """As with Slurm's --signal: so long before."""
    world = QueueWorld()
    world.node()
    job = world.submit(total_ns=10 * MINUTE, checkpoint=TOLD)
    world.run(job)
    world.pass_time(479)
    assert world.of(job) == "running"
    world.pass_time(1)
    assert world.said(ev.JobStopRequested)[-1].reason == "time_limit"


@pytest.mark.parametrize("reason", ["preempted", "drained"])
def test_an_exit_with_0_after_a_notice_is_no_success(reason: str) -> None:
    """The run has saved and made room: it continues in another attempt, without using a retry."""
    world = QueueWorld()
    world.node()
    job = world.submit(checkpoint=TOLD)
    world.run(job)
    world.end(job, 0, "stopped", noticed_ns=world.now, saved_ns=world.now, **{reason: True})
    world.step()
    requeued = world.said(ev.JobRequeued)[-1]
    assert (requeued.reason, requeued.attempt, world.state.jobs[job].failures) == (reason, 2, 0)
    assert world.said(ev.JobSucceeded) == []


def test_an_exit_with_0_after_a_cancel_is_a_cancel_and_after_a_time_limit_a_failure() -> None:
    """A run that was cancelled does not return; a run that has used all its time gets no more."""
    world = QueueWorld()
    world.node()
    cancelled, late = world.submit(checkpoint=TOLD), world.submit(checkpoint=TOLD, total_ns=5 * MINUTE)
    world.run(cancelled, late)
    answer = world.one(cmd.CancelJob(id="c99", user="bob", job=cancelled, save=True))
    assert isinstance(answer, ev.JobStopRequested)
    assert answer.save
    world.pass_time(200)
    world.end(cancelled, 0, "stopped")
    world.end(late, 0, "stopped")
    world.settle()
    assert (world.of(cancelled), world.of(late)) == ("cancelled", "failed")
    assert world.said(ev.JobFailed)[-1].reason == "time_limit"


def test_the_elements_of_a_cancelled_array_get_their_notice_if_requested() -> None:
    """The request survives a restart in the middle."""
    world = QueueWorld()
    world.node()
    array = world.submit(array=(0, 2), checkpoint=TOLD)
    world.settle()
    world.run(f"{array}_0", f"{array}_1")
    world.one(cmd.CancelJob(id="c99", user="bob", job=array, save=True))
    world.restart()
    world.settle()
    stops = [event for event in world.said(ev.JobStopRequested) if "_" in event.job]
    assert stops
    assert all(event.save for event in stops)


@pytest.mark.parametrize("checkpoint", [Checkpoint(signal="SIGKILL", notice_ns=1), Checkpoint(notice_ns=5)])
def test_a_command_from_elsewhere_is_refused_by_its_field(checkpoint: Checkpoint) -> None:
    """The gateway checks job files; commands come from others, too."""
    world = QueueWorld()
    world.node()
    answer = world.one(world.submission(checkpoint=checkpoint))
    assert isinstance(answer, ev.JobRejected)
    assert answer.field.startswith("checkpoint.")
