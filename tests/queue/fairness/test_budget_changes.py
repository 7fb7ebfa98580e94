"""Budgets that demote, that are raised, lowered, set and taken away; and prices that change."""

from fairlead_queue.fairness.budgets import UNIT
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND
from tests.queue.spending import HOUR, budget, marks, use, world_at

# ---------------------------------------------------------------------------------------- demotion


def test_a_demoted_queue_is_served_if_no_other_queue_has_work() -> None:
    """Its guarantee and share do not matter; once its budget is raised, it is as before."""
    world = world_at(2024, 3, 1, a=budget(1, when_spent="demote"), b=None)
    world.tree(a={"budget": budget(1, when_spent="demote"), "guaranteed": {"gpu": 8_000}, "priority": 5}, b={})
    use(world, 1, 1, "a")
    assert marks(world) == [("a", 100, 1)]
    for _ in range(2):
        events = world.ask(world.submission(8, queue="a"), world.submission(8, queue="b"))
        offers = [e.job for e in events if isinstance(e, ev.JobOffered)]
        queue_of = {e.job: e.queue for e in events if isinstance(e, ev.JobSubmitted)}
        assert [queue_of[job] for job in offers][:1] == ["b"]
        world.run(*offers)
        for job in offers:
            world.end(job)
        world.settle()
    world.restart()
    world.configure("a", budget=budget(100, when_spent="demote"), guaranteed={"gpu": 8_000}, priority=5)
    world.settle()
    assert marks(world)[1:] == [("a", 0, 1)]
    events = world.ask(world.submission(8, queue="b"), world.submission(8, queue="a"))
    offers = [e.job for e in events if isinstance(e, ev.JobOffered)]
    assert world.state.jobs[offers[0]].lane.leaf.queue.path == "a"


def test_a_budget_that_is_removed_or_changes_its_effect_leaves_no_demotion() -> None:
    """And no refusal."""
    for after in (None, budget(1, when_spent="refuse"), budget(1, period="day", when_spent="demote")):
        world = world_at(2024, 3, 2, a=budget(1, when_spent="demote"), b=None)
        use(world, 1, 1, "a")
        assert world.state.queues["a"].node.priority < 0
        world.configure("a", budget=after)
        world.settle()
        assert world.state.queues["a"].node.priority == 0
        assert (world.state.accounts["a"].reached if after else 0) == (100 if after and after.period == "month" else 0)


# ---------------------------------------------------------------------------------------- changes


def test_a_budget_changed_within_its_period_keeps_its_use() -> None:
    """The use so far stays; the new amount counts from then on."""
    world = world_at(2024, 3, 1, q=budget(10))
    use(world, 8, 1, "q")
    world.configure("q", budget=budget(100))
    world.settle()
    world.configure("q", budget=budget(8))
    world.settle()
    world.configure("q", budget=budget(16))
    world.settle()
    assert [(percent, spent) for _, percent, spent in marks(world)] == [(80, 8), (0, 8), (100, 8), (0, 8)]
    assert world.of(world.submit(1, queue="q")) == "offered"


def test_a_budget_set_while_jobs_run_counts_them_from_then_on() -> None:
    """And forgets them with the budget."""
    world = world_at(2024, 3, 1, q=None)
    job = world.submit(8, queue="q")
    world.place_on("n1", 8, job)
    world.pass_time(HOUR)
    world.configure("q", budget=budget(16))
    world.pass_time(HOUR)
    assert world.state.accounts["q"].at(world.now)[1] == 8 * HOUR * 1000 * UNIT
    world.configure("q")
    assert (world.state.accounts, world.pass_time(10 * HOUR)) == ({}, [])


def test_a_queue_may_be_removed_in_the_moment_in_which_its_budget_is_spent() -> None:
    """No mark is recorded for a queue that does not exist."""
    world = world_at(2024, 3, 1, q=budget(1))
    job = world.submit(1, queue="q")
    world.place_on("n1", 1, job)
    world.now += HOUR * SECOND
    answer = world.apply(queues=(QueueEntry(path="q", settings=QueueSettings()),))
    assert (answer.configured, world.settle(), marks(world)) == (1, [], [])


def test_prices_hold_from_the_placement_on() -> None:
    """A run keeps the price it began with, so that what it uses is exact."""
    world = world_at(2024, 3, 1, q=budget(100))
    world.pool(prices={"a100": 3_000})
    job = world.submit(1, queue="q")
    world.place_on("n1", 1, job)
    world.pass_time(HOUR)
    world.pool(prices={"a100": 1})
    world.pass_time(HOUR)
    assert world.state.accounts["q"].at(world.now)[1] == 6 * HOUR * 1000 * UNIT
