"""Verdicts: what a policy hurts is broken and named, what chance does is not judged, what is not believed is not either."""

from typing import Any

import pytest

from fairlead_replay.policy_test import goldens
from fairlead_replay.policy_test.goldens import GoldensRefused
from fairlead_replay.policy_test.plays import MissingJobs, PlayFacts, QueueFileChange, UnknownQueues
from fairlead_replay.policy_test.verdicts import Status, judge
from fairlead_replay.whatif.record import LogWindow, record_of
from fairlead_replay.whatif.replays import Conditions, play_recording
from fairlead_schemas.queuefile.parse import read_queue_file
from tests.replay.policy_test.worlds import HURTS_A, played, policy_test, report, two_queues, two_queues_log
from tests.replay.whatif.scenes import at

WAIT_A: dict[str, Any] = {"metric": "wait_p95", "queue": "a", "worse_by_at_most": "10%"}
WAIT_B: dict[str, Any] = {"metric": "wait_p95", "queue": "b", "worse_by_at_most": "10%"}


def test_the_recorded_policy_meets_what_compares_with_it() -> None:
    """Every difference of an exact play with itself is 0."""
    found = report(policy_test(WAIT_A, WAIT_B, {"metric": "started", "equals": 40}), None).verdicts
    assert [each.status for each in found.verdicts] == ["met"] * 3
    assert [each.difference for each in found.verdicts] == [0, 0, 0]
    assert found.status == "met"


def test_the_hurt_queue_is_named_and_by_how_much() -> None:
    """The other one is not; jobs that lost most are of the hurt queue, the worst first."""
    found = report(policy_test(WAIT_A, WAIT_B), HURTS_A).verdicts
    hurt, other = found.verdicts
    assert (hurt.status, other.status, found.status) == ("broken", "met", "broken")
    assert hurt.expectation.subject == "wait_p95 of queue a"
    assert "% worse" in hurt.words.replace("(", "").replace(")", "")
    assert {each.queue for each in hurt.losers} == {"a"}
    losses = [each.wait_s - each.compared_wait_s for each in hurt.losers]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 0


def test_shaken_pairs_show_the_same() -> None:
    """Three pairs of one sign, beyond what the control varies by."""
    found = report(policy_test(WAIT_A, WAIT_B, seeds=3), HURTS_A).verdicts
    assert found.verdicts[0].status == "broken"
    assert len(report(policy_test(WAIT_A, seeds=3), HURTS_A).plays.pairs) == 3


@pytest.mark.parametrize(
    ("bound", "threshold", "status"),
    [
        ("at_most", 39, "broken"),
        ("at_most", 40, "met"),
        ("at_least", 41, "broken"),
        ("equals", 40, "met"),
        ("equals", 39, "broken"),
    ],
)
def test_absolute_bounds(bound: str, threshold: int, status: Status) -> None:
    """The bound itself is allowed."""
    found = report(policy_test({"metric": "started", bound: threshold}), None).verdicts.verdicts[0]
    assert found.status == status
    if status == "broken":
        assert "1 (" in found.words


def facts(value: float) -> PlayFacts:
    """Return a play with one measure."""
    return PlayFacts((value,), {"1": value})


@pytest.mark.parametrize(
    ("expectation", "values", "status"),
    [
        ({"worse_by_at_most": "10%"}, [(100, 200), (110, 210), (105, 190)], "broken"),
        ({"worse_by_at_most": "10%"}, [(100, 200), (110, 100), (105, 300)], "unclear"),
        ({"worse_by_at_most": "10%"}, [(100, 115), (10, 25), (200, 230)], "unclear"),
        ({"worse_by_at_most": "10%"}, [(100, 108), (110, 118), (105, 112)], "met"),
        ({"worse_by_at_most": "10%"}, [(100, 50), (110, 60), (105, 50)], "met"),
        ({"worse_by_at_most": "20s"}, [(100, 119), (110, 129), (105, 124)], "met"),
        ({"worse_by_at_most": "20s"}, [(100, 125), (100, 125), (100, 125)], "broken"),
        ({"worse_by_at_most": "10%"}, [(0.2, 0.9), (0.2, 0.9), (0.2, 0.9)], "met"),
        ({"better_by_at_least": "20%"}, [(100, 50), (110, 60), (105, 50)], "met"),
        ({"better_by_at_least": "20%"}, [(100, 90), (100, 91), (100, 90)], "broken"),
        ({"better_by_at_least": "20%"}, [(100, 50), (110, 120), (105, 50)], "unclear"),
        ({"better_by_at_least": "20%"}, [(100, 150), (100, 150), (100, 150)], "broken"),
        ({"better_by_at_least": "20%"}, [(100, 100), (100, 100), (100, 100)], "broken"),
    ],
)
def test_differences_count_where_all_pairs_say_so(
    expectation: dict[str, Any], values: list[tuple[float, float]], status: Status
) -> None:
    """One sign, and more than twice what the control varies by; a bound that chance passes is not judged. Ten per cent of nothing is
    nothing: a wait counts as ten seconds at least."""
    test = policy_test({"metric": "wait_mean", **expectation}, seeds=3)
    recording = two_queues()
    plays = played(policy_test({"metric": "wait_mean", "at_most": "1h"}), None, recording)
    made = plays._replace(pairs=tuple((facts(some), facts(other)) for some, other in values))
    assert judge(test, recording, made).verdicts[0].status == status


