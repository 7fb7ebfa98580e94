"""Metrics by hand: what they count, and of whom."""

import pytest

from fairlead_replay.policy_test.metrics import MeasuredJobs, PlayMeasures, metric_named
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.replays import play_recording
from tests.replay.whatif.scenes import Scene, queues


def measures() -> PlayMeasures:
    """One node of four GPUs: a job of each queue takes all of it for 20 s, submitted at 0, 0 and 0; the window ends at 50."""
    scene = Scene(gpus=2)
    scene.command(-1, queues())
    for queue in ("a", "b", "a"):
        scene.submit(0, 2, 20, queue=queue)
    scene.submit(1, 2, 20, queue="b")
    scene.submit(2, 2, None, queue="b")
    recording = record_of(scene.play(30)[0])
    return PlayMeasures(recording, play_recording(recording))


def value(name: str, jobs: MeasuredJobs = MeasuredJobs(), longer_than_s: int = 0) -> float | None:  # noqa: B008 -- a constant
    """Return a measure of the scene."""
    metric = metric_named(name)
    assert metric is not None
    return measures().value(metric, jobs, longer_than_s * 1_000_000_000)


@pytest.mark.parametrize(
    ("name", "queue", "expected"),
    [
        ("started", "", 4),
        ("unstarted", "", 1),
        ("ended", "", 2),
        ("started", "a", 2),
        ("wait_max", "a", 20),
        ("wait_p50", "a", 0),
        ("preemptions", "", 0),
    ],
)
def test_counts_and_waits(name: str, queue: str, expected: float) -> None:
    """Two nodes: two jobs start at once, two 20 s later, one waits on."""
    found = value(name, MeasuredJobs("queue", queue) if queue else MeasuredJobs())
    assert found == pytest.approx(expected, abs=0.5)


def test_a_wait_that_lasts_counts_for_as_long_as_it_has() -> None:
    """The job that never starts came at 2, and the window ends with the last commit."""
    longest = value("wait_max")
    assert longest is not None
    assert longest >= 18


def test_starved_are_those_that_wait_longer() -> None:
    """The bound itself is no starvation."""
    assert value("starved_jobs", longer_than_s=1) == 3
    assert value("starved_jobs", longer_than_s=1000) == 0


def test_jain_is_one_where_all_get_their_share() -> None:
    """And the least served queue has its all, too; no queue can have more than it is entitled to."""
    jain, least = value("jain"), value("least_served")
    assert jain is not None
    assert least is not None
    assert 0.5 < jain <= 1
    assert 0 <= least <= 1


def test_a_queue_counts_those_below_it() -> None:
    """ "research" is all of research."""
    (life, *_) = measures().lives
    life.job.queue = "research/vision"
    assert MeasuredJobs("queue", "research").has(life.job)
    assert not MeasuredJobs("queue", "rese").has(life.job)
