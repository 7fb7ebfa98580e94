"""One job's life: given events, when a command or an event, then events."""

import pytest

from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, SPEC, QueueWorld, kinds, request


def test_an_empty_log_begins_with_the_default_queue() -> None:
    """Users can submit before anything is configured."""
    world = QueueWorld()
    assert world.log[0].events == [ev.QueueConfigured(cause="clock", path="default")]
    assert world.settle() == []


def test_a_submit_is_accepted_and_offered_in_one_commit() -> None:
    """An idle cluster costs one fsync, not two; both events name the command."""
    world = QueueWorld()
    submitted, offered = world.ask(world.submission(2, id="c-1", retries=2, total_ns=5, priority=70))
    assert submitted == ev.JobSubmitted(
        cause="cmd:c-1",
        job="1",
        name="job",
        queue="default",
        user="ada",
        request=request(2),
        spec=SPEC,
        retries=2,
        total_ns=5,
        priority=70,
    )
    assert (offered.cause, offered.job, offered.attempt) == ("cmd:c-1", "1", 1)
    assert world.settle() == []


def test_a_whole_life_ends_in_success() -> None:
    """submitted, offered, placed, running, ended, succeeded; the end names the run's end as its cause."""
    world = QueueWorld()
    job = world.submit()
    assert world.of(job) == "offered"
    world.place(job)
    assert world.of(job) == "placed"
    world.start(job)
    assert world.of(job) == "running"
    world.end(job)
    assert world.settle() == [ev.JobSucceeded(cause=f"{len(world.log) - 1}.0", job=job, attempt=1)]
    assert world.of(job) == "succeeded"
    assert world.state.jobs == {}
    assert world.state.classes == {}


def test_a_run_that_never_fully_started_may_end_too() -> None:
    """A process can exit before its start was seen; the end counts, from placed."""
    world = QueueWorld()
    job = world.submit()
    world.place(job)
    world.end(job)
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_a_failed_exit_without_retries_fails_with_its_numbers() -> None:
    """The end event has the run's exit code, signal and message."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.end(job, 137, signal=9, message="killed")
    (failed,) = world.settle()
    assert failed == ev.JobFailed(
        cause=f"{len(world.log) - 1}.0",
        job=job,
        reason="exit_code",
        attempt=1,
        exit_code=137,
        signal=9,
        message="killed",
    )


def test_retries_are_attempts_after_the_first() -> None:
    """retries 2 gives three attempts, numbered, and then the failure."""
    world = QueueWorld()
    job = world.submit(retries=2)
    for attempt in (1, 2):
        world.run(job)
        world.end(job, 1)
        requeued, offered = world.settle()
        assert (requeued.reason, requeued.attempt, requeued.not_before_ns) == ("retry", attempt + 1, 0)
        assert (offered.job, offered.attempt) == (job, attempt + 1)
    world.run(job)
    world.end(job, 1)
    assert kinds(world.settle()) == ["JobFailed"]


@pytest.mark.parametrize("outcome", ["gpu_memory", "oom"])
def test_a_job_stopped_for_its_own_use_of_memory_fails_by_itself(outcome: ev.RunOutcome) -> None:
    """It uses its own retries only, and its failure gives the memory used."""
    world = QueueWorld()
    words = "used 9,812 MiB of its 5,000 MiB share of g for 12 s"
    job = world.submit(retries=1)
    world.run(job)
    world.end(job, None, outcome, message=words)
    requeued, _ = world.settle()
    assert (requeued.reason, requeued.attempt, world.state.jobs[job].failures) == (outcome, 2, 1)
    world.run(job)
    world.end(job, None, outcome, message=words)
    [failed] = world.settle()
    assert (failed.reason, failed.message) == (outcome, words)


@pytest.mark.parametrize(("outcome", "code"), [("exited", 1), ("start_failed", None)])
def test_a_failure_repeated_on_three_nodes_is_not_retried(outcome: ev.RunOutcome, code: int | None) -> None:
    """Remaining retries do not matter; the failure gives this reason, and two nodes are not enough."""
    world = QueueWorld()
    job = world.submit(retries=9)
    for alike in ((), ("n1", "n2"), ("n1", "n2")):
        world.run(job)
        world.end(job, code, outcome, alike=alike)
        assert kinds(world.settle()) == ["JobRequeued", "JobOffered"]
    world.run(job)
    world.end(job, code, outcome, alike=("n1", "n2", "n4"), message="no")
    [failed] = world.settle()
    assert isinstance(failed, ev.JobFailed)
    assert failed.message == "not tried again: it failed in the same way on n1, n2, n4; no"


def test_a_node_that_fails_its_own_check_costs_the_job_nothing() -> None:
    """It starts elsewhere at once, however often that happens, with all its retries and free starts left."""
    world = QueueWorld()
    job = world.submit(retries=0)
    for _ in range(5):
        world.run(job)
        world.end(job, None, "preflight", released=())
        requeued, *_ = world.settle()
        assert (requeued.reason, requeued.not_before_ns) == ("preflight", 0)
    world.run(job)
    world.end(job, None, "start_failed")
    assert world.settle()[0].reason == "start_failed"


def test_losses_have_their_own_budget_and_delays() -> None:
    """Three attempts after a loss, at once, after 120 s and 600 s; the user's retries are untouched."""
    world = QueueWorld()
    job = world.submit(retries=1)
    for delay_s in (0, 120, 600):
        world.run(job)
        world.end(job, None, "node_lost", released=())
        (requeued, *_) = world.step()
        assert requeued.reason == "node_lost"
        assert requeued.not_before_ns == (world.now + delay_s * SECOND if delay_s else 0)
        if delay_s:
            assert world.settle() == []
            assert world.core.wake_at() == requeued.not_before_ns
            world.now += delay_s * SECOND - 1
            assert world.settle() == []
            world.now += 1
        assert kinds(world.settle())[-1] == "JobOffered"
    assert world.state.jobs[job].failures == 0
    world.run(job)
    world.end(job, None, "node_rebooted", released=())
    (failed,) = world.settle()
    assert (failed.reason, failed.attempt) == ("infrastructure", 4)


