"""Ends upon damage: one form of log line, and an exit code that a supervisor knows."""

import pytest
import structlog

from fairlead_bus import bus_faults
from fairlead_bus.port import BusError, CommandsLost, LogDamaged, Unavailable
from fairlead_schemas.wire.commit import CommitUndecodable, OtherLogFormat, decode_commit, encode_commit
from fairlead_schemas.wire.conditions import CONDITIONS, EXIT_COMMANDS_LOST, EXIT_DAMAGED, Condition
from tests.schemas.examples import COMMIT


@pytest.mark.parametrize(
    ("error", "code", "condition"),
    [
        (LogDamaged(7, "gap"), EXIT_DAMAGED, "log_damaged"),
        (CommandsLost("sequences 91 to 100 are gone"), EXIT_COMMANDS_LOST, "commands_lost"),
    ],
)
def test_an_end_upon_damage_is_logged_with_its_condition_and_the_commands_to_type(
    error: BusError, code: int, condition: str
) -> None:
    """`fairlead up` reads the condition from that line, a person reads the commands."""
    with structlog.testing.capture_logs() as lines:
        assert bus_faults.end_service("queue", error) == code
    (line,) = lines
    assert (line["log_level"], line["service"], line["condition"]) == ("critical", "queue", condition)
    assert line["reason"] == str(error)
    assert "`fairlead audit " in line["hint"]


def test_a_log_of_another_format_is_not_called_damaged() -> None:
    """Neither a verification nor a restore would help: the version that wrote it, or an empty directory does."""
    payload = encode_commit(COMMIT).replace(b'"v":2', b'"v":1', 1)
    with pytest.raises(OtherLogFormat) as raised:
        decode_commit(payload)
    damaged = LogDamaged(1, str(raised.value))
    damaged.__cause__ = raised.value
    with structlog.testing.capture_logs() as lines:
        assert bus_faults.end_service("queue", damaged) == EXIT_DAMAGED
    assert lines[0]["condition"] == "log_format"
    assert "the log has format 1, this version of Fairlead reads format 2 alone" in lines[0]["reason"]
    assert "`fairlead up --data NEW`" in lines[0]["hint"]
    assert "audit" not in lines[0]["hint"]


def test_a_log_of_a_later_version_is_not_called_damaged_even_if_its_events_are_unknown_here() -> None:
    """An older version that is started on a newer log says to install the newer one; no verification would help."""
    payload = encode_commit(COMMIT).replace(b'"v":2', b'"v":3', 1).replace(b'"type":"', b'"type":"Later', 1)
    with pytest.raises(
        OtherLogFormat, match=r"format 3, a later one than format 2 .* install the version that wrote the log"
    ):
        decode_commit(payload)


def test_undecodable_bytes_without_a_format_are_damage() -> None:
    """Bytes that state no format, or this version's, are damaged."""
    for payload in (b"{", encode_commit(COMMIT).replace(b'"type":"', b'"type":"Later', 1)):
        with pytest.raises(CommitUndecodable) as raised:
            decode_commit(payload)
        assert not isinstance(raised.value, OtherLogFormat)


def test_other_errors_are_no_damage() -> None:
    """A bus that is away is waited for: it must not end a service as damaged."""
    with pytest.raises(Unavailable):
        bus_faults.end_service("queue", Unavailable("away"))


def test_a_condition_names_the_data_directory_if_a_command_needs_it() -> None:
    """Commands use the default directory unless they get another; the new log's directory is the user's choice."""
    hint = Condition(code="log_damaged", message="").hint("/srv/a")
    assert "`fairlead audit verify --data /srv/a`" in hint
    assert "--data NEW --data" not in hint
    assert all(each.remedies for each in CONDITIONS.values()), "every condition has a command"
