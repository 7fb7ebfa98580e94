"""Replay of the tasks of users of Slurm, Kubernetes, dstack and SkyPilot, and of team leads on real stacks, each typed as its page has it.

After a wanted change: `make test ARGS="tests/system/test_foreign_pages.py --update-golden"`, and read the difference.
"""

import re
from pathlib import Path

import pytest

from tests.system.pages import TASKS, Varies, play, started

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
#: {page: how many tasks it has}
PAGES = {"from-slurm": 15, "from-kubernetes": 12, "from-dstack": 16, "for-team-leads": 16}
#: Beyond what varies on every page: {page: patterns}.
VARIES: dict[str, Varies] = {
    "from-slurm": (
        (r"step=\d+", "step=N"),
        (r"\bsim-[12]\b", "NODE"),
        (r"RUNNING \d\d:\d\d:\d\d", "RUNNING CLOCK"),
        # Put back and cancelled at once: it may not have begun again, and then has no time.
        (r"(cancelled +0 +NODE +)(-|\S*\d[hms]+)(?= )", r"\1LONG"),
    ),
    "for-team-leads": (
        (r"\d+\.\d+\b", "N.N"),
        (r"\b(as of|up to|from|to) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"\1 TIME"),
        (r"\b(of|from) \d{4}-\d\d(-\d\d 00:00:00)?\b", r"\1 MONTH"),
        (r"(sequence) \d+", r"\1 N"),
        (r"\bn[0-9a-z]{12}\b", "RULE"),
        (r"whsec_\S+", "KEY"),
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_the_tasks(page: str) -> None:
    """Each is a numbered heading with a command below it."""
    tasks = re.split(r"^##+ \d+\. ", (HOW_TO / f"{page}.md").read_text(), flags=re.MULTILINE)[1:]
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
        terminal.varies = VARIES.get(page, ())
        play(terminal, HOW_TO / f"{page}.md", TASKS if page == "from-slurm" else "")
