"""Checkpoint fields of a job file."""

import json
from typing import Any

import pytest

from fairlead_schemas.jobfile.job_spec import decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.policies.checkpoints import NOTE_CHARS_MAX, Checkpoint, note_of
from fairlead_schemas.units.validation import InvalidJob

MINUTE = 60 * 10**9


def meaning(words: Any, **more: Any) -> Checkpoint | None:
    """Of a job file with these words."""
    payload = json.dumps({"command": ["train"], "checkpoint": words, **more}).encode()
    return resolve(decode_job(payload), command_id="c1", user="ada").checkpoint


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (None, None),
        ({}, Checkpoint()),
        ({"signal": "SIGUSR1"}, Checkpoint(signal="SIGUSR1", notice_ns=2 * MINUTE)),
        ({"signal": "usr2", "notice": 30}, Checkpoint(signal="SIGUSR2", notice_ns=MINUTE // 2)),
        (
            {"command": ["sh", "-c", "save"], "notice": "5m"},
            Checkpoint(command=("sh", "-c", "save"), notice_ns=5 * MINUTE),
        ),
        ({"every": "10m"}, Checkpoint(every_ns=10 * MINUTE)),
    ],
)
def test_checkpoint_fields_become_integers(words: Any, found: Checkpoint | None) -> None:
    """A signal may be spelled as in Slurm; a job with notice has two minutes by default."""
    assert meaning(words) == found


@pytest.mark.parametrize(
    ("words", "field", "told"),
    [
        ({"signal": "SIGKILL"}, "checkpoint.signal", "expected one of SIGUSR1"),
        ({"signal": "USR1", "command": ["save"]}, "checkpoint.command", "found both"),
        ({"command": [""]}, "checkpoint.command", "expected a program"),
        ({"command": ["x" * 2000]}, "checkpoint.command", "put the script into a file"),
        ({"notice": "1m"}, "checkpoint.notice", "expected with signal or command"),
        ({"signal": "USR1", "notice": "2h"}, "checkpoint.notice", "at most 1h"),
        ({"signal": "USR1", "notice": 0}, "checkpoint.notice", "more than 0"),
        ({"signal": "USR1", "notice": "soon"}, "checkpoint.notice", "expected a duration"),
        ({"every": "often"}, "checkpoint.every", "expected a duration"),
        ({"signal": 10}, "checkpoint.signal", "in quotes"),
        ({"sginal": "USR1"}, "checkpoint.sginal", "unknown"),
    ],
)
def test_mistakes_are_named(words: Any, field: str, told: str) -> None:
    """The field, the expected value, and the remedy."""
    with pytest.raises(InvalidJob) as refused:
        meaning(words)
    assert [error.field for error in refused.value.errors] == [field]
    assert told in refused.value.errors[0].message


def test_a_notice_is_shorter_than_the_time_limit() -> None:
    """It ends with the time limit; a notice as long as the limit would leave no run."""
    with pytest.raises(InvalidJob, match=r"less than time\.total"):
        meaning({"signal": "USR1", "notice": "10m"}, time={"total": "10m"})
    assert meaning({"signal": "USR1", "notice": "10m"}, time={"total": "11m"}) is not None


def test_a_checkpoint_report_is_one_printable_line() -> None:
    """It goes into the log and onto users' terminals."""
    assert note_of("step=1200\nloss=3\n") == "step=1200"
    assert note_of("\x1b[31mred\x07") == "?[31mred?"
    assert len(note_of("x" * 10_000)) == NOTE_CHARS_MAX
