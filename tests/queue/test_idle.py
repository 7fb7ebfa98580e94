"""Idle runs: stopped unconditionally, or for a waiting job; spared when active again."""

from typing import Any

import pytest

from fairlead_queue.limits import ASK_AGAIN_NS, REVIEW_NS
from fairlead_schemas.policies.idle import IdleEvidence
from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds, request
from tests.queue.yielding import pleas, refused, running, world_of

EVIDENCE = (IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=1200),)
GUARDED: dict[str, Any] = {
    "guaranteed": {"gpu": 8_000},
    "preemption": Preemption(protect_ns=10**15, lower_priority=False, reclaim="never"),
}


def asked_back(world: QueueWorld, job: str, *, attempt: int = 0, **more: Any) -> None:
    """Telemetry asks for a run: on demand, unless it says otherwise."""
    fields: dict[str, Any] = {"scope": "global", "rule": "utilization", "action": "stop", "on_demand": True} | more
    number = attempt or world.attempt(job)
    event = ev.ReclaimRequested(
        cause="clock", job=job, attempt=number, since_ns=world.now - 20 * SECOND, evidence=EVIDENCE, **fields
    )
    world.fold("telemetry", [event])


def used_again(world: QueueWorld, job: str, rule: Any = "utilization") -> None:
    """Record activity of the run."""
    world.fold(
        "telemetry", [ev.JobActive(cause="clock", job=job, attempt=world.attempt(job), rule=rule, reason="active")]
    )


def extended(world: QueueWorld, job: str) -> None:
    """Its owner extended it."""
    until_ns = world.now + 3600 * SECOND
    world.fold(
        "telemetry", [ev.JobExtended(cause="c", job=job, attempt=world.attempt(job), until_ns=until_ns, count=1)]
    )


# ---------------------------------------------------------------------------------------- whoever waits


@pytest.mark.parametrize("action", ["stop", "shrink"])
@pytest.mark.parametrize("kind", ["batch", "session"])
def test_an_immediate_reclaim_stops_the_run_and_ends_its_job(action: Any, kind: Any) -> None:
    """With notice; sessions and batch jobs fail with a message that names the policy, and no retry is used."""
    world = world_of(q={})
    job = running(world, 8, "q", kind=kind, retries=3)
    asked_back(world, job, action=action, on_demand=False, scope="project:llm", rule="interaction")
    cause = f"{len(world.log)}.0"
    stop = ev.JobStopRequested(cause=cause, job=job, attempt=1, reason="idle", save=True)
    assert (world.settle(), world.of(job)) == ([stop], "stopping")
    world.restart()
    world.end(job, 143, "stopped")
    (failed,) = world.settle()
    assert isinstance(failed, ev.JobFailed)
    assert (failed.reason, world.of(job)) == ("idle", "failed")
    assert failed.message == "it was idle under the interaction policy of project:llm, and its notice was over"


def test_a_requeued_idle_job_continues_with_the_rest_of_its_time_at_the_back() -> None:
    """It did not use its GPUs: jobs that already wait in its queue come first."""
    world = world_of(q={})
    job = running(world, 8, "q", total_ns=100 * SECOND)
    world.pass_time(70)
    asked_back(world, job, action="requeue", on_demand=False)
    world.settle()
    other = world.submit(8, queue="q")
    world.end(job, 143, "stopped")
    (again, *_) = world.settle()
    assert isinstance(again, ev.JobRequeued)
    assert (again.reason, world.state.jobs[job].used_ns) == ("idle", 70 * SECOND)
    world.settle()
    assert world.offered()[0] == other


