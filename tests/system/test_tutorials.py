"""Replay of the tutorials on real stacks: every command prints what its page shows.

After a wanted change: `make test ARGS="tests/system/test_tutorials.py --update-golden"`, and read the difference.
"""

import re
from pathlib import Path

import pytest

from tests.system.pages import answers, play, started

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(TUTORIALS.glob("*.md"))
#: A person types no faster; runs that began in one second would cost the same to stop.
TYPING_S = 1.2


def test_every_transcript_is_in_a_block_that_is_replayed() -> None:
    """A command with its output in another kind of block would never be compared with the product."""
    for page in PAGES:
        assert len(answers(page)) == len(re.findall(r"^\s*\$ ", page.read_text(), re.MULTILINE)) > 5


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_says_what_the_commands_print(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(page, tmp_path, monkeypatch, update=update, user="ada") as terminal:
        terminal.pause_s = TYPING_S
        play(terminal, page)
