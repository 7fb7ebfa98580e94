"""Held and drained queues: what starts, what may enter, what a release undoes."""

import pytest

from fairlead_bus.core import Input
from fairlead_queue.core import QueueCore
from fairlead_queue.explain.dry_run import dry_run
from fairlead_queue.explain.explain import explain
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import QueueWorld, kinds


def tree() -> QueueWorld:
    world = QueueWorld()
    world.node(gpus=8)
    world.tree(org={}, org__a={}, org__b={}, c={})
    return world


def refusal(answer: ev.Event) -> tuple[str, str]:
    assert isinstance(answer, ev.CommandRejected | ev.JobRejected)
    return answer.code, answer.message


# ------------------------------------------------------------------------------- holds


def test_a_held_queue_offers_nothing_and_others_continue() -> None:
    """A job that is submitted to it waits in line, and the log says why; a job of another queue is offered."""
    world = tree()
    assert world.hold_queue("org/a", "storage moves") == ev.QueueHeld(
        cause=f"cmd:c{world.asked - 1}", path="org/a", reason="storage moves", by="boss"
    )
    waits, goes = world.submit(queue="org/a"), world.submit(queue="org/b")
    world.settle()
    assert (world.of(waits), world.of(goes)) == ("queued", "offered")
    (said,) = [event for event in world.said(ev.JobDeferred) if event.job == waits]
    assert (said.reason, said.queue) == ("queue_held", "org/a")


def test_a_hold_covers_the_queues_below() -> None:
    """The reason names the queue that is held."""
    world = tree()
    world.hold_queue("org")
    job = world.submit(queue="org/b")
    world.settle()
    assert world.of(job) == "queued"
    assert world.said(ev.JobDeferred)[-1].queue == "org"


def test_open_offers_come_back_and_runs_go_on() -> None:
    """The hold itself asks for the offers, in the same decision; the run of the queue is not touched."""
    world = tree()
    runs = world.submit(queue="org/a")
    world.run(runs)
    offered = world.submit(queue="org/a")
    world.settle()
    assert world.of(offered) == "offered"
    events = world.ask(cmd.HoldQueue(id="h", user="boss", path="org/a"))
    assert kinds(events) == ["QueueHeld", "OfferWithdrawn"]
    withdrawn = events[1]
    assert isinstance(withdrawn, ev.OfferWithdrawn)
    assert (withdrawn.job, withdrawn.reason) == (offered, "queue_held")
    world.give_back(offered)
    world.settle()
    assert (world.of(offered), world.of(runs)) == ("queued", "running")
    world.release_queue("org/a")
    world.settle()
    assert world.of(offered) == "offered"


def test_an_offer_that_was_placed_meanwhile_runs() -> None:
    """The placer was faster: the job keeps its place."""
    world = tree()
    job = world.submit(queue="org/a")
    world.settle()
    world.hold_queue("org/a")
    world.run(job)
    world.settle()
    assert world.of(job) == "running"


def test_a_release_undoes_hold_and_drain() -> None:
    """Both end; afterwards there is nothing to release."""
    world = tree()
    world.hold_queue("org/a")
    world.drain_queue("org/a")
    assert isinstance(world.release_queue("org/a"), ev.QueueReleased)
    job = world.submit(queue="org/a")
    world.settle()
    assert world.of(job) == "offered"
    assert refusal(world.release_queue("org/a")) == ("conflict", "queue org/a is neither held nor drained")


def test_a_release_names_the_queue_above_that_is_held() -> None:
    """The person learns which one to release."""
    world = tree()
    world.hold_queue("org")
    assert refusal(world.release_queue("org/a")) == (
        "conflict",
        "queue org/a is neither held nor drained; org above it is: release that",
    )


def test_a_decision_that_holds_offers_nothing_of_its_own_submits() -> None:
    """A submit before or after the hold, in one message with it, waits."""
    world = tree()
    first, second = world.submission(queue="org/a"), world.submission(queue="org/a")
    events = world.ask(first, cmd.HoldQueue(id="h", user="boss", path="org/a"), second)
    assert kinds(events) == ["JobSubmitted", "QueueHeld", "JobSubmitted"]
    world.settle()
    assert not world.said(ev.JobOffered)


def test_no_run_yields_to_a_job_of_a_held_queue() -> None:
    """However long it has waited: others keep what they have, and nothing is kept for it."""
    world = tree()
    world.pool(patience_ns=1)
    world.tree(org__a={"guaranteed": {"gpu": 8000}}, org__b={})
    world.run(world.submit(8, queue="org/b"))
    world.hold_queue("org/a")
    world.submit(8, queue="org/a")
    world.pass_time(600)
    assert not world.said(ev.PreemptionRequested)
    assert not world.said(ev.ReservationRequested)


# ------------------------------------------------------------------------------- drains


