"""Estimates from a real stack: every answer on the page equals the output. After an intended change:
`make test ARGS="tests/system/test_estimates_page.py --update-golden"`, and read the difference."""

import re
import time
from pathlib import Path

import pytest

from fairlead_schemas.units.timestamps import parse_rfc3339
from tests.system.pages import SETTLE_S, Terminal, Varies, answers, plain, play, started

#: A person's id here, and how many futures were played within the time that an answer may take.
VARIES: Varies = ((r"\bp[a-z0-9]{12}\b", "ME"), (r"\b\d+ futures", "N futures"))
INTERVAL = re.compile(r"(?m)^starts +(\S+) to (\S+) \(80 % interval\), most likely about (\S+)$")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "estimates.md"


def test_the_page_shows_starts_and_why_there_is_none() -> None:
    """Output that was printed again after a change still fits its text."""
    told = dict(answers(PAGE))
    assert "at once, on hollow-1" in told["fairlead submit --dry-run --name first --gpus 8 -- sleep 3000"]
    assert "(80 % interval)" in told["fairlead why 2 --estimate"]
    assert "it waits until a person releases it" in told["fairlead why 3 --estimate"]
    assert "default" in told["fairlead estimates"]


def interval(text: str) -> tuple[int, int, int]:
    """Bounds and middle of an estimate (Unix ns)."""
    found = INTERVAL.search(text)
    assert found is not None, text
    low, high, middle = map(parse_rfc3339, found.groups())
    return low, middle, high


@pytest.mark.parametrize(
    ("command", "right", "wrong"),
    [
        ("fairlead submit --dry-run --name first --gpus 8 -- sleep 3000", "hollow-1", "hollow-2"),
        ("fairlead submit --dry-run --name first --gpus 8 -- sleep 3000", "starts    at once, on hollow-1\n", ""),
        ("fairlead why 2 --estimate", "(80 % interval)", "(50 % interval)"),
        ("fairlead why 2 --estimate", ", most likely about ", " or "),
        ("fairlead why 2 --estimate", "played on by the scheduler itself", "laid out in time"),
        ("fairlead why 2 --estimate", "starts    20", "starts    at once, on hollow-1 20"),
        ("fairlead why 3 --estimate", "a person releases it", "other jobs end"),
    ],
)
def test_a_wrong_estimate_is_not_what_the_page_shows(command: str, right: str, wrong: str) -> None:
    """The lines of estimates are compared, except times and the number of futures."""
    told = dict(answers(PAGE))[command]
    assert right in told
    assert plain(told, VARIES, estimates=True) != plain(told.replace(right, wrong, 1), VARIES, estimates=True)
    later = re.sub("32 futures", "31 futures", told.replace("2026-11-28T12", "2026-11-28T13"))
    assert plain(told, VARIES, estimates=True) == plain(later, VARIES, estimates=True)


def test_the_interval_on_the_page_holds_its_middle() -> None:
    """In order, and after the moment at which it was asked."""
    low, middle, high = interval(dict(answers(PAGE))["fairlead why 2 --estimate"])
    assert low <= middle <= high


def check_interval(terminal: Terminal) -> None:
    """A waiting job is estimated to start from now on, with the middle between the bounds."""
    asked_ns = time.time_ns()
    low, middle, high = interval(terminal.run("fairlead why 2 --estimate"))
    assert asked_ns - 10**9 <= low <= middle <= high


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print_and_nodes_named_are_nodes_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster; then jobs on the idle cluster get the nodes that were named."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        terminal.varies, terminal.estimates = VARIES, True
        play(terminal, PAGE)
        check_interval(terminal)
        for job in ("1", "2", "3"):
            terminal.run(f"fairlead cancel {job}")
        for _ in range(3):
            terminal.typed("fairlead jobs --state running", "")
            told = terminal.run("fairlead submit --dry-run --gpus 8 -- true")
            assert "at once, on hollow-1" in told, told
            job = terminal.run("fairlead submit --gpus 8 -- true").strip().removeprefix("job/")
            deadline = time.monotonic() + SETTLE_S
            while "hollow-1" not in (shown := terminal.run(f"fairlead show {job}")) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert "hollow-1" in shown, shown
