"""GPU time against budgets: exact from the log, recorded at 80 and 100 percent, refused or demoted, reset in each
period."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_queue.fairness.budgets import UNIT
from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.units.timestamps import calendar_period
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds
from tests.queue.spending import HOUR, at, budget, marks, use, world_at

# ---------------------------------------------------------------------------------------- exactness

steps_of = st.lists(
    st.tuples(
        st.sampled_from(["run", "end", "wait", "wait", "restart", "decide"]),
        st.integers(0, 5 * 86_400),  # seconds, or a choice
        st.sampled_from(["org/a", "org/b", "c"]),
        st.sampled_from(["n1", "n2", "n3"]),
        st.integers(1, 8),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps_of, period=st.sampled_from(["day", "week", "month"]))
def test_past_use_is_exact_after_any_history(steps: list[tuple[str, int, str, str, int]], period: Any) -> None:
    """Against integers that are counted second by second: nested budgets, prices, new periods, restarts."""
    world = QueueWorld(careful=False)
    world.now = at(2024, 2, 25)
    for name, model in (("n1", "a100"), ("n2", "old"), ("n3", "")):
        world.node(name, gpus=8, model=model)
    world.pool(prices={"a100": 2_500, "old": 333})
    huge = Budget(gpu_milli_s=10**15, period=period)
    world.tree(org={"budget": huge}, org__a={"budget": huge}, org__b={}, c={"budget": huge})
    spans: list[tuple[str, int, int, int]] = []  # queue, weight, begin, end
    live: dict[str, tuple[str, int, int]] = {}
    for kind, number, path, node, gpus in steps:
        if kind == "wait":
            world.now += number * SECOND + number % 7
        elif kind == "restart":
            world.restart()
        elif kind == "decide":
            world.settle()
        elif kind == "run":
            job = world.submit(gpus, queue=path)
            world.place_on(node, gpus, job)
            live[job] = (path, gpus * 1000 * {"n1": 2_500, "n2": 333}.get(node, 1_000), world.now)
        elif live:
            job = sorted(live)[number % len(live)]
            spans.append((*live.pop(job), world.now))
            world.end(job)
    spans += [(path, weight, begin, world.now) for path, weight, begin in live.values()]
    begin_ns, _ = calendar_period(period, world.now)
    assert sorted(world.state.accounts) == ["c", "org", "org/a"]
    for path, account in world.state.accounts.items():
        expected = sum(
            weight * max(0, end - max(begin, begin_ns))
            for queue, weight, begin, end in spans
            if queue == path or queue.startswith(f"{path}/")
        )
        assert account.at(world.now) == (begin_ns, expected), path


# ---------------------------------------------------------------------------------------- marks


def test_eighty_and_a_hundred_percent_are_recorded_once_and_on_time() -> None:
    """At the exact moment, although nothing else happens, with the amount used."""
    world = world_at(2024, 3, 1, q=budget(10))
    job = world.submit(4, queue="q")
    world.place_on("n1", 4, job)
    world.settle()
    assert world.core.wake_at() == world.now + 2 * HOUR * SECOND
    world.now += 2 * HOUR * SECOND - 1
    assert world.settle() == []
    world.now += 1
    (said,) = world.settle()
    assert said == ev.BudgetReached(
        cause="clock", queue="q", percent=80, spent=8 * HOUR * 1000, budget=10 * HOUR * 1000, period_ns=at(2024, 3, 1)
    )
    world.restart()
    assert world.pass_time(HOUR / 2 - 1) == []
    assert [(e.percent, e.spent) for e in world.pass_time(1)] == [(100, 10 * HOUR * 1000)]
    assert world.pass_time(24 * HOUR) == []


def test_a_spent_budget_refuses_offers_and_submits_until_the_next_period() -> None:
    """Running jobs continue; waiting jobs wait with this reason, in the queue and below it."""
    world = world_at(2024, 3, 31, 12, org=budget(8, period="month"), org__a=None)
    waits = world.submit(1, queue="org/a", start_at_ns=world.now + 90 * 60 * SECOND)
    use(world, 8, 1, "org/a")
    assert marks(world) == [("org", 100, 8)]
    (refused,) = world.ask(world.submission(queue="org/a"))
    assert (refused.code, refused.message) == ("budget", "the budget of queue org is spent for this month")
    world.pass_time(HOUR)
    (said,) = [e for e in world.said(ev.JobDeferred) if e.job == waits]
    assert (said.reason, said.queue) == ("budget", "org")
    world.pass_time()
    assert world.core.wake_at() == at(2024, 4, 1)
    world.now = at(2024, 4, 1)
    assert [(type(e).__name__, getattr(e, "percent", None)) for e in world.settle()] == [
        ("BudgetReached", 0),
        ("JobOffered", None),
    ]


def test_the_decision_that_records_a_spent_budget_makes_no_offer() -> None:
    """A run that ended at the same moment frees nothing for the queue."""
    world = world_at(2024, 3, 1, q=budget(8))
    world.configure("q", budget=budget(8), maximum={"gpu": 8_000})
    job = world.submit(8, queue="q")
    world.place_on("n1", 8, job)
    waits = world.submit(8, queue="q")
    world.now += HOUR * SECOND
    world.end(job)
    assert kinds(world.settle()) == ["JobSucceeded", "BudgetReached"]
    assert world.of(waits) == "queued"


def test_a_new_period_may_begin_before_the_queue_has_recorded_it() -> None:
    """A placement after midnight clears the mark of the old period."""
    world = world_at(2024, 3, 1, 22, q=budget(8, period="day"), other=None)
    use(world, 8, 1, "q")
    assert marks(world) == [("q", 100, 8)]
    other = world.submit(1, queue="other")
    world.now = at(2024, 3, 2, 1)
    world.place_on("n1", 1, other)
    world.configure("q", budget=budget(8, period="day"), weight=2)
    world.settle()
    assert marks(world)[1:] == [("q", 0, 0)]
    assert world.of(world.submit(1, queue="q")) == "offered"


def test_a_run_across_midnight_counts_in_each_period_for_its_part() -> None:
    """And the next mark is that of the new day."""
    world = world_at(2024, 2, 29, 23, q=budget(16, period="day"))
    job = world.submit(8, queue="q")
    world.place_on("n1", 8, job)
    assert world.pass_time(HOUR) == []
    account = world.state.accounts["q"]
    assert account.at(world.now) == (at(2024, 3, 1), 0)
    assert [(e.percent, e.period_ns) for e in world.pass_time(2 * HOUR)] == [(100, at(2024, 3, 1))]
    world.now = at(2024, 3, 5, 0, 30)
    assert [e.percent for e in world.settle()] == [0]
    assert account.at(world.now)[1] == 4 * HOUR * 1000 * UNIT


def test_a_budget_without_a_further_mark_in_this_period_does_not_keep_the_core_awake() -> None:
    """The core wakes at the next moment at which something may be recorded, never in the past."""
    world = world_at(2024, 2, 29, 23, q=budget(1000, period="day"))
    job = world.submit(1, queue="q")
    world.place_on("n1", 1, job)
    for _ in range(5):
        world.pass_time(HOUR / 2)
        wake_at = world.core.wake_at()
        assert wake_at is not None and wake_at > world.now


def test_the_oracle_of_periods_agrees_with_the_calendar() -> None:
    """Four years of days, one by one."""
    day = datetime(2023, 12, 31, tzinfo=UTC)
    for _ in range(4 * 366):
        begin, end = calendar_period("day", int(day.timestamp()) * SECOND + 5)
        assert (begin, end) == (int(day.timestamp()) * SECOND, int((day + timedelta(days=1)).timestamp()) * SECOND)
        day += timedelta(days=1)
