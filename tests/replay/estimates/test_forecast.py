"""Futures of a start: at once or after others, never where it cannot be known, and the same for the same log."""

import pytest

from fairlead_replay.estimates import forecast as forecasts
from fairlead_replay.estimates.core import EstimatorCore
from fairlead_replay.estimates.futures import Question
from fairlead_replay.virtual.load import BEGIN_NS
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire.commands import Dependency
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.events import Event, JobCancelled, QueueHeld
from tests.replay.estimates import scenes


def told(core: EstimatorCore, **more: object) -> forecasts.Forecast:
    """Return the forecast for a submit."""
    return core.answer(Question(submit=scenes.submit(**more))).forecast  # pyright: ignore[reportArgumentType]


def committed(core: EstimatorCore, event: Event) -> Commit:
    """Return the next commit of a log."""
    at_ns, basis = core.cluster.at_ns, core.sequence
    return Commit(
        v=VERSION, writer="queue", n=10**6, basis=basis, at_ns=at_ns, cursors={}, prev=GENESIS, events=[event]
    )


def busy(until_s: float = 700) -> EstimatorCore:
    """Return an estimator whose one node is taken, after jobs of ten minutes have ended there."""
    log = scenes.recorded([*scenes.many(12, every_s=650), scenes.job(8_000, 600), scenes.job(8_010, 600)])
    return scenes.folded(log, until_s=until_s)


def test_a_job_starts_at_once_where_nothing_has_to_end() -> None:
    core = scenes.folded(scenes.recorded([scenes.job(0, 50)], nodes=2), until_s=20)
    found = told(core)
    assert found.at_once
    assert found.nodes == ("n002",)
    assert not found.displaced


def test_the_nodes_named_are_those_that_it_gets() -> None:
    log = scenes.recorded([scenes.job(at * 100, 50 + 7 * at, gpus=(8, 4, 2)[at % 3]) for at in range(24)], nodes=3)
    entries = scenes.folded(log).ledger.entries
    at_once = [each for each in entries if each.at_once]
    assert len(at_once) > 15
    assert all(each.nodes == each.got for each in at_once)
    assert all(each.held for each in at_once)


def test_a_job_that_waits_for_a_run_starts_when_runs_like_it_end() -> None:
    core = busy(8_100)
    found = told(core)
    assert not found.at_once
    assert not found.nodes
    # One runs for another 500 s, one waits for 600 s.
    assert 8 < scenes.minutes(found.wait_ns(0.5)) < 25


def test_the_answer_depends_on_the_log_alone() -> None:
    first, again = busy(8_100), busy(8_100)
    assert told(first) == told(first) == told(again)


def test_a_job_that_waits_is_asked_about_by_its_id() -> None:
    core = busy(8_100)
    waiting = next(job.id for job in core.cluster.queue.state.jobs.values() if job.state in ("queued", "offered"))
    found = core.answer(Question(job=waiting)).forecast
    assert not found.unknown
    assert 4 < scenes.minutes(found.wait_ns(0.5)) < 15


def test_a_long_line_is_laid_out_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "PLAYED_LINE_MAX", 0)
    core = busy(8_100)
    found = told(core)
    assert found.basis == "laid_out"
    assert 8 < scenes.minutes(found.wait_ns(0.5)) < 25


def test_the_work_is_bounded_and_what_does_not_fit_is_laid_out() -> None:
    found = busy(8_100).answer(Question(submit=scenes.submit()), work_max=1).forecast
    assert found.basis == "laid_out"
    assert found.waits_ns


def test_without_history_runs_are_taken_to_last_as_long_again() -> None:
    core = scenes.folded(scenes.recorded([scenes.job(0, 5_000)]), until_s=600)
    found = core.answer(Question(submit=scenes.submit()), BEGIN_NS + 600 * SECOND_NS).forecast
    assert not found.unknown
    assert 2 < scenes.minutes(found.wait_ns(0.5)) < 60


def test_a_time_limit_bounds_what_is_drawn() -> None:
    jobs = [*scenes.many(10, work_s=3_000, every_s=3_100), scenes.job(40_000, 100, limit_s=600)]
    core = scenes.folded(scenes.recorded(jobs), until_s=40_010)
    found = told(core)
    assert found.wait_ns(1.0) <= 620 * SECOND_NS


@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        ({"held": True}, "held"),
        ({"after": (Dependency(job="1", state="ended"),)}, "after"),
        ({"path": "nowhere"}, "refused"),
        ({"gpus": 64}, "never"),
    ],
)
def test_it_says_why_no_interval_can_be_given(more: dict[str, object], unknown: str) -> None:
    found = told(busy(8_100), **more)
    assert found.unknown == unknown
    assert not found.waits_ns


def test_a_held_queue_has_no_interval() -> None:
    core = busy(8_100)
    held = committed(core, QueueHeld(cause="clock", path="a"))
    core.evolve(core.sequence + 1, held)
    assert told(core).unknown == "queue_held"


def test_a_pool_without_nodes_has_no_interval() -> None:
    log = scenes.recorded(
        [scenes.job(0, 1)], queues=(scenes.queue("a"), scenes.queue("b", pool="other")), pools=("other",)
    )
    assert told(scenes.folded(log), path="b").unknown == "no_node"


def test_a_start_time_in_the_future_is_waited_for() -> None:
    core = busy(8_100)
    found = told(core, start_at_ns=BEGIN_NS + 5 * HOUR_NS)
    assert found.wait_ns(0.1) >= 5 * HOUR_NS - 8_200 * SECOND_NS


def test_a_job_that_is_over_is_not_asked_about() -> None:
    core = scenes.folded(scenes.recorded([scenes.job(0, 5)]))
    assert core.answer(Question(job="1")).forecast.unknown == "not_waiting"
    assert core.answer(Question(job="no-such-job")).forecast.unknown == "not_waiting"


def test_an_array_is_estimated_by_its_first_element() -> None:
    found = told(busy(8_100), array=(1, 3))
    assert not found.unknown
    assert found.wait_ns(0.5) > 0


def test_cancelled_jobs_leave_the_history() -> None:
    core = busy(8_100)
    waiting = next(job.id for job in core.cluster.queue.state.jobs.values() if job.state in ("queued", "offered"))
    cancel = committed(core, JobCancelled(cause="clock", job=waiting))
    core.history.take(cancel)
    assert waiting not in core.history.jobs
