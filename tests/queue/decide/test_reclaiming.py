"""Asked to with a change, queues give back what they hold beyond their limits: in order, visibly, and no more."""

from typing import Any

from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds, request


def queue(path: str, **settings: Any) -> QueueEntry:
    """A queue and its settings."""
    return QueueEntry(path=path, settings=QueueSettings(**settings))


def test_a_reclaim_takes_offers_then_the_lowest_priority_then_the_least_loss() -> None:
    """As few as needed; each waits again with the rest of its time, and the reclaim ends when the queue is within its
    limit."""
    world = QueueWorld()
    world.quota("q", 16)
    low, late, early = (world.submit(4, queue="q", priority=p, total_ns=900 * SECOND) for p in (10, 50, 50))
    world.run(low, early)
    world.now += 100 * SECOND
    world.run(late)
    offer = world.submit(4, queue="q", priority=90)
    answer = world.apply(queues=(queue("q", maximum={"gpu": 6_000}),), reclaim=True)
    assert answer.reclaim
    world.restart()
    asked = world.settle()
    assert [(type(e).__name__, e.job, e.reason) for e in asked] == [
        ("OfferWithdrawn", offer, "quota"),
        ("JobStopRequested", low, "reclaimed"),
        ("JobStopRequested", late, "reclaimed"),
    ]
    world.restart()
    assert world.pass_time() == []
    world.give_back(offer)
    world.now += 10 * SECOND
    world.end(low, 143, "stopped")
    world.end(late, 0)
    requeued, succeeded, *_ = world.settle()
    assert (requeued.job, requeued.reason, requeued.attempt) == (low, "preempted", 2)
    assert (type(succeeded), world.state.reclaims) == (ev.JobSucceeded, {})
    assert (world.of(early), world.state.jobs[low].used_ns) == ("running", 111 * SECOND)


def test_a_reclaimed_run_can_still_be_cancelled() -> None:
    """A person's stop outranks it, once; an array's elements that were reclaimed end with the array."""
    world = QueueWorld()
    world.quota("q", 4)
    job, array = world.submit(2, queue="q"), world.submit(1, queue="q", array=(0, 1))
    world.settle()
    world.run(job, f"{array}_0", f"{array}_1")
    world.apply(queues=(queue("q", maximum={"gpu": 0}),), reclaim=True)
    assert kinds(world.settle()) == ["JobStopRequested"] * 3
    assert isinstance(world.cancel(job), ev.JobStopRequested)
    assert world.cancel(job).code == "conflict"
    world.cancel(array)
    for each in (job, f"{array}_0", f"{array}_1"):
        world.end(each, 143, "stopped")
    assert kinds(world.settle()) == ["JobCancelled"] * 4


def test_a_reclaim_covers_every_level_and_users() -> None:
    """Runs stopped in a child queue count for its parents; a user releases what exceeds the user's own limit."""
    world = QueueWorld()
    world.tree(org={}, org__a={}, org__b={}, u={"users": {"*": {"gpu": 8_000}}})
    jobs = [world.submit(2, queue=path, priority=p) for path in ("org/a", "org/b") for p in (50, 40)]
    own = [world.submit(2, queue="u", user=user) for user in ("ada", "ada", "bob")]
    world.run(*jobs, *own)
    world.apply(
        queues=(
            queue("org", maximum={"gpu": 4_000}),
            queue("org/a", maximum={"gpu": 2_000}),
            queue("u", users={"*": {"gpu": 2_000}}),
        ),
        reclaim=True,
    )
    assert [e.job for e in world.settle()] == [jobs[1], own[1], jobs[3]]


def test_runs_that_are_stopping_count_for_a_reclaim() -> None:
    """No further run is stopped for capacity that is already being freed."""
    world = QueueWorld()
    world.quota("q", 8)
    jobs = [world.submit(2, queue="q") for _ in range(4)]
    world.run(*jobs)
    other = world.submit(4)
    world.preempt(other, (jobs[0], "over_guarantee"))
    world.cancel(jobs[1])
    world.apply(queues=(queue("q", maximum={"gpu": 4_000}),), reclaim=True)
    assert world.settle() == []
    world.yielded(jobs[0])
    world.end(jobs[1], 143, "stopped")
    assert kinds(world.settle()) == ["JobRequeued", "JobCancelled"]
    assert world.state.reclaims == {}


def test_a_reclaim_that_a_later_change_makes_needless_is_dropped() -> None:
    """The limit is raised before any stop, or the queue is removed: no run is stopped."""
    world = QueueWorld()
    world.quota("q", 8)
    world.run(world.submit(8, queue="q"))
    lowered = world.apply(queues=(queue("q", maximum={"gpu": 4_000}),))
    assert (lowered.reclaim, world.pass_time()) == (False, [])
    world.fold("queue", [ev.QueuesApplied(cause="cmd:x", command="x", reclaim=True)])
    assert list(world.state.reclaims) == ["q"]
    world.fold("queue", [ev.QueueConfigured(cause="cmd:y", path="q", settings=QueueSettings())])
    assert (world.state.reclaims, world.settle()) == ({}, [])


def test_no_job_is_stopped_that_gives_nothing_back() -> None:
    """Over its CPUs, a queue keeps the job that holds only memory; the fewest that do are asked."""
    world = QueueWorld()
    world.configure("q")
    small, none, big = (world.submit(queue="q", request=request(0, cpu=cpu)) for cpu in (2, 0, 6))
    world.run(small, none, big)
    world.apply(queues=(queue("q", maximum={"cpu": 2_000}),), reclaim=True)
    assert [e.job for e in world.settle()] == [big]