def test_a_drain_uses_no_retry() -> None:
    """The job returns to the queue at once and keeps its budgets, however often nodes are drained."""
    world = QueueWorld()
    job = world.submit()
    for attempt in range(2, 8):
        world.run(job)
        world.end(job, 143, "stopped", drained=True)
        requeued, _ = world.settle()
        assert (requeued.reason, requeued.attempt, requeued.not_before_ns) == ("drained", attempt, 0)
    assert (world.state.jobs[job].losses, world.state.jobs[job].failures) == (0, 0)


@pytest.mark.parametrize(("outcome", "code"), [("stopped", 143), ("exited", 1)])
def test_a_gpu_fault_costs_nothing_and_is_a_reason_of_its_own(outcome: ev.RunOutcome, code: int) -> None:
    """Long runs on many GPUs meet several; also where the program crashes by itself before it is stopped."""
    world = QueueWorld()
    job = world.submit()
    for attempt in range(2, 8):
        world.run(job)
        world.end(job, code, outcome, gpu_fault="xid79")
        requeued, _ = world.settle()
        assert (requeued.reason, requeued.attempt, requeued.not_before_ns) == ("gpu_fault", attempt, 0)
    assert (world.state.jobs[job].losses, world.state.jobs[job].failures) == (0, 0)


def test_a_drained_run_that_ended_well_has_succeeded() -> None:
    """Work that is done is not done again."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.end(job, 0, drained=True)
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_a_failed_start_is_retried_once_and_then_fails() -> None:
    """The second attempt may be on another node; a missing program is not retried indefinitely."""
    world = QueueWorld()
    job = world.submit()
    world.place(job)
    world.end(job, None, "start_failed", message="no such file")
    requeued, _ = world.settle()
    assert requeued.reason == "start_failed"
    world.place(job)
    world.end(job, None, "start_failed", message="no such file")
    (failed,) = world.settle()
    assert (failed.reason, failed.message) == ("start_failed", "no such file")


@pytest.mark.parametrize(("fault", "tries"), [("job", 2), ("node", 5), ("", 5)])
def test_a_start_that_fails_by_the_jobs_own_fault_is_tried_on_one_other_node(fault: str, tries: int) -> None:
    """Its own retries do not help an image that does not exist; they do where a node or a network was at fault."""
    world = QueueWorld()
    job = world.submit(retries=3)
    for at in range(tries):
        world.place(job)
        world.end(job, None, "start_failed", fault=fault)
        assert kinds(world.settle())[0] == ("JobFailed" if at == tries - 1 else "JobRequeued")


def test_an_unobserved_end_counts_as_a_loss() -> None:
    """exit_unknown may have been a success or not: the job runs again within the budget of losses."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.end(job, None, "exit_unknown")
    requeued, _ = world.settle()
    assert requeued.reason == "exit_unknown"


