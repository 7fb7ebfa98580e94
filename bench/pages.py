"""Pages in headless Chromium in front of 14,000 played GPUs and 10,000 jobs, beside a static page of the same browser.

Each figure is the median of cold loads: a fresh browser context has no cache. "Usable" is when the page's data is on screen.
"""

import gzip
import random
import statistics
from typing import Any

import httpx

from bench.stack import Stack
from bench.table import Row
from fairlead_gateway.pages.web_files import WebFiles, folder
from tests.kit.chromium import Chromium
from tests.kit.pages import set_up_modules

NODES, NODES_PER_RACK, JOBS = 1750, 25, 10_000
LOADS = 5
PAINT_MS, USABLE_MS = 300, 700
CODE_KB, MAP_KB = 150, 150
#: What shows that a page's data has come.
PAGES = {"/map": "#gpus-held", "/nodes": "main td", "/jobs": "main td", "/pending": "#pending-total"}
_TIMES = """() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
  code: performance.getEntriesByType("resource").filter((each) => each.name.includes("/web/")).reduce((sum, each) => sum + each.encodedBodySize, 0),
})"""


async def rows() -> list[Row]:
    """Start the stack, fill it, and load each page in a fresh context."""
    set_up_modules()
    with Stack() as stack:
        stack.control_plane()
        stack.hollow(NODES)
        stack.wait_nodes(NODES)
        _fill(stack)
        origin = f"http://127.0.0.1:{stack.port}"
        found: dict[str, list[dict[str, float]]] = {path: [] for path in ("/healthz", *PAGES)}
        async with Chromium(origin) as browser:
            for _ in range(LOADS):
                for path, times in found.items():
                    times.append(await _cold(browser, origin + path, PAGES.get(path, "")))
        async with httpx.AsyncClient(timeout=30) as client:
            map_bytes = len(gzip.compress((await client.get(f"{origin}/v1/map")).content))
    paint, usable = _worst(found, "paint"), _worst(found, "usable")
    floor = statistics.median(each["paint"] for each in found["/healthz"])
    files = WebFiles(folder())
    code = max(statistics.median(each["code"] for each in found[path]) for path in PAGES) / 1000
    what = f"pages, {NODES * 8:,} GPUs and {JOBS:,} jobs, cold"
    return [
        Row(
            f"{what}: first paint of the slowest of {len(PAGES)} pages",
            f"{paint:.0f} ms",
            f"≤ {PAINT_MS} ms",
            paint <= PAINT_MS,
            f"a page without anything: {floor:.0f} ms",
        ),
        Row(
            f"{what}: the slowest page's data on screen",
            f"{usable:.0f} ms",
            f"≤ {USABLE_MS} ms",
            usable <= USABLE_MS,
            "; ".join(f"{path} {statistics.median(each['usable'] for each in found[path]):.0f} ms" for path in PAGES),
        ),
        Row(
            "pages: script and style of the largest page, compressed",
            f"{code:.0f} KB",
            f"≤ {CODE_KB} KB",
            code <= CODE_KB,
            f"all files of all pages: {sum(len(each.body) for each in files.files.values()) / 1000:.0f} KB",
        ),
        Row(
            f"pages: the map's data of {NODES * 8:,} GPUs, compressed",
            f"{map_bytes / 1000:.0f} KB",
            f"≤ {MAP_KB} KB",
            map_bytes <= MAP_KB * 1000,
            "the whole document each time; the gateway itself does not compress it",
        ),
    ]


def _fill(stack: Stack) -> None:
    dice = random.Random(5)
    jobs = [
        {
            "name": f"train-{number}",
            "command": ["sleep", "3600"],
            "resources": {"nvidia.com/gpu": dice.choice([1, 1, 2, 4, 8]), "cpu": "1", "memory": "1Gi"},
        }
        for number in range(JOBS)
    ]
    for first in range(0, JOBS, 1000):
        answer = httpx.post(f"http://127.0.0.1:{stack.port}/v1/jobs", json=jobs[first : first + 1000], timeout=60)
        answer.raise_for_status()


async def _cold(browser: Chromium, address: str, shows: str) -> dict[str, float]:
    """Return the ms of one load in a context of its own, and the bytes of code."""
    context = await browser.page.context.browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        page = await context.new_page()
        await page.goto(address)
        usable = 0.0
        if shows:
            await page.wait_for_selector(shows)
            usable = await page.evaluate("performance.now()")
        times: dict[str, Any] = await page.evaluate(_TIMES)
        return {**times, "usable": usable}
    finally:
        await context.close()


def _worst(found: dict[str, list[dict[str, float]]], name: str) -> float:
    return max(statistics.median(each[name] for each in found[path]) for path in PAGES)