def test_one_that_ends_well_by_itself_has_succeeded() -> None:
    """The stop came too late to matter."""
    world = world_of(q={})
    job = running(world, 8, "q")
    asked_back(world, job, on_demand=False)
    world.settle()
    world.end(job)
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_a_reclaim_of_an_earlier_attempt_has_no_effect() -> None:
    """A reclaim of a finished job has none, and a policy that only notifies makes none."""
    world = world_of(q={})
    job = running(world, 8, "q", retries=1)
    world.end(job, 1)
    world.settle()
    world.place_on("n1", 8, job)
    before = world.core.snapshot()
    asked_back(world, job, attempt=1, on_demand=False)
    asked_back(world, "404", attempt=1, on_demand=False)
    asked_back(world, job, action="warn", on_demand=False)
    assert (world.settle(), world.state.jobs[job].idle) == ([], ())
    assert (world.of(job), world.core.snapshot()) == ("running", before)


def test_a_person_may_cancel_what_would_wait_again() -> None:
    """But not what ends anyhow."""
    for action, answer in (("requeue", "JobStopRequested"), ("stop", "CommandRejected")):
        world = world_of(q={})
        job = running(world, 8, "q")
        asked_back(world, job, action=action, on_demand=False)
        world.settle()
        assert kinds([world.one(cmd.CancelJob(id="x", user="bob", job=job))]) == [answer]
        world.end(job, 143, "stopped")
        assert kinds(world.settle()) == [{"requeue": "JobCancelled", "stop": "JobFailed"}[action]]


# ---------------------------------------------------------------------------------------- on demand


def test_an_idle_run_stays_while_no_job_waits() -> None:
    """It may be idle for any time."""
    world = world_of(q={})
    job = running(world, 8, "q")
    asked_back(world, job)
    assert (world.settle(), world.pass_time(1000), world.of(job)) == ([], [], "running")


def test_a_waiting_job_may_take_an_idle_runs_gpus_despite_protection() -> None:
    """A guarantee, a protected time, a slice or a higher priority does not protect an idle run."""
    world = world_of(owner=GUARDED, other={"preemption": Preemption(reclaim="never", lower_priority=False)})
    run = running(world, 8, "owner", priority=90, slice_ns=10**15)
    job = refused(world, 4, "other", priority=10)
    world.pass_time(100)
    assert pleas(world) == []
    asked_back(world, run)
    world.pass_time(REVIEW_NS / SECOND)
    assert pleas(world) == [(job, [(run, "idle")])]


def test_an_earlier_refusal_does_not_delay_an_idle_preemption() -> None:
    """The request was declined often; once a run is idle it is repeated at the next review, and then only after a
    while."""
    world = world_of(q={})
    running(world, 4, "q", priority=10)
    idle = running(world, 4, "q", priority=90)
    job = refused(world, 4, "q")
    for _ in range(5):
        world.pass_time(400)
        world.decline(job)
    seen = len(pleas(world))
    world.pass_time()
    asked_back(world, idle)
    world.pass_time(REVIEW_NS / SECOND)
    assert pleas(world)[seen:] == [(job, [(idle, "idle"), ("1", "lower_priority")])]
    world.decline(job)
    world.pass_time(ASK_AGAIN_NS / SECOND)
    assert len(pleas(world)) == seen + 1


def test_idle_runs_are_victims_before_all_others_whatever_the_loss() -> None:
    """Among several, those that lose least come first; the placer takes as many as it needs."""
    world = world_of(q={})
    long = running(world, 2, "q", priority=90)
    world.pass_time(1000)
    cheap = running(world, 4, "q", priority=10)
    young = running(world, 2, "q", priority=90)
    asked_back(world, long)
    asked_back(world, young, rule="interaction")
    refused(world, 2, "q")
    world.pass_time(2)
    (asked,) = world.said(ev.PreemptionRequested)
    assert [(v.job, v.rule) for v in asked.victims] == [(young, "idle"), (long, "idle"), (cheap, "lower_priority")]
    assert asked.victims[1].gpu_s >= 2000


def test_only_idle_runs_below_a_limit_help_against_it() -> None:
    """The queue's own maximum holds: the job must be allowed to run on the freed capacity."""
    world = world_of(gpus=16, small={"maximum": {"gpu": 4_000}}, other={})
    inside, outside = running(world, 4, "small", priority=90), running(world, 8, "other")
    asked_back(world, outside)
    job = world.submit(4, queue="small", priority=10)
    world.pass_time(100)
    assert pleas(world) == []
    asked_back(world, inside)
    world.pass_time(2)
    assert pleas(world) == [(job, [(inside, "idle")])]