def test_a_drained_queue_accepts_no_jobs_and_its_own_go_on() -> None:
    """What waits in it gets its turn; the refusal names the drained queue and what to do."""
    world = tree()
    waits = world.submit(queue="org/a")
    world.drain_queue("org")
    world.settle()
    assert world.of(waits) == "offered"
    assert refusal(world.one(world.submission(queue="org/a"))) == (
        "queue_drained",
        "queue org is drained: it accepts no further jobs until it is released; use another queue",
    )


def test_a_drain_counts_for_later_submits_of_the_same_decision() -> None:
    """Also where an equal job was welcome before it."""
    world = tree()
    first, second = world.submission(queue="c"), world.submission(queue="c")
    events = world.ask(first, cmd.DrainQueue(id="d", user="boss", path="c"), second)
    assert kinds(events) == ["JobSubmitted", "QueueDrained", "JobRejected"]


def test_a_job_is_not_moved_into_a_drained_queue() -> None:
    """It stays where it is."""
    world = tree()
    world.hold_queue("c")
    job = world.submit(queue="c")
    world.drain_queue("org/b")
    assert refusal(world.move(job, "org/b"))[0] == "queue_drained"
    assert isinstance(world.move(job, "org/a"), ev.JobMoved)


# ------------------------------------------------------------------------------- the tree, wrong words, questions


def test_a_removed_queue_takes_its_hold_with_it() -> None:
    """One of the same name that is made later, even in the same message, is open."""
    world = tree()
    world.hold_queue("c")
    world.drain_queue("c")
    world.remove("c")
    world.configure("c")
    job = world.submit(queue="c")
    world.settle()
    assert world.of(job) == "offered"


def test_settings_do_not_open_a_held_queue() -> None:
    """Only a release does."""
    world = tree()
    world.hold_queue("c")
    world.configure("c", maximum={"gpu": 4000})
    job = world.submit(queue="c")
    world.settle()
    assert world.of(job) == "queued"


@pytest.mark.parametrize("kind", [cmd.HoldQueue, cmd.DrainQueue, cmd.ReleaseQueue])
def test_an_unknown_queue_is_refused_with_what_may_be_meant(kind: type) -> None:
    """The refusal changes nothing."""
    world = tree()
    assert refusal(world.one(kind(id="x", path="orgg"))) == ("not_found", 'no queue "orgg"; did you mean org?')
    assert not world.state.closures.held and not world.state.closures.drained


def test_a_second_hold_and_a_long_reason_are_refused() -> None:
    """Each with what is expected."""
    world = tree()
    world.hold_queue("c")
    world.drain_queue("c")
    assert refusal(world.hold_queue("c")) == ("conflict", "queue c is already held")
    assert refusal(world.drain_queue("c")) == ("conflict", "queue c is already drained")
    assert refusal(world.hold_queue("org", "x" * 121)) == (
        "invalid",
        "expected a reason of at most 120 characters, found 121",
    )


def test_the_explanation_and_the_dry_run_name_the_held_queue() -> None:
    """No change is proposed, no run would yield, and no start is estimated."""
    world = tree()
    world.hold_queue("org")
    job = world.submit(queue="org/a")
    told = explain(world.state, world.state.jobs[job])
    assert told.limit is not None
    assert (told.reason, told.limit.queue, told.changes) == ("queue_held", "org", ())
    outcome = dry_run(world.state, world.submission(queue="org/a"), world.now)
    assert outcome.waits is not None and outcome.estimate is not None
    assert (outcome.waits.reason, outcome.displaces, outcome.estimate.unknown) == ("queue_held", (), "queue_held")
    world.drain_queue("org/b")
    assert dry_run(world.state, world.submission(queue="org/b"), world.now).code == "queue_drained"


def test_a_snapshot_keeps_closed_queues() -> None:
    """The restored core decides alike."""
    world = tree()
    world.hold_queue("org/a")
    world.drain_queue("c")
    core = QueueCore.restore(world.core.snapshot())
    asked = [Input("CMD", 99, [world.submission(queue="org/a"), world.submission(queue="c")])]
    assert core.decide(asked, world.now) == world.core.decide(asked, world.now)
    assert (core.state.closures.held, core.state.closures.drained) == ({"org/a"}, {"c"})


# ------------------------------------------------------------------------------- jobs that are submitted held


def test_a_job_that_is_submitted_held_waits_for_its_release() -> None:
    """It is not offered before; afterwards it is as any other."""
    world = tree()
    job = world.submit(held=True)
    world.settle()
    assert world.of(job) == "held"
    assert not world.said(ev.JobOffered)
    world.release(job)
    world.settle()
    assert world.of(job) == "offered"


def test_a_held_array_has_no_elements_before_its_release() -> None:
    """Then all of them are offered."""
    world = tree()
    array = world.submit(held=True, array=(0, 2))
    world.settle()
    assert world.of(array) == "held" and not world.said(ev.JobOffered)
    world.release(array)
    world.settle()
    assert [event.job for event in world.said(ev.JobOffered)] == [f"{array}_{index}" for index in range(3)]