def test_what_is_not_believed_is_not_judged() -> None:
    """A control of grade C, and B was asked for; C takes any."""
    recording = two_queues()
    test = policy_test(WAIT_A)
    plays = played(test, HURTS_A, recording)
    doubtful = plays._replace(fidelity=plays.fidelity._replace(grade="C", because=("queue a: other waits",)))
    found = judge(test, recording, doubtful)
    assert found.status == "unclear"
    assert "grade is C, expected B or better: queue a: other waits" in found.verdicts[0].words
    assert judge(test._replace(fidelity="C"), recording, doubtful).status == "broken"


@pytest.mark.parametrize(("kind", "name"), [("queue", "c"), ("user", "nobody"), ("pool", "b"), ("size", "5 to 8 GPUs")])
def test_a_metric_of_no_job_is_refused(kind: str, name: str) -> None:
    """With what there is instead."""
    test = policy_test({"metric": "wait_p95", kind: name, "at_most": "1h"})
    with pytest.raises(
        MissingJobs, match=rf"expect\[0\].{kind}: wait_p95 does not exist for {kind} {name}.*expected one of"
    ):
        played(test, None)


def test_a_window_without_jobs_is_refused() -> None:
    """Nothing would be tested."""
    late = record_of(two_queues_log(), LogWindow(at(335)))
    with pytest.raises(MissingJobs, match="expected jobs in the window, found none"):
        played(policy_test({"metric": "started", "at_least": 0}), None, late)


def test_the_same_input_gives_the_same_plays() -> None:
    """Every value of every pair, and the digest."""
    test = policy_test(WAIT_A, seeds=3)
    assert played(test, HURTS_A) == played(test, HURTS_A)


# ---------------------------------------------------------------------------- queue files


def test_a_queue_file_replaces_the_recorded_settings() -> None:
    """It is the whole truth: what it does not name has its default, and recorded changes of queues are not given."""
    recording = two_queues()
    file = read_queue_file({"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}, "b": {}}})
    by_file = play_recording(recording, Conditions(QueueFileChange(file, recording)))
    assert by_file.events["QueuesApplied"] == 1
    assert by_file.left_out == {"commands that the change replaces": 1}


def test_a_queue_file_has_the_queues_of_the_jobs() -> None:
    """Else their submits would all be refused, and no job would wait."""
    with pytest.raises(UnknownQueues, match="found none named b"):
        QueueFileChange(read_queue_file({"queues": {"a": {}}}), two_queues())


def test_a_sequencer_is_put_upon_a_queue_file() -> None:
    """In the default pool."""
    recording = two_queues()
    change = QueueFileChange(read_queue_file({"queues": {"a": {}, "b": {}}}), recording, "fifo")
    (given,) = change.first(0)
    assert [entry.settings.sequencer for entry in given.command.pools] == ["fifo"]  # type: ignore[union-attr] -- the command is ApplyQueues


# ---------------------------------------------------------------------------- goldens


def test_goldens_of_the_same_play_have_no_difference() -> None:
    """Written and read again."""
    plays = played(policy_test(WAIT_A), None)
    assert goldens.compare_goldens(goldens.goldens_of("a" * 64, plays), "a" * 64, plays) == []


def test_goldens_name_the_queue_that_moved() -> None:
    """And by how much."""
    test = policy_test(WAIT_A)
    before, after = played(test, None), played(test, HURTS_A)
    found = goldens.compare_goldens(goldens.goldens_of("a" * 64, before), "a" * 64, after)
    assert {each.queue for each in found} >= {"a"}
    assert any(each.words.startswith("wait_mean of queue a: ") for each in found)


def test_another_decision_is_a_difference_though_no_figure_moves() -> None:
    """The digest is that of the whole play."""
    plays = played(policy_test(WAIT_A), None)
    (found,) = goldens.compare_goldens(
        goldens.goldens_of("a" * 64, plays), "a" * 64, plays._replace(play_sha256="0" * 64)
    )
    assert found.words == "decisions differ from the golden play, no figure of a queue does"


def test_goldens_of_another_log_are_refused() -> None:
    """They would differ in everything."""
    plays = played(policy_test(WAIT_A), None)
    with pytest.raises(GoldensRefused, match=r"of another log: expected bbbb.*--update writes those of this one"):
        goldens.compare_goldens(goldens.goldens_of("a" * 64, plays), "b" * 64, plays)


@pytest.mark.parametrize("stored", [b"", b"{}", b"\xff", b'{"goldens":9,"load":"","play":"","queues":{}}'])
def test_what_is_no_golden_is_refused(stored: bytes) -> None:
    """In words."""
    with pytest.raises(GoldensRefused):
        goldens.compare_goldens(stored, "a" * 64, played(policy_test(WAIT_A), None))
