"""Real JupyterLab (PyPI) in a session, through the app proxy, in a real Chromium: the page loads, and a cell runs."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command_line_stack import CommandLineStack
from tests.kit import parts
from tests.kit.chromium import Chromium

pytestmark = [pytest.mark.nats, pytest.mark.slow]

LOCK = parts.ROOT / "tests/data/jupyterlab/jupyterlab.lock"


async def test_a_cell_runs_in_jupyterlab(tmp_path: Path) -> None:
    """With the GPU that the session holds; the page is under a host name of its own, and its sockets pass."""
    venv = parts.packages("jupyterlab", LOCK)
    stack = CommandLineStack(tmp_path)
    stack.env["PATH"] = f"{os.environ['PATH']}:{venv / 'bin'}"
    (work := tmp_path / "work").mkdir()
    try:
        stack.up("--nodes", "1")
        job = stack.ok("session", "jupyter", "--gpus", "1", "--workdir", str(work), "--detach").strip()
        url = stack.ok("open", job, "--no-browser").strip()
        parts_of_url = urlsplit(url)
        origin = f"{parts_of_url.scheme}://{parts_of_url.netloc}"
        async with Chromium(origin) as browser:
            page = browser.page
            await page.goto(url)
            await page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
            cell = page.locator(".jp-Notebook .jp-CodeCell .cm-content").first
            await cell.click()
            await page.keyboard.type("import os; print('gpus', os.environ['FAIRLEAD_GPUS'].count('GPU'))")
            await page.keyboard.press("Shift+Enter")
            await page.locator(".jp-OutputArea-output", has_text="gpus 1").wait_for(timeout=150_000)
            assert await page.evaluate("document.cookie.includes('fairlead')") is False
        assert (work / "Untitled.ipynb").exists()
    finally:
        stack.run("down", "--jobs")
