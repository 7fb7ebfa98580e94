"""A job's own bounds for its output: ranges by field, and the line that describes them."""

from typing import Any

import msgspec
import pytest

from fairlead_schemas.jobfile.agent_fields import NODE_BOUNDS, OutputBounds, describe_output, output_of
from fairlead_schemas.jobfile.job_spec import JobSpec, decode_job, job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.timestamps import SECOND_NS as S
from fairlead_schemas.units.validation import ErrorCollector, InvalidJob


def job(**output: Any) -> JobSpec:
    """A job file with these bounds."""
    return job_from({"command": ["true"], "output": output})


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ({}, NODE_BOUNDS),
        ({"keep": "7d"}, OutputBounds(keep_ns=7 * 86400 * S)),
        ({"keep": 60}, OutputBounds(keep_ns=60 * S)),
        ({"keep": "365d", "max": "1Ti"}, OutputBounds(365 * 86400 * S, 2**20)),
        ({"max": "1Mi"}, OutputBounds(max_mib=1)),
        ({"max": 2**30}, OutputBounds(max_mib=1024)),
    ],
)
def test_values_within_the_range_are_read(words: dict[str, Any], bounds: OutputBounds) -> None:
    """Durations and memory quantities as elsewhere in the job file; both are optional."""
    reading = ErrorCollector()
    assert output_of(job(**words).output, reading) == bounds
    assert not reading.errors


@pytest.mark.parametrize(
    ("words", "field", "message"),
    [
        ({"keep": "59s"}, "output.keep", 'expected a duration from 1m to 365d, found "59s"'),
        ({"keep": 0}, "output.keep", 'expected a duration from 1m to 365d, found "0"'),
        ({"keep": "366d"}, "output.keep", "expected a duration from 1m to 365d"),
        ({"keep": "for ever"}, "output.keep", "expected a duration such as"),
        ({"max": 0}, "output.max", 'expected a size from 1Mi to 1Ti, found "0"; leave it out'),
        ({"max": "512Ki"}, "output.max", 'expected a size from 1Mi to 1Ti, found "512Ki"'),
        ({"max": 2**20 - 1}, "output.max", "expected a size from 1Mi to 1Ti"),
        ({"max": "2Ti"}, "output.max", "expected a size from 1Mi to 1Ti"),
        ({"max": "much"}, "output.max", "expected a memory quantity such as"),
    ],
)
def test_values_out_of_range_are_refused_at_submit(words: dict[str, Any], field: str, message: str) -> None:
    """One error, at the field, with the range."""
    with pytest.raises(InvalidJob) as refused:
        resolve(job(**words), command_id="c1", user="ada")
    (error,) = refused.value.errors
    assert error.field == field
    assert message in error.message


def test_an_unknown_key_is_refused() -> None:
    """A slip of the pen must not leave the output unbounded."""
    with pytest.raises(InvalidJob) as refused:
        decode_job(b'{"command": ["true"], "output": {"kep": "7d"}}')
    assert refused.value.errors[0].field == "output.kep"


def test_the_command_carries_the_bounds_in_the_job_file_only() -> None:
    """The agent reads them there; a job without them has the same bytes as before."""
    command = resolve(job(keep="7d", max="1Gi"), command_id="c1", user="ada")
    assert msgspec.json.decode(bytes(command.spec)) == {"command": ["true"], "output": {"keep": "7d", "max": "1Gi"}}
    assert bytes(resolve(job_from({"command": ["true"]}), command_id="c1", user="ada").spec) == b'{"command":["true"]}'


def test_bounds_are_described_in_one_line() -> None:
    """The line names the node's settings, which count where they are lower."""
    assert describe_output(NODE_BOUNDS) == "as its node's settings have it"
    assert describe_output(OutputBounds(7 * 86400 * S, 1024)) == (
        "the last 1Gi of stdout and of stderr, for 7d after its end, or less where its node's settings are lower"
    )
