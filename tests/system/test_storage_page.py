"""Volumes and datasets, typed into a real stack: every answer on the page equals the output. After an intended change: `make test
ARGS="tests/system/test_storage_page.py --update-golden"`, and read the difference."""

from pathlib import Path

import pytest

from tests.system.pages import Varies, play, started

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "storage.md"
VARIES: Varies = ((r"(?m)^as of .*\n", ""),)


def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first class to the last dataset, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with started(PAGE, tmp_path, monkeypatch, update=update, user="ann") as terminal:
        terminal.varies = VARIES
        play(terminal, PAGE)
