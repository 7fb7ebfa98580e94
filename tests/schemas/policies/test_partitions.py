"""Partition fields of a job file: values to integers, and bounds that name the field."""

from typing import Any

import pytest

from fairlead_schemas.jobfile.job_spec import job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.policies.partitions import NEVER_NS, OnPartition, fault_of
from fairlead_schemas.units.timestamps import SECOND_NS as S
from fairlead_schemas.units.validation import InvalidJob


def policy(**words: Any) -> OnPartition:
    """Return the policy of a job file's fields."""
    return resolve(job_from({"command": ["true"], **words}), command_id="c1", user="ada").on_partition


@pytest.mark.parametrize(
    ("words", "stop_ns", "replace_ns"),
    [
        ({}, 0, 0),
        ({"onPartition": {"stopAfter": "60s", "replaceAfter": "120s"}}, 60 * S, 120 * S),
        ({"onPartition": {"stopAfter": 20, "replaceAfter": "80s"}}, 20 * S, 80 * S),
        ({"onPartition": {"stopAfter": "30s"}}, 30 * S, 0),
        ({"onPartition": {"stopAfter": "10m"}}, 600 * S, 660 * S),
        ({"onPartition": {"replaceAfter": "1h"}}, 0, 3600 * S),
        ({"onPartition": {"replaceAfter": "never"}}, 0, NEVER_NS),
        ({"strict": True}, 0, NEVER_NS),
        ({"strict": True, "onPartition": {"stopAfter": "10m"}}, 600 * S, NEVER_NS),
        ({"strict": True, "onPartition": {"stopAfter": "never", "replaceAfter": "never"}}, NEVER_NS, NEVER_NS),
    ],
)
def test_partition_fields_become_integers(words: dict[str, Any], stop_ns: int, replace_ns: int) -> None:
    """By default a time is the cluster's; a later stop delays the replacement accordingly."""
    assert policy(**words) == OnPartition(stop_after_ns=stop_ns, replace_after_ns=replace_ns)


@pytest.mark.parametrize(
    ("words", "field", "message"),
    [
        (
            {"onPartition": {"stopAfter": "9s"}},
            "onPartition.stopAfter",
            'expected at least 10s, or "never", found "9s"',
        ),
        (
            {"onPartition": {"stopAfter": "0"}},
            "onPartition.stopAfter",
            'expected a duration above 0, or "never", found "0"',
        ),
        ({"onPartition": {"stopAfter": "soon"}}, "onPartition.stopAfter", 'expected a duration such as "90s"'),
        ({"onPartition": {"stopAfter": "never"}}, "onPartition.stopAfter", 'or replaceAfter "never" with it'),
        (
            {"onPartition": {"stopAfter": "60s", "replaceAfter": "119s"}},
            "onPartition.replaceAfter",
            'expected at least 2m (1m until it is stopped, 30s grace, 30s margin), or "never", found "1m 59s"',
        ),
        ({"onPartition": {"replaceAfter": "60s"}}, "onPartition.replaceAfter", "expected at least 2m"),
        (
            {"strict": True, "onPartition": {"replaceAfter": "5m"}},
            "strict",
            'expected onPartition.replaceAfter "never" with it, found "5m"',
        ),
    ],
)
def test_an_impossible_promise_is_refused(words: dict[str, Any], field: str, message: str) -> None:
    """By field, with the expected value."""
    with pytest.raises(InvalidJob) as refused:
        policy(**words)
    (error,) = refused.value.errors
    assert error.field == field
    assert message in error.message


def test_integers_from_elsewhere_are_held_to_the_same() -> None:
    """The queue asks this of commands that no gateway has read."""
    for good in (OnPartition(), OnPartition(stop_after_ns=NEVER_NS, replace_after_ns=NEVER_NS)):
        assert fault_of(good) is None
    for bad in ((-2, 0), (0, -2), (1, 0), (NEVER_NS, 0), (60 * S, 60 * S), (2**62, 0), (0, 2**62)):
        assert fault_of(OnPartition(stop_after_ns=bad[0], replace_after_ns=bad[1])) is not None