def test_a_scheduled_job_waits_for_its_start() -> None:
    """It is not offered before, and the core says when to wake."""
    world = QueueWorld()
    job = world.submit(start_at_ns=world.now + 60 * SECOND)
    assert world.of(job) == "scheduled"
    assert world.settle() == []
    assert world.core.wake_at() == world.now + 60 * SECOND
    world.now += 60 * SECOND
    assert kinds(world.settle()) == ["JobQueued", "JobOffered"]


def test_a_released_job_still_waits_for_its_start() -> None:
    """Holding and releasing is no way round the start time."""
    world = QueueWorld()
    job = world.submit(start_at_ns=world.now + 60 * SECOND)
    world.hold(job)
    assert isinstance(world.release(job), ev.JobReleased)
    assert world.settle() == []
    world.now += 60 * SECOND
    assert kinds(world.settle()) == ["JobQueued", "JobOffered"]


def test_the_time_limit_stops_a_run() -> None:
    """Counted from RunStarted; the failure says time_limit, and no retry follows."""
    world = QueueWorld()
    job = world.submit(total_ns=10 * SECOND, retries=5)
    world.place(job)
    world.now += 100 * SECOND
    world.start(job)
    assert world.settle() == []
    assert world.core.wake_at() == world.now + 10 * SECOND
    world.now += 10 * SECOND
    assert world.settle() == [
        ev.JobStopRequested(cause="clock", job=job, attempt=1, reason="time_limit", ran_ns=10 * SECOND)
    ]
    world.end(job, 143, "stopped")
    (failed,) = world.settle()
    assert (failed.reason, failed.exit_code) == ("time_limit", 143)


def test_a_run_that_ended_in_time_leaves_no_timer() -> None:
    """Nothing wakes for it later."""
    world = QueueWorld()
    job = world.submit(total_ns=10 * SECOND)
    world.run(job)
    world.end(job)
    world.settle()
    assert world.state.due.timers == []
    assert world.core.wake_at() is None


@pytest.mark.parametrize(
    ("outcome", "exit_code", "end"),
    [
        ("stopped", 143, "cancelled"),
        ("stopped", 0, "cancelled"),
        ("exited", 1, "cancelled"),
        ("exited", 0, "succeeded"),
        ("node_lost", None, "cancelled"),
    ],
)
def test_cancelling_a_run(outcome: ev.RunOutcome, exit_code: int | None, end: str) -> None:
    """It ends as cancelled however the run ended, unless it ended well by itself before the stop took effect."""
    world = QueueWorld()
    job = world.submit(retries=3)
    world.run(job)
    stop = world.cancel(job)
    assert (stop.reason, stop.by, stop.attempt) == ("cancelled", "bob", 1)
    assert world.of(job) == "stopping"
    world.end(job, exit_code, outcome)
    world.settle()
    assert world.of(job) == end


def test_a_stop_that_crosses_the_end_of_the_run() -> None:
    """The run had ended with 0 when the stop was decided without knowing: it succeeded."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.end(job, 0)
    world.fold("queue", [ev.JobStopRequested(cause="cmd:x", job=job, attempt=1, reason="cancelled", by="bob")])
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_cancelling_an_offer_waits_for_the_placer() -> None:
    """The placer alone decides an offer's fate: OfferReturned makes the cancel true."""
    world = QueueWorld()
    job = world.submit()
    assert isinstance(world.cancel(job), ev.JobStopRequested)
    assert world.settle() == []
    world.give_back(job)
    (cancelled,) = world.settle()
    assert cancelled == ev.JobCancelled(cause=f"{len(world.log) - 1}.0", job=job, by="bob", attempt=1)


def test_a_stop_that_crosses_the_placement() -> None:
    """Placed although it was to be cancelled: the run is stopped, and its end cancels the job."""
    world = QueueWorld()
    job = world.submit()
    world.cancel(job)
    world.place(job)
    assert world.of(job) == "stopping"
    assert world.settle() == []
    world.start(job)
    world.end(job, 143, "stopped")
    world.settle()
    assert world.of(job) == "cancelled"


