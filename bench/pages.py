"""Pages in headless Chromium in front of 14,000 played GPUs and 10,000 jobs, beside a static page of the same browser.

Each figure is the median of cold loads: a fresh browser context has no cache. "Usable" is when the page's data is on screen.
"""

import asyncio
import gzip
import json
import random
import statistics
import sys
import time
from itertools import repeat
from typing import Any

import httpx

from bench import http, jobs
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_gateway.pages.web_files import WebFiles, folder
from tests.kit.chromium import Chromium
from tests.kit.pages import set_up_modules

NODES, NODES_PER_RACK, JOBS = 1750, 25, 10_000
LOADS = 5
PAINT_MS, USABLE_MS = 300, 700
CODE_KB, MAP_KB = 150, 150
#: While the map is panned: jobs that are cancelled a second, each of which changes a node twice, and how long.
CANCELS_PER_S, PAN_S = 100, 8.0
TASK_P95_MS, TASK_MOST_MS = 8, 50
#: Pages that are open beside submits; with and without them in turn, submits of a round, and those before it, so that the pages are under way.
OPEN_PAGES, WITH_PAGES, SUBMITS, BEFORE = 500, (False, True, True, False), 20_000, 10_000
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
        map_bytes = await _map_bytes(origin)
        panned = await _panned(stack, origin)
        open_pages = await _open_pages(stack)
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
            f"pages: the map's data of {NODES * 8:,} GPUs, compressed, once",
            f"{map_bytes[0] / 1000:.0f} KB",
            f"≤ {MAP_KB} KB",
            map_bytes[0] <= MAP_KB * 1000,
            f"then changes: {map_bytes[1] / 1000:.1f} KB after one job; GET /v1/map: {map_bytes[2] / 1000:.0f} KB",
        ),
        panned,
        open_pages,
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


async def _map_bytes(origin: str) -> tuple[int, int, int]:
    """Return the bytes on the wire: of the whole map, of what one job has changed, and of the map as objects, compressed alike."""
    async with httpx.AsyncClient(base_url=origin, timeout=30) as client:
        whole = await client.get("/v1/map/columns")
        running = (await client.get("/v1/jobs?state=running&limit=1")).json()["items"][0]["id"]
        await client.post(f"/v1/jobs/{running}:cancel")
        cursor, changed = whole.json()["cursor"], whole
        while len(changed.json()["nodes"]["id"]) in (0, NODES):
            changed = await client.get(f"/v1/map/columns?since={cursor}")
        objects = await client.get("/v1/map")
        return whole.num_bytes_downloaded, changed.num_bytes_downloaded, len(gzip.compress(objects.content))


# ------------------------------------------------------------------------------- the main thread


async def _panned(stack: Stack, origin: str) -> Row:
    """Pan the map for some seconds while jobs end and start, and read the main thread's tasks from a trace."""
    async with Chromium(origin) as browser, asyncio.TaskGroup() as group:
        page = browser.page
        await page.set_viewport_size({"width": 1400, "height": 900})
        await page.goto(f"{origin}/map")
        await page.wait_for_selector("#gpus-held")
        changes = group.create_task(_cancel(stack))
        await asyncio.sleep(2)
        traced = page.context.browser
        await traced.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
        box = await page.locator("canvas").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        await page.mouse.move(x, y)
        await page.mouse.down()
        ends, moves = time.monotonic() + PAN_S, 0
        while time.monotonic() < ends:
            moves += 1
            await page.mouse.move(x + 60 * (moves % 9 - 4), y + 30 * (moves % 5 - 2))
            await asyncio.sleep(0.016)
        await page.mouse.up()
        told = json.loads(await traced.stop_tracing())
        per_s = await changes / PAN_S
    used, walls = _tasks(told["traceEvents"])
    p95, most = percentile(used, 0.95), max(used)
    return Row(
        f"pages: the main thread while the map of {NODES * 8:,} GPUs is panned at {per_s:.0f} changes a second: CPU of a task",
        f"p95 {p95:.1f} ms, longest {most:.0f} ms",
        f"p95 ≤ {TASK_P95_MS} ms, none over {TASK_MOST_MS} ms",
        p95 <= TASK_P95_MS and most <= TASK_MOST_MS,
        f"{len(used):,} tasks of at least 0.5 ms in {PAN_S:.0f} s, {moves} moves; by the clock, beside the whole stack: p95 {percentile(walls, 0.95):.1f} ms, "
        f"longest {max(walls):.0f} ms",
    )


