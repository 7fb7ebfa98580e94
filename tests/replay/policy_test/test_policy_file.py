"""Policy test files: what is read of them, and every mistake with its field, what was expected and what was found."""

from typing import Any

import pytest

from fairlead_replay.policy_test.policy_file import InvalidPolicyTest, PolicySource, PolicyTest, read_policy_test

LOG = {"load": "day.load.jsonl.gz"}


def read(*expect: dict[str, Any], **more: Any) -> PolicyTest:
    """Read a file with these expectations."""
    words = {"log": LOG, "expect": list(expect) or [{"metric": "started", "at_least": 1}]}
    return read_policy_test(words | more)


def refused(*expect: dict[str, Any], **more: Any) -> list[str]:
    """Return the mistakes of a file, as "field: message"."""
    with pytest.raises(InvalidPolicyTest) as caught:
        read(*expect, **more)
    return [f"{each.field}: {each.message}" for each in caught.value.errors]


def test_thresholds_have_their_metrics_unit() -> None:
    """Times in seconds, GPU-hours, counts, plain numbers, and parts of what is compared with."""
    found = read(
        {"metric": "wait_p95", "queue": "a", "at_most": "1h 30m"},
        {"metric": "gpu_hours", "at_least": "12.5 GPUh"},
        {"metric": "preemptions", "at_most": 40},
        {"metric": "jain", "at_least": "0.97"},
        {"metric": "wait_mean", "worse_by_at_most": "10%"},
        {"metric": "starved_jobs", "longer_than": "4h", "equals": 0},
    ).expectations
    assert [(each.threshold.value, each.threshold.is_part) for each in found] == [
        (5400, False),
        (12.5, False),
        (40, False),
        (0.97, False),
        (0.1, True),
        (0, False),
    ]
    assert found[0].subject == "wait_p95 of queue a"
    assert found[0].demand == "at most 1h 30m"
    assert found[5].subject == "starved_jobs of all jobs waiting longer than 4h"


def test_eight_pairs_unless_something_else_is_asked_for() -> None:
    """An exact play has none."""
    assert [read().seeds, read(seeds=3).seeds, read(exact=True).seeds] == [8, 3, 0]


def test_the_policy_is_the_recorded_one_unless_named() -> None:
    """Then a test is about the code."""
    assert read().policy.is_recorded
    assert read(policy={"queues": "queues.yaml"}).policy == PolicySource("queues.yaml")


@pytest.mark.parametrize(
    ("expectation", "told"),
    [
        ({"metric": "wat_p95", "at_most": "1m"}, "expect[0].metric: expected one of wait_mean, wait_pNN"),
        ({"metric": "wait_p95x", "at_most": "1m"}, "did you mean wait_p95?"),
        ({"metric": "wait_p0", "at_most": "1m"}, "(NN: 1 to 99)"),
        ({"metric": "wait_p100", "at_most": "1m"}, "(NN: 1 to 99)"),
        ({"metric": "wait_pNN", "at_most": "1m"}, "(NN: 1 to 99)"),
        ({"at_most": "1m"}, "expect[0].metric: "),
        (
            {"metric": "wait_p95", "at_most": 30},
            "expect[0].at_most: expected a time with its unit such as 90s or 30m, found 30",
        ),
        ({"metric": "wait_p95", "at_most": "30"}, 'found "30"'),
        ({"metric": "wait_p95", "at_most": "soon"}, "expect[0].at_most: expected a duration such as"),
        ({"metric": "gpu_hours", "at_most": 12}, 'expected GPU-hours with their unit such as "12.5 GPUh", found 12'),
        ({"metric": "gpu_hours", "at_most": "12h"}, 'found "12h"'),
        ({"metric": "preemptions", "at_most": "40"}, "expected a whole number of 0 or more"),
        ({"metric": "preemptions", "at_most": True}, "expect[0].at_most: expected "),
        ({"metric": "preemptions", "at_most": -1}, "expected a whole number of 0 or more"),
        ({"metric": "jain", "at_least": "nan"}, 'expected a number of 0 or more, found "nan"'),
        ({"metric": "jain", "at_least": "1e400"}, "expected a number of 0 or more"),
        ({"metric": "wait_p95", "at_most": "10%"}, "a percentage needs worse_by_at_most or better_by_at_least"),
        ({"metric": "wait_p95"}, "expect[0]: expected one of at_most, at_least, equals"),
        ({"metric": "wait_p95", "at_most": "1m", "at_least": "1s"}, "found at_most and at_least"),
        ({"metric": "wait_p95", "queue": "a", "user": "u", "at_most": "1m"}, "found queue and user"),
        ({"metric": "jain", "queue": "a", "at_least": 1}, "expect[0].queue: jain compares all queues with each other"),
        ({"metric": "wait_p95", "size": "3 GPUs", "at_most": "1m"}, "expect[0].size: expected one of no GPU, 1 GPU"),
        ({"metric": "starved_jobs", "equals": 0}, "expect[0].longer_than: expected the wait beyond which"),
        (
            {"metric": "starved_jobs", "longer_than": 4, "equals": 0},
            "expect[0].longer_than: expected a time with its unit",
        ),
        ({"metric": "started", "longer_than": "4h", "equals": 0}, "started takes none; starved_jobs does"),
        ({"metric": "gpu_hours", "worse_by_at_most": "3%"}, "more gpu_hours is neither better nor worse"),
        ({"metric": "started", "at_most": 3, "queu": "a"}, "expect[0].queu: "),
    ],
)
def test_a_wrong_expectation_is_named(expectation: dict[str, Any], told: str) -> None:
    """With its place in the file."""
    assert told in "\n".join(refused(expectation))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"exact": True, "seeds": 8}, "exact: expected exact or seeds, found both"),
        ({"seeds": 2}, "seeds: expected 0 or at least 3, found 2"),
        ({"seeds": 65}, "seeds: expected a whole number from 0 to 64"),
        ({"fidelity": "D"}, 'fidelity: expected A, B, or C for any, found "D"'),
        ({"log": {}}, "log: expected one of load, export and archive with a path, found none"),
        ({"log": {"load": "a", "export": "b"}}, "found load and export"),
        ({"log": {"load": "a", "from": "yesterday"}}, "neither from nor to with a load file"),
        ({"log": {"load": "a", "sha256": "abc"}}, "log.sha256: expected 64 hex digits"),
        ({"policy": "fifo"}, "policy: expected recorded, or a map with queues, sequencer or change"),
        ({"policy": {}}, "policy: expected queues, sequencer or change, found none of them"),
        ({"policy": {"change": "c.yaml", "sequencer": "fifo"}}, "policy: expected change alone"),
        ({"against": {"queue": "q.yaml"}}, "against.queue: "),
        ({"expect": []}, "expect: expected expectations or goldens, found neither"),
        ({"expect": [{"metric": "started", "at_least": 1}] * 201}, "expect: expected at most 200, found 201"),
        ({"unknown": 1}, "unknown: "),
    ],
)
def test_a_wrong_file_is_named(fields: dict[str, Any], told: str) -> None:
    """Field by field."""
    assert told in "\n".join(refused(**fields))


def test_every_mistake_is_named_at_once() -> None:
    """Not one after the other."""
    found = refused({"metric": "wat", "at_most": 1}, {"metric": "wait_p95", "at_most": 1}, seeds=2)
    assert len(found) == 3


def test_nothing_is_no_file() -> None:
    """An empty document names what is missing."""
    with pytest.raises(InvalidPolicyTest, match="log"):
        read_policy_test(None)
