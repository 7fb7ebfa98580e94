"""Limits, users, models, sequencers and pools that change while jobs wait and run.

The world holds every fold against a state that was restored from its snapshot, and every charge against the jobs.
"""

from typing import Any

import pytest

from fairlead_schemas.queuefile.settings import Ageing, PoolEntry, PoolSettings, QueueEntry, QueueSettings
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds, request


@pytest.mark.parametrize("model", ["", "a100"])
def test_a_model_may_be_limited_while_jobs_run(model: str) -> None:
    """The vectors widen: jobs that name the model count from then on; others cannot be counted and continue."""
    world = QueueWorld()
    world.node(gpus=8, model="a100")
    run = world.submit(request=request(4, model=model))
    world.run(run)
    waits = world.submit(request=request(8, model="a100"))
    assert isinstance(world.configure("default", maximum={"gpu:a100": 8_000}), ev.QueuesApplied)
    assert world.charged("default", "gpu:a100") == (12_000 if model else 8_000)
    world.configure("default")
    assert world.state.pools["default"].resources == ("gpu", "cpu", "memory")
    assert (world.charged("default"), world.of(run), world.of(waits)) == (12_000, "running", "offered")


def test_users_limited_while_jobs_wait_and_run() -> None:
    """Each user's jobs count on his own limit from then on; taken away, the queue's alone counts again."""
    world = QueueWorld()
    world.configure("q", maximum={"gpu": 8_000})
    runs = [world.submit(2, queue="q", user=user) for user in ("ada", "ada", "b/ob%2F")]
    world.run(*runs)
    waits = [world.submit(2, queue="q", user=user) for user in ("ada", "b/ob%2F", "b/ob%2F")]
    assert world.offered() == [waits[0]]
    world.configure("q", maximum={"gpu": 8_000}, users={"*": {"gpu": 4_000}})
    assert [e.job for e in world.pass_time() if isinstance(e, ev.OfferWithdrawn)] == [waits[0]]
    world.give_back(waits[0])
    world.settle()
    world.pass_time(11)
    assert world.offered() == [waits[1]]
    (said,) = [e for e in world.said(ev.JobDeferred) if e.job == waits[2]][-1:]
    assert (said.reason, said.queue, said.held, said.ceiling) == ("user_limit", "q", 4_000, 4_000)
    world.configure("q", maximum={"gpu": 12_000})
    world.pass_time()
    assert world.offered() == waits


def test_past_use_of_users_is_kept_when_user_shares_are_switched() -> None:
    """It counts for the user after the last job ended and after a restart, and for the queue when users are no longer
    distinguished; the queue's use before they were stays with the queue."""
    world = QueueWorld()
    world.node(gpus=8)
    world.pool(sequencer="fairshare", half_life_ns=3600 * SECOND)
    world.configure("q")

    def past() -> int:
        pool = world.state.pools["default"]
        assert pool.past is not None
        return pool.past.value(world.state.queues["q"].node)[0]

    def use(user: str) -> None:
        job = world.submit(4, queue="q", user=user)
        world.run(job)
        world.now += 3600 * SECOND
        world.end(job)
        world.settle()

    use("ada")
    before = past()
    assert 1_900 < before < 2_100
    world.configure("q", users={"*": {"gpu": 8_000}})
    assert past() == before
    use("bob")
    world.restart()
    after = past()
    assert 2_900 < after < 3_100
    world.configure("q", maximum={"gpu:a100": 8_000})
    assert past() == after
    world.configure("q/below")
    world.restart()
    assert past() == after
    world.remove("q/below")
    assert past() == after
    assert world.of(world.submit(1, queue="q", request=request(1, model="a100"))) == "offered"


@pytest.mark.parametrize("half_life", [60, 7200, 10**6])
def test_another_half_life_goes_on_from_what_was_used(half_life: int) -> None:
    """Periods are of another length then: nothing is counted twice, and use is approached as before."""
    world = QueueWorld()
    world.node(gpus=8)
    world.pool(sequencer="fairshare", half_life_ns=3600 * SECOND)
    world.run(world.submit(4))
    world.now += 3600 * SECOND
    world.free_something()
    world.pool(sequencer="fairshare", half_life_ns=half_life * SECOND)
    world.restart()
    world.now += 10 * half_life * SECOND
    world.free_something()
    pool = world.state.pools["default"]
    assert pool.past is not None
    assert 3_990 <= pool.past.value(world.state.queues["default"].node)[0] <= 4_000


