"""The walk for a team lead, typed as on its page: every command prints the output on the page. After an intended
change: `make test ARGS="tests/system/test_walk.py --update-golden"`, and read the difference."""

from pathlib import Path

import pytest

from tests.system.pages import play, started

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "team-lead.md"
#: A person types no faster; runs that began in one second would cost the same to stop.
TYPING_S = 1.2


def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        terminal.pause_s = TYPING_S
        play(terminal, PAGE)
