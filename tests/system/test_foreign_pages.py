"""Replay of the tasks of users of Kubernetes, dstack and SkyPilot on real stacks, each typed as its page has it.

After a wanted change: `make test ARGS="tests/system/test_foreign_pages.py --update-golden"`, and read the difference.
"""

import re
from pathlib import Path

import pytest

from tests.system.pages import play, started

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
#: {page: how many tasks it has}
PAGES = {"from-kubernetes": 12, "from-dstack": 16}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_the_tasks(page: str) -> None:
    """Each is a numbered heading with a command below it."""
    tasks = re.split(r"^### \d+\. ", (HOW_TO / f"{page}.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(tasks) == PAGES[page]
    assert all("$ fairlead " in task for task in tasks)


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_says_what_the_commands_print(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first task to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(HOW_TO / f"{page}.md", tmp_path, monkeypatch, update=update, user="ada") as terminal:
        terminal.pause_s = 0.5
        play(terminal, HOW_TO / f"{page}.md")