def test_a_new_sequencer_reorders_waiting_jobs() -> None:
    """First come first, then the newest first, then back: no position of the previous order remains."""
    world = QueueWorld()
    world.node(gpus=1)
    world.quota("q", 0)
    world.pool(sequencer="fifo")
    jobs = [world.submit(1, queue="q") for _ in range(3)]
    world.pool(sequencer="lifo")
    jobs += [world.submit(1, queue="q") for _ in range(2)]
    lines = [
        line
        for leaf in world.state.queues["q"].leaves.values()
        for lane in leaf.lanes.values()
        for line in lane.lines.values()
    ]
    assert [job.id for line in lines for job in line] == list(reversed(jobs))
    world.pool(sequencer="drf")
    world.quota("q", None)
    world.settle()
    assert world.offered() == jobs


def test_pools_come_and_go_with_their_nodes_and_queues() -> None:
    """A queue's capacity is that of its pool; a pool that is made again knows its nodes."""
    world = QueueWorld()
    world.node("n1", gpus=8)
    world.node("n2", gpus=4, pool="p")
    world.apply(
        pools=(PoolEntry(pool="p", settings=PoolSettings()),),
        queues=(QueueEntry(path="q", settings=QueueSettings(pool="p")),),
    )
    assert world.state.pools["p"].tree.capacity[0] == 4_000
    job = world.submit(4, queue="q")
    assert world.state.jobs[job].lane.request_class.request.pool == "p"
    refused = world.ask(world.submission(8, queue="q"))[0]
    assert refused.message == "asks for 8 GPUs per node; the largest node has 4"
    assert world.move(job, "default").message == "job 1 is offered; only a job that waits can be moved"
    world.cancel(job)
    world.give_back(job)
    world.settle()
    assert isinstance(world.configure("q"), ev.QueuesApplied)
    world.apply(queues=tuple(QueueEntry(path=p, settings=QueueSettings()) for p in ("q", "default")), prune=True)
    assert sorted(world.state.pools) == ["default"]
    world.pool("p")
    assert world.state.pools["p"].tree.capacity[0] == 4_000
    assert world.of(world.submit(8, queue="q")) == "offered"


def test_a_node_that_changes_takes_its_capacity_along() -> None:
    """Fewer GPUs, another pool; a lost node's still count, for it may come back, a removed one's do not."""
    world = QueueWorld()
    world.pool("p")
    world.node("n1", gpus=8)
    world.node("n2", gpus=8)
    pool = world.state.pools["default"]
    assert pool.tree.capacity[0] == 16_000
    world.says(ev.NodeLost(cause="clock", node="n2", silent_ns=1))
    assert pool.tree.capacity[0] == 16_000
    world.node("n2", gpus=6)
    assert pool.tree.capacity[0] == 14_000
    world.node("n2", gpus=6, pool="p")
    assert (pool.tree.capacity[0], world.state.pools["p"].tree.capacity[0]) == (8_000, 6_000)
    world.says(ev.NodeRemoved(cause="cmd:1", node="n2"))
    assert (pool.tree.capacity[0], world.state.pools["p"].tree.capacity[0]) == (8_000, 0)
    world.node("n2", gpus=6)
    assert pool.tree.capacity[0] == 14_000


def test_ageing_that_is_switched_on_and_off_under_jobs() -> None:
    """Those who wait begin to rise, and stop; what they have risen they keep."""
    world = QueueWorld()
    world.quota("q", 0)
    job = world.submit(1, queue="q")
    world.now += 100 * SECOND
    world.pool(ageing=Ageing(every_ns=60 * SECOND, most=5))
    assert kinds(world.settle()) == ["PriorityAged"]
    world.pool()
    assert (world.pass_time(600), world.state.jobs[job].aged) == ([], 1)


def change_of(kind: str, world: QueueWorld) -> Any:
    """Return a change that rebuilds the pool."""
    if kind == "model":
        return world.configure("other", maximum={"gpu:a100": 4_000})
    if kind == "sequencer":
        return world.pool(sequencer="fifo")
    return world.configure("q", maximum={"gpu": 4_000}, users={"eve": {"gpu": 0}})


@pytest.mark.parametrize("kind", ["model", "sequencer", "users"])
def test_capacity_kept_for_a_job_stays_when_the_pool_is_rebuilt(kind: str) -> None:
    """Quota under a limit that still exists remains reserved for it."""
    world = QueueWorld()
    world.pool(patience_ns=10 * SECOND)
    world.configure("q", maximum={"gpu": 4_000})
    runs = [world.submit(1, queue="q") for _ in range(4)]
    world.run(*runs)
    big = world.submit(2, queue="q")
    world.pass_time(20)
    assert world.said(ev.ReservationRequested)[-1].queue == "q"
    change_of(kind, world)
    small = world.submit(1, queue="q")
    world.end(runs[0])
    assert kinds(world.settle()) == ["JobSucceeded"]
    world.end(runs[1])
    assert [e.job for e in world.settle()] == [runs[1], big]
    assert world.of(small) == "queued"
