"""The past from a real stack: every answer on the page equals the output. After an intended change:
`make test ARGS="tests/system/test_past_page.py --update-golden"`, and read the difference."""

from pathlib import Path

import pytest

from tests.cli.api_document import DOCUMENT
from tests.system.pages import answers, play, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "past.md"


def test_the_page_names_every_route_with_a_past() -> None:
    """No more and no less."""
    routes = {
        path
        for path, methods in DOCUMENT["paths"].items()
        if any(each["name"] == "at" for each in methods.get("get", {}).get("parameters", ()))
    }
    sentence = PAGE.read_text().partition("`at` is a parameter of these routes: ")[2].partition(". ")[0]
    named = {word for word in sentence.split("`") if word.startswith("/v1/")}
    assert named == routes


def test_the_page_shows_the_past_and_its_refusals() -> None:
    """Output that was printed again after a change still fits its text."""
    told = dict(answers(PAGE))
    assert "running" in told["fairlead --at 10 jobs"]
    assert "as of sequence 10, " in told["fairlead --at 10 queues"]
    assert "the past cannot be changed" in told["fairlead --at 10 cancel 2"]
    assert "the log is at sequence" in told["fairlead --at 999999 nodes"]


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        terminal.varies = ((r"the log is at sequence \d+", "END"),)
        play(terminal, PAGE)