def test_it_must_have_something_of_what_is_lacking() -> None:
    """A run without a GPU is nothing to who needs one."""
    world = world_of(q={})
    running(world, 8, "q", priority=90)
    idle = running(world, 0, "q", priority=90, request=request(0))
    asked_back(world, idle)
    refused(world, 8, "q")
    world.pass_time(10)
    assert pleas(world) == []


@pytest.mark.parametrize(
    ("action", "end"), [("stop", "JobFailed"), ("shrink", "JobFailed"), ("requeue", "JobRequeued")]
)
def test_a_run_preempted_because_it_was_idle_ends_as_its_policy_requires(action: Any, end: str) -> None:
    """Activity of its program during the stop does not count."""
    world = world_of(q={})
    run = running(world, 8, "q", priority=90)
    asked_back(world, run, action=action)
    job = refused(world, 8, "q")
    world.pass_time(2)
    world.preempt(job, (run, "idle"))
    used_again(world, run)
    extended(world, run)
    world.yielded(run)
    (event, *_) = world.settle()
    assert (kinds([event]), event.reason) == ([end], "idle")


# ---------------------------------------------------------------------------------------- withdrawn


@pytest.mark.parametrize("withdraw", [used_again, extended])
def test_a_run_that_becomes_active_before_its_stop_is_spared(withdraw: Any) -> None:
    """No other run is stopped for it."""
    for on_demand in (True, False):
        world = world_of(q={})
        run = running(world, 8, "q", priority=90)
        asked_back(world, run, on_demand=on_demand)
        withdraw(world, run)
        refused(world, 8, "q")
        world.pass_time(100)
        assert (pleas(world), world.of(run), world.state.idle) == ([], "running", {})


def test_a_run_may_be_active_by_one_rule_and_idle_by_another() -> None:
    """Each rule withdraws its own reclaim; an unconditional reclaim counts before one on demand."""
    world = world_of(q={})
    run = running(world, 8, "q", priority=90)
    asked_back(world, run, rule="utilization", action="requeue")
    asked_back(world, run, rule="lifetime", action="stop")
    used_again(world, run, "lifetime")
    job = refused(world, 8, "q")
    world.pass_time(2)
    assert pleas(world) == [(job, [(run, "idle")])]
    asked_back(world, run, rule="interaction", action="stop", on_demand=False)
    assert [event.reason for event in world.settle()] == ["idle"]
    world.end(run, 143, "stopped")
    assert kinds(world.settle())[0] == "JobFailed"


def test_a_stop_that_crossed_a_sign_of_life_ends_nobodys_job() -> None:
    """The stop cannot be taken back: the job waits again, with the rest of its time and its place."""
    for on_demand in (True, False):
        world = world_of(q={})
        run = running(world, 8, "q", priority=90)
        asked_back(world, run, on_demand=on_demand)
        if on_demand:
            job = refused(world, 8, "q")
            world.pass_time(2)
            used_again(world, run)
            world.preempt(job, (run, "idle"))
            world.yielded(run)
        else:
            decided = world.decide()
            used_again(world, run)
            world.fold("queue", decided)
            world.end(run, 143, "stopped")
        assert kinds(world.settle())[0] == "JobRequeued"
        assert world.of(run) in ("queued", "offered")


def test_a_run_that_has_just_ended_is_not_stopped_again() -> None:
    """Its reclaim is still in the state of the decision that settles it."""
    world = world_of(gpus=16, q={})
    runs = [running(world, 8, "q", priority=90) for _ in range(2)]
    for run in runs:
        asked_back(world, run)
    job = refused(world, 8, "q")
    world.pass_time(2)
    world.preempt(job, (runs[1], "idle"))
    world.yielded(runs[1])
    world.now += 100 * SECOND
    world.decline(job)
    world.pass_time(100)
    assert pleas(world)[1:] == [(job, [(runs[0], "idle")])]
