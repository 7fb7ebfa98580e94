"""The report of a what-if in Debian's Chromium: one file that sends no request, at any width, by keyboard, and in the dark."""

from pathlib import Path
from typing import Any

import pytest

from fairlead_replay.whatif.documents import document
from fairlead_replay.whatif.overlay import read_overlay
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.report_page import page
from fairlead_replay.whatif.study import run_study
from tests.kit.chromium import Chromium
from tests.kit.pages import axe_source, findings
from tests.replay.whatif.scenes import Scene, queues, shared_hour

pytestmark = [pytest.mark.connected, pytest.mark.slow]
ATTACK = "<img src=http://evil.test/x onerror=document.title='owned'>"
#: Of the pictures in the page: `--update-golden` takes them anew.
LOWER = {"queues": {"research": {"guaranteed": {"nvidia.com/gpu": 4}, "maximum": {"nvidia.com/gpu": 6}}}}
IMAGES = Path(__file__).parents[3] / "docs" / "how-to"


def report() -> str:
    """Return the report of a change that hurts one queue, with hostile and with very long names."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(40):
        name = (ATTACK, "w" * 200, "train", "eval")[n % 4]
        user = (f"{ATTACK}2", "ann")[n % 2]
        scene.submit(n * 7, 2, 30 + n * 11 % 50, queue="ab"[n % 2], name=name, user=user)
    change = read_overlay({"queues": {"a": {"maximum": {"nvidia.com/gpu": 2}}}})
    return page(document(run_study(record_of(scene.play(900)[0]), change, seeds=3)))


async def _see(browser: Chromium, width: int, scheme: str) -> None:
    await browser.page.set_viewport_size({"width": width, "height": 900})
    await browser.page.emulate_media(color_scheme=scheme)


async def _width(browser: Chromium) -> tuple[int, int]:
    widths: Any = await browser.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return widths[0], widths[1]


async def _focused(browser: Chromium) -> str:
    return await browser.page.evaluate(
        "(e => e.tagName + ' ' + (e.getAttribute('href') || e.getAttribute('aria-label') || ''))(document.activeElement)"
    )


async def test_the_report_is_one_page_for_everybody(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No request leaves, names are text, nothing scrolls sideways but tables, each thing has the focus in the order of the page."""
    file = tmp_path / "report.html"
    file.write_text(report())
    asked: list[str] = []
    async with Chromium("file://") as browser:
        browser.page.on("request", lambda each: asked.append(each.url))
        await browser.open(file.as_uri())
        assert asked == [file.as_uri()]
        assert (await browser.page.title()).startswith("What if: grade ")
        assert await browser.page.locator("img").count() == 0
        assert ATTACK in await browser.text()
        assert browser.complaints == []
        axe = axe_source()
        for width, scheme in ((1000, "light"), (1000, "dark"), (400, "light"), (400, "dark")):
            await _see(browser, width, scheme)
            scrolled, seen = await _width(browser)
            assert scrolled <= seen, (width, scheme)
            paper = await browser.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert await browser.page.locator("svg[role=img]").count() == 2
        order: list[str] = []
        for _ in range(40):
            await browser.page.keyboard.press("Tab")
            if (found := await _focused(browser)).startswith("BODY"):
                break
            order.append(found)
        regions = await browser.page.eval_on_selector_all(".wide", "all => all.map(e => 'DIV ' + e.ariaLabel)")
        assert order[0] == "A #main"
        assert order[1:5] == ["A #trust", "A #effects", "A #waits", "A #jobs"]
        assert [each for each in order if each.startswith("DIV ")] == regions
        # The page's own policy forbids scripts, the test's included: axe is let in by a copy without it.
        file.write_text(file.read_text().replace("default-src 'none'; ", ""))
        await browser.open(file.as_uri())
        for scheme in ("light", "dark"):
            await _see(browser, 400, scheme)
            assert await findings(browser, axe) == []
        if request.config.getoption("--update-golden"):
            file.write_text(page(document(run_study(record_of(shared_hour()), read_overlay(LOWER), seeds=3))))
            await browser.open(file.as_uri())
            for width, scheme in ((1000, "light"), (400, "dark")):
                await _see(browser, width, scheme)
                await browser.page.screenshot(path=IMAGES / f"what-if-{width}-{scheme}.png")