def _tasks(events: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return ms of CPU and of the clock of the renderer's tasks of at least half a ms."""
    main = {
        (each["pid"], each["tid"])
        for each in events
        if each.get("name") == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        each
        for each in events
        if each.get("ph") == "X" and each["name"] == "RunTask" and (each["pid"], each["tid"]) in main
    ]
    found = [(each.get("tdur", each["dur"]) / 1000, each["dur"] / 1000) for each in tasks if each["dur"] >= 500]
    return [used for used, _ in found], [wall for _, wall in found]


async def _cancel(stack: Stack) -> int:
    """Cancel running jobs, so that others start; return twice the number of those that were cancelled while the map was panned."""
    connection, began, done = await http.connect(stack.port), time.monotonic(), 0
    _, found = await connection.send(http.request("GET", "/v1/jobs?state=running&limit=1000", None, {}))
    listed = json.loads(found)["items"]
    for job in listed:
        await asyncio.sleep(max(0.0, began + done / CANCELS_PER_S - time.monotonic()))
        await connection.send(http.post(f"/v1/jobs/{job['id']}:cancel", {}))
        done += 1
        if time.monotonic() - began > PAN_S + 2:
            break
    assert connection.transport is not None
    connection.transport.close()
    return round(2 * done * PAN_S / (time.monotonic() - began))


# ------------------------------------------------------------------------------- many pages


async def _open_pages(stack: Stack) -> Row:
    """Submit with and without pages that are open, in turn. The pages are in a process of their own, and keep to the pause that they are
    told. The figure: CPU of the gateway, the queue and the bus without them, divided by that with them; rates are of other loads, too.
    """
    connections = [await http.connect(stack.port) for _ in range(64)]
    used: dict[bool, list[float]] = {False: [], True: []}
    rates: dict[bool, list[float]] = {False: [], True: []}
    asked = 0
    for with_pages in WITH_PAGES:
        pages = await _opened(stack.port) if with_pages else None
        await _submit(connections, BEFORE)
        before, began = _cpu_s(stack), time.perf_counter()
        await _submit(connections, SUBMITS)
        rates[with_pages].append(SUBMITS / (time.perf_counter() - began))
        used[with_pages].append((_cpu_s(stack) - before) / SUBMITS * 1e6)
        if pages is not None:
            out, _ = await pages.communicate(b"end\n")
            asked += int(out)
    without, beside = (statistics.mean(used[kind]) for kind in (False, True))
    share = 100 * without / beside
    return Row(
        f"pages: submits one by one beside {OPEN_PAGES} open maps, per CPU of gateway, queue and bus, against none open",
        f"{share:.0f} % ({beside:.0f} µs each)",
        "≥ 95 %",
        share >= 95,
        f"in turn, {SUBMITS:,} submits each; none open: {without:.0f} µs; {statistics.mean(rates[True]):,.0f}/s and {statistics.mean(rates[False]):,.0f}/s; "
        f"the pages asked for changes {asked:,} times",
    )


async def _opened(port: int) -> asyncio.subprocess.Process:
    """Return the process of the pages, once all have the map."""
    pipe = asyncio.subprocess.PIPE
    argv = [sys.executable, "-m", "bench.open_pages", str(port), str(OPEN_PAGES)]
    pages = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert pages.stdout is not None
    await pages.stdout.readline()
    return pages


async def _submit(connections: list[http.Connection], count: int) -> None:
    statuses = await http.storm_over(connections, repeat(http.post("/v1/jobs", jobs.TRUE), count))
    if set(statuses) != {201}:
        raise RuntimeError(f"submits answered {set(statuses)}")


def _cpu_s(stack: Stack) -> float:
    return sum(stack.cpu_s(name) for name in ("gateway", "queue", "nats"))