def test_a_stop_that_crosses_a_returned_offer() -> None:
    """The withdrawn offer was back already: nothing runs, so nothing has to end first."""
    world = QueueWorld()
    job = world.submit()
    world.hold(job)
    world.give_back(job)
    world.fold("queue", [ev.JobStopRequested(cause="cmd:x", job=job, attempt=1, reason="cancelled", by="bob")])
    assert kinds(world.settle()) == ["JobCancelled"]


@pytest.mark.parametrize("prepare", ["scheduled", "held"])
def test_cancelling_what_waits_ends_it_at_once(prepare: str) -> None:
    """No placer is involved."""
    world = QueueWorld()
    job = world.submit(start_at_ns=world.now + SECOND)
    if prepare == "held":
        world.hold(job)
    assert world.cancel(job) == ev.JobCancelled(cause=f"cmd:c{world.asked - 1}", job=job, by="bob", attempt=1)
    assert world.state.due.timers == []


def test_holding_an_offer_recalls_it() -> None:
    """Withdrawn, returned, held by the one who asked; released, it is offered again as the same attempt."""
    world = QueueWorld()
    job = world.submit()
    withdrawn = world.hold(job)
    assert (withdrawn.reason, withdrawn.by) == ("hold", "bob")
    world.give_back(job)
    assert world.settle() == [ev.JobHeld(cause=f"{len(world.log) - 1}.0", job=job, by="bob")]
    assert world.settle() == []
    world.release(job)
    (offered,) = world.settle()
    assert (offered.job, offered.attempt) == (job, 1)


def test_a_late_hold_has_no_effect() -> None:
    """The job was placed meanwhile: it runs and ends as if there were no hold."""
    world = QueueWorld()
    job = world.submit()
    world.hold(job)
    world.run(job)
    world.end(job)
    assert kinds(world.settle()) == ["JobSucceeded"]


def test_a_hold_that_crosses_a_placement_moves_nothing() -> None:
    """OfferWithdrawn may be in the log after JobPlaced."""
    world = QueueWorld()
    job = world.submit(retries=1)
    world.place(job)
    world.fold("queue", [ev.OfferWithdrawn(cause="cmd:x", job=job, attempt=1, reason="hold", by="bob")])
    world.start(job)
    world.end(job, 1)
    assert kinds(world.settle()) == ["JobRequeued", "JobOffered"]


def test_a_late_event_about_an_earlier_attempt_moves_nothing() -> None:
    """Only capacity is taken from it."""
    world = QueueWorld()
    job = world.submit(retries=1)
    world.run(job)
    world.end(job, 1)
    world.settle()
    capacity = world.state.pools["default"].capacity_count
    world.says(ev.AllocationReleased(cause="report:n1:4", job=job, attempt=1, node="n1"))
    assert (world.of(job), world.state.pools["default"].capacity_count) == ("offered", capacity + 1)


def test_refusals_name_their_cause() -> None:
    """Unknown: not_found. Ended, stopping, wrong state: conflict, with the state. The state does not change."""
    world = QueueWorld()
    job = world.submit()
    assert world.cancel("77").code == "not_found"
    assert world.hold("x y z").code == "not_found"
    released = world.release(job)
    assert (released.code, released.message) == ("conflict", f"job {job} is offered, not held")
    world.run(job)
    assert world.hold(job).message == f"job {job} is running; only a job that waits can be held"
    world.cancel(job)
    assert world.cancel(job).message == f"job {job} is already being stopped"
    world.end(job, 143, "stopped")
    world.settle()
    again = world.cancel(job)
    assert (again.code, again.message) == ("conflict", f"job {job} has already ended: cancelled")


def test_commands_of_one_message_see_each_other() -> None:
    """Held, released, cancelled, cancelled again: each is decided upon what the one before left."""
    world = QueueWorld()
    job = world.submit(start_at_ns=world.now + SECOND)
    events = world.ask(
        cmd.HoldJob(id="a", job=job),
        cmd.ReleaseJob(id="b", job=job),
        cmd.CancelJob(id="c", job=job),
        cmd.CancelJob(id="d", job=job),
    )
    assert kinds(events) == ["JobHeld", "JobReleased", "JobCancelled", "CommandRejected"]


