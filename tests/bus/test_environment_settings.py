"""Settings are refused by name, with what was expected and what was found; a process says so in one line and ends."""

import json
import os
import subprocess
import sys

import pytest

from fairlead_bus.environment_settings import BadSetting, number, one_of, seconds, token, whole
from fairlead_bus.streams import LOG_BYTES_DEFAULT, log_cap


def start(module: str, **settings: str) -> tuple[int, dict[str, str]]:
    """Run a service with these settings: its exit code and the only line that it writes."""
    env = {**os.environ, "FAIRLEAD_LOG_LEVEL": "warning", **settings}
    done = subprocess.run([sys.executable, "-m", module], env=env, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    return done.returncode, json.loads(line)


def test_missing_or_empty_settings_take_the_default() -> None:
    """An empty variable is how compose files and units express "not set"."""
    for env in ({}, {"X": ""}):
        assert one_of(env, "X", ("a", "b"), "b") == "b"
        assert seconds(env, "X", 2.5) == 2.5
        assert whole(env, "X", 3, unit="servers", least=1, most=5) == 3
        assert token(env, "X") == ""
        assert log_cap(env) == LOG_BYTES_DEFAULT


def test_valid_settings_are_taken() -> None:
    """Choices in any case; numbers up to their bounds; names unchanged."""
    assert token({"X": "big-memory"}, "X") == "big-memory"
    assert one_of({"X": "Warning"}, "X", ("info", "warning"), "info") == "warning"
    assert number({"X": "0.5"}, "X", 7, unit="days") == 0.5
    assert whole({"X": "5"}, "X", 1, unit="servers", least=1, most=5) == 5


@pytest.mark.parametrize("found", ["0", "-1", "week", "nan", "inf", "1e9"])
def test_a_number_out_of_range_is_refused(found: str) -> None:
    """Not a number, or none that makes sense."""
    with pytest.raises(BadSetting, match=f'^X: expected seconds above 0 and below 1000000, found "{found}"$'):
        seconds({"X": found}, "X", 1.0)


@pytest.mark.parametrize("found", ["0", "6", "2.0", "three"])
def test_a_whole_number_out_of_range_is_refused(found: str) -> None:
    """Both bounds belong to the range."""
    with pytest.raises(BadSetting, match=f'^X: expected a whole number of servers from 1 to 5, found "{found}"$'):
        whole({"X": found}, "X", 1, unit="servers", least=1, most=5)


@pytest.mark.parametrize("found", ["Big", "a b", "a/b", "-a", "x" * 64])
def test_a_name_that_fits_no_subject_is_refused(found: str) -> None:
    """It would become part of a subject or of a file's name."""
    with pytest.raises(BadSetting, match=f'^X: expected 1 to 63 of a-z 0-9 _ -, found "{found}"$'):
        token({"X": found}, "X")


def test_an_unknown_log_level_ends_the_process() -> None:
    """Before it connects to anything."""
    code, line = start("fairlead_queue", FAIRLEAD_LOG_LEVEL="loud", FAIRLEAD_NATS="nats://127.0.0.1:1")
    assert code == 1
    assert line["reason"] == 'FAIRLEAD_LOG_LEVEL: expected one of debug, info, warning, error, found "loud"'


@pytest.mark.nats
@pytest.mark.parametrize(
    ("module", "setting", "found"),
    [
        ("fairlead_queue", "FAIRLEAD_LOG_MAX_BYTES", "32GiB"),
        ("fairlead_queue", "FAIRLEAD_NATS_REPLICAS", "0"),
        ("fairlead_telemetry", "FAIRLEAD_SAMPLES_DAYS", "week"),
        ("fairlead_telemetry", "FAIRLEAD_SQL_DEADLINE_S", "-1"),
        ("fairlead_agent", "FAIRLEAD_BEAT_S", "often"),
    ],
)
def test_a_bad_setting_ends_a_service_with_its_name(nats_url: str, module: str, setting: str, found: str) -> None:
    """Exit code 1 and one line, as for everything else that a process cannot work with; no traceback."""
    code, line = start(module, FAIRLEAD_NATS=nats_url, **{setting: found})
    assert code == 1
    assert line["level"] == "critical"
    assert line["reason"].startswith(f"{setting}: expected ")
    assert line["reason"].endswith(f'found "{found}"')
