"""Idle jobs, typed into a real stack: every answer on the page equals the output. After an intended change: `make test
ARGS="tests/system/test_idle_page.py --update-golden"`, and read the difference."""

from pathlib import Path

import pytest

from tests.system.pages import answers, play, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "idle.md"
#: What the answers must say, in this order.
SAID = (
    "from now on it is reclaimed once a job waits for what it holds",
    "extended once: no idle policy acts on it before",
    "from now on it is reclaimed once a job waits",
    "; it has what job 2 gave back",
    "reclaimed: ran for longer than",
)


def test_the_page_has_every_turn() -> None:
    """Output that was printed again after a change still fits its text."""
    told = [printed for line, printed in answers(PAGE) if line.startswith("fairlead why")]
    assert [said in printed for said, printed in zip(SAID, told, strict=True)] == [True] * len(SAID)


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        terminal.pause_s = 10 if update else 0
        play(terminal, PAGE)