def test_a_cancel_that_meets_the_end_of_its_job_is_refused() -> None:
    """The run has ended and the cancel arrives in the same cycle: the end counts."""
    world = QueueWorld()
    job = world.submit()
    world.run(job)
    world.end(job)
    ended, answer = world.ask(cmd.CancelJob(id="c", job=job))
    assert (type(ended), answer.code) == (ev.JobSucceeded, "conflict")


def test_run_time_is_what_the_node_measured() -> None:
    """Its agent uses a clock that is never set; if that is unknown, log time counts."""
    world = QueueWorld()
    job = world.submit(total_ns=100 * SECOND)
    for ran_ns, log_ns in ((30 * SECOND, 3600 * SECOND), (0, 20 * SECOND)):
        world.run(job)
        world.now += log_ns if ran_ns == 0 else 90 * SECOND
        world.end(job, 143, "stopped", preempted=True, ran_ns=ran_ns)
        assert kinds(world.settle())[0] == "JobRequeued"
    assert world.state.jobs[job].used_ns == 50 * SECOND
    world.run(job)
    world.now += 50 * SECOND
    (stop,) = world.settle()
    assert (stop.reason, stop.ran_ns) == ("time_limit", 50 * SECOND)


def test_a_cancel_does_not_wait_for_a_time_limit() -> None:
    """Its agents may hold the stop for the limit back: a person's stop goes out at once, and the job ends as cancelled."""
    world = QueueWorld()
    job = world.submit(total_ns=10 * SECOND)
    world.run(job)
    world.now += 10 * SECOND
    assert kinds(world.settle()) == ["JobStopRequested"]
    stop = world.cancel(job)
    assert (type(stop), stop.reason) == (ev.JobStopRequested, "cancelled")
    assert world.cancel(job).code == "conflict"
    world.end(job, 143, "stopped", ran_ns=4 * SECOND)
    assert kinds(world.settle()) == ["JobCancelled"]


def test_cancelling_an_array_reaches_elements_that_wait_for_their_limit() -> None:
    """Each gets its stop once, also after a restart; one whose limit comes after the cancel gets no second one."""
    world = QueueWorld()
    array = world.submit(total_ns=10 * SECOND, array=(0, 2))
    elements = [f"{array}_{index}" for index in range(3)]
    world.settle()
    world.run(*elements[:2])
    world.now += 10 * SECOND
    assert [stop.job for stop in world.settle()] == elements[:2]
    world.run(elements[2])
    assert isinstance(world.cancel(elements[0]), ev.JobStopRequested)
    world.ask(cmd.CancelJob(id="c", job=array))
    world.restart()
    world.settle()
    assert [(stop.job, stop.reason) for stop in world.said(ev.JobStopRequested)[2:]] == [
        (job, "cancelled") for job in (elements[0], array, *elements[1:])
    ]
    world.now += 20 * SECOND
    assert world.settle() == []
    for each in elements:
        world.end(each, 143, "stopped")
    assert kinds(world.settle()) == ["JobCancelled"] * 4


@pytest.mark.parametrize("why", ["drained", "preempted"])
@pytest.mark.parametrize(("ran", "after"), [(4, "JobRequeued"), (10, "JobFailed"), (0, "JobFailed")])
def test_a_run_stopped_before_its_limit_continues_with_the_rest(why: str, ran: int, after: str) -> None:
    """The queue requested the stop too early, and the placer evicted the run first: it continues elsewhere. A run whose
    time is used up, or was not measured, has reached its limit."""
    world = QueueWorld()
    job = world.submit(total_ns=10 * SECOND)
    world.run(job)
    world.now += 10 * SECOND
    assert kinds(world.settle()) == ["JobStopRequested"]
    world.end(job, 143, "stopped", ran_ns=ran * SECOND, **{why: True})
    event = world.settle()[0]
    assert (kinds([event]), event.reason) == ([after], why if after == "JobRequeued" else "time_limit")
    if after == "JobRequeued":
        world.run(job)
        world.now += 6 * SECOND
        (stop,) = world.settle()
        assert (stop.reason, stop.ran_ns) == ("time_limit", 6 * SECOND)
