"""Standing of queues: amounts kept for them, past use and budgets, as the queue's own decisions count them."""

from random import Random
from typing import Any

from fairlead_queue.standing import standings
from fairlead_schemas.queries.explainer import QueueStanding
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld
from tests.queue.spending import HOUR, budget, use, world_at


def standing(world: QueueWorld) -> dict[str, QueueStanding]:
    """{path: standing}; the question changes nothing."""
    before = world.core.snapshot()
    found = {each.queue: each for each in standings(world.state)}
    assert world.core.snapshot() == before
    return found


def test_kept_is_the_idle_guarantee_that_is_not_lent() -> None:
    """It falls with the queue's own runs, and never below nothing; what is lent is not kept."""
    world = QueueWorld(careful=False)
    world.node("n1", gpus=8)
    world.tree(speech={"guaranteed": {"gpu": 4000}, "lending": {"gpu": 1000}}, vision={"guaranteed": {"gpu": 2000}})
    assert {path: each.kept for path, each in standing(world).items() if each.kept} == {"speech": {"gpu": 3000}}
    world.run(world.submit(2, queue="speech"))
    assert standing(world)["speech"].kept == {"gpu": 1000}
    world.run(world.submit(2, queue="speech"))
    assert standing(world)["speech"].kept == {}


def test_no_job_gets_what_is_kept() -> None:
    """In random trees, a job of another queue is offered up to the free amount that no queue keeps, and no GPU more."""
    kept_somewhere = 0
    for seed in range(100):
        for more in (0, 1):
            world, used = a_world_of(Random(seed))
            kept = sum(each.kept.get("gpu", 0) for each in standing(world).values()) // 1000
            if not kept:
                break
            kept_somewhere += 1
            job = world.submit(16 - used - kept + more, queue="other")
            world.settle()
            assert (job in {event.job for event in world.said(ev.JobOffered)}) is not bool(more), (seed, more)
    assert kept_somewhere > 60


def a_world_of(rng: Random) -> tuple[QueueWorld, int]:
    """(a node of 16 GPUs and three queues that lend a part of their guarantees, GPUs that run in them)."""
    world, used = QueueWorld(careful=False), 0
    world.node("n1", gpus=16)
    tree: dict[str, Any] = {"other": {}}
    for name in "abc":
        most = rng.randrange(5) * 1000
        tree[name] = {"guaranteed": {"gpu": most}, "lending": {"gpu": rng.randrange(most + 1) // 1000 * 1000}}
    world.tree(**tree)
    for name in "abc":
        if gpus := rng.randrange(3):
            world.run(world.submit(gpus, queue=name))
            used += gpus
    return world, used


def test_budgets_are_counted_between_their_marks() -> None:
    """No event reports 42 %; without a budget there is nothing; parents count what is below them."""
    world = world_at(2026, 3, 2, lab=budget(100), lab__a=None, other=None)
    use(world, 8, 5.25, "lab/a")
    found = standing(world)
    assert found["lab"].spent == 42 * HOUR * 1000
    assert (found["lab/a"].spent, found["other"].spent) == (None, None)


def test_past_use_is_there_where_the_pool_counts_it() -> None:
    """A use that lasts is approached; a pool that does not count it says so."""
    world = QueueWorld(careful=False)
    world.node("n1", gpus=8)
    world.pool(sequencer="fairshare", half_life_ns=HOUR * SECOND)
    world.tree(a={}, b={})
    world.place_on("n1", 4, world.submit(4, queue="a"))
    world.now += HOUR * SECOND
    world.settle()
    world.run(world.submit(1, queue="b"))
    found = standing(world)
    assert 1900 < (found["a"].past_use or {})["gpu"] < 2100
    assert found["b"].past_use == {}
    plain = QueueWorld(careful=False)
    plain.tree(a={})
    assert standing(plain)["a"].past_use is None


def test_a_price_is_recorded_and_decides_nothing() -> None:
    """From now on where no moment is named, in whole microseconds."""
    world = QueueWorld(careful=False)
    world.now += 7
    for from_ns in (0, 1_999_999):
        price = cmd.SetPrice(id=f"c{from_ns}", user="boss", model="*", micro=2_490_000, currency="EUR", from_ns=from_ns)
        [found] = world.ask(price)
        assert found == ev.PriceSet(
            cause=f"cmd:c{from_ns}",
            model="*",
            micro=2_490_000,
            currency="EUR",
            from_ns=(from_ns or world.now) // 1000 * 1000,
            by="boss",
        )
