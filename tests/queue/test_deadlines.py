"""Deadlines: the earliest first among equals; a missed one is recorded once, and the job continues without."""

from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds
from tests.queue.lines import closed, order


def test_the_earliest_deadline_goes_first_among_equals() -> None:
    """Behind a higher priority, before those without one; the earlier of equal deadlines came first."""
    world = QueueWorld()
    path = closed(world)
    now = world.now
    late, none, early, urgent, same = (
        world.submit(queue=path, **more)
        for more in (
            {"deadline_ns": now + 900 * SECOND},
            {},
            {"deadline_ns": now + 100 * SECOND},
            {"priority": 60},
            {"deadline_ns": now + 100 * SECOND},
        )
    )
    assert order(world, path) == [urgent, early, same, late, none]


def test_a_missed_deadline_is_recorded_once_and_the_job_loses_its_precedence() -> None:
    """While it waits: at the moment from which too little time is left. From then on it is ordered like a job without a
    deadline."""
    world = QueueWorld()
    path = closed(world)
    first = world.submit(queue=path)
    job = world.submit(queue=path, deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND)
    assert order(world, path) == [job, first]
    assert world.pass_time(39) == []
    assert world.core.wake_at() == world.now + SECOND
    (missed,) = world.pass_time(2)
    assert missed == ev.DeadlineMissed(cause="clock", job=job, deadline_ns=world.now + 59 * SECOND)
    world.restart()
    assert (order(world, path), world.pass_time(1000)) == ([first, job], [])


def test_a_run_misses_its_deadline_at_the_deadline_and_not_before() -> None:
    """Its limit does not matter; a run that ends in time misses nothing."""
    world = QueueWorld()
    jobs = [world.submit(deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND) for _ in range(2)]
    world.pass_time(39)
    world.run(*jobs)
    assert world.pass_time(50) == []
    world.end(jobs[0])
    assert kinds(world.settle()) == ["JobSucceeded"]
    assert [(type(e).__name__, e.job) for e in world.pass_time(11) if isinstance(e, ev.DeadlineMissed)] == [
        ("DeadlineMissed", jobs[1])
    ]


def test_time_used_before_counts_towards_the_deadline_and_lost_time_does_not() -> None:
    """A preempted run needs only the rest of its time; one that restarts from the beginning needs all of it."""
    for preempted, left in ((True, 30), (False, 60)):
        world = QueueWorld()
        path = closed(world)
        job = world.submit(deadline_ns=world.now + 200 * SECOND, total_ns=60 * SECOND, retries=1)
        world.run(job)
        world.now += 30 * SECOND
        world.quota("default", 0)
        world.yielded(job) if preempted else world.end(job, 1)
        world.settle()
        other = world.submit(queue=path, deadline_ns=world.now + 170 * SECOND)
        assert world.state.jobs[job].alarm_ns == world.now + (170 - left) * SECOND
        assert [e.job for e in world.pass_time(170 - left)] == [job]
        assert [e.job for e in world.pass_time(left)] == [other]


def test_a_deadline_that_cannot_be_met_is_refused() -> None:
    """With the missing time; from its start time on, if it has one."""
    world = QueueWorld()
    for more, short in (({}, "10s"), ({"start_at_ns": world.now + 20 * SECOND}, "30s")):
        refused = world.ask(world.submission(deadline_ns=world.now + 50 * SECOND, total_ns=60 * SECOND, **more))[0]
        assert (refused.code, refused.field) == ("deadline", "deadline")
        assert refused.message == f"cannot be met: {short} too little time until then; move it or shorten time.total"


def test_an_array_misses_its_deadline_once_and_its_elements_each_their_own() -> None:
    """Elements that are born later have none any more; those that run have it until it has come."""
    world = QueueWorld()
    world.quota("q", 1)
    array = world.submit(queue="q", array=(0, 2), deadline_ns=world.now + 100 * SECOND, total_ns=60 * SECOND)
    world.settle()
    world.run(f"{array}_0")
    assert [e.job for e in world.pass_time(40)] == [array]
    world.end(f"{array}_0")
    assert [e.job for e in world.settle()] == [f"{array}_0", f"{array}_1"]
    world.run(f"{array}_1")
    assert world.pass_time(59) == []
