"""Estimates from a real stack: every answer on the page equals the output. After an intended change:
`make test ARGS="tests/system/test_estimates_page.py --update-golden"`, and read the difference."""

import time
from pathlib import Path

import pytest

from tests.system.pages import SETTLE_S, answers, play, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "estimates.md"


def test_the_page_shows_starts_and_why_there_is_none() -> None:
    """Output that was printed again after a change still fits its text."""
    told = dict(answers(PAGE))
    assert "at once, on hollow-1" in told["fairlead submit --dry-run --name first --gpus 8 -- sleep 3000"]
    assert "(80 % interval)" in told["fairlead why 2 --estimate"]
    assert "it waits until a person releases it" in told["fairlead why 3 --estimate"]
    assert "default" in told["fairlead estimates"]


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print_and_nodes_named_are_nodes_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster; then jobs on the idle cluster get the nodes that were named."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        terminal.varies = ((r"\bp[a-z0-9]{12}\b", "ME"),)
        play(terminal, PAGE)
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
