"""Pages in real Chromium on a real stack: each works, its numbers are those of the API, and nobody is kept out.

One stack for all tests; each test has a browser of its own.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.kit.chromium import Chromium
from tests.kit.eventually import eventually_async
from tests.kit.pages import axe_source, findings, set_up_modules
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

QUEUES = {
    "queues": {
        "research": {
            "guaranteed": {"nvidia.com/gpu": 8},
            "queues": {"vision": {"maximum": {"nvidia.com/gpu": 8}}, "speech": {}},
        }
    }
}
#: A name that would be markup, or a formula, if anything took it for more than text.
EVIL = '<img src=x onerror="document.title=1">=1+1'
GPU = {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}
PATHS = (
    *(
        "/map",
        "/map?view=table",
        "/queues",
        "/pending",
        "/jobs",
        "/jobs/1",
        "/jobs/1?tab=GPUs",
        "/jobs/1?tab=placement",
    ),
    *(
        "/jobs/1?tab=events",
        "/jobs/1?tab=cost",
        "/jobs/1?tab=file",
        "/gantt",
        "/gantt?view=table",
        "/nodes",
        "/nodes/sim-1",
        "/idle",
    ),
    *("/usage", "/sql", "/access", "/admin", "/submit"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackCluster]:
    """Two nodes with a running job, a full queue, a job with evil words, and one that has ended."""
    set_up_modules()
    cluster = StackCluster(tmp_path_factory.mktemp("pages"), nodes=2)
    cluster.start()
    try:
        client = cluster.client
        client.apply_queues(QUEUES)
        client.submit(
            {
                "name": "first",
                "command": ["sh", "-c", "printf '\\033[31mred\\033[0m line\\n'; sleep 600"],
                "resources": GPU,
            }
        )
        client.submit(
            {
                "name": EVIL,
                "queue": "research/vision",
                "command": ["sleep", "600"],
                "resources": {**GPU, "nvidia.com/gpu": 8},
            }
        )
        for _ in range(3):
            client.submit({"name": "waits", "queue": "research/vision", "command": ["true"], "resources": GPU})
        client.submit({"name": "done", "command": ["true"], "resources": GPU})
        cluster.until(lambda: client.job("6").state == "succeeded", "a job has ended")
        cluster.until(lambda: client.job("2").state == "running", "the queue is full")
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
async def browser(cluster: StackCluster) -> AsyncIterator[Chromium]:
    """A browser with its window open; at the end, no page may have complained."""
    async with Chromium(f"http://127.0.0.1:{cluster.port}") as browser:
        await browser.page.set_viewport_size({"width": 1400, "height": 900})
        yield browser
        assert browser.complaints == [], browser.complaints


async def _show(browser: Chromium, path: str) -> None:
    """Open a page, and wait until its data is there."""
    await browser.open(path)
    await browser.page.wait_for_selector("main h1")
    await browser.page.wait_for_timeout(400)


async def _until(browser: Chromium, condition: str) -> None:
    """Wait until an expression is true in the page. The driver's own wait would evaluate it there, which the page's policy forbids."""

    async def holds() -> bool:
        return bool(await browser.page.evaluate(condition))

    await eventually_async(holds, condition, within_s=30)


async def _api(browser: Chromium, path: str) -> Any:
    return json.loads((await browser.fetch(path))[1])


async def test_every_page_works_in_light_and_dark_at_every_width(browser: Chromium) -> None:
    """No error, no breach of the policy, nothing wider than the window, no serious finding of axe-core, no outside address."""
    axe, asked = axe_source(), []
    browser.page.on("request", lambda request: asked.append(request.url))
    problems: list[str] = []
    for path in PATHS:
        await browser.page.set_viewport_size({"width": 1400, "height": 900})
        await browser.page.emulate_media(color_scheme="light")
        await _show(browser, path)
        problems.extend(f"{path}: {each}" for each in await findings(browser, axe))
        await browser.page.set_viewport_size({"width": 400, "height": 900})
        await browser.page.emulate_media(color_scheme="dark")
        problems.extend(f"{path} in dark: {each}" for each in await findings(browser, axe))
        wide = await browser.page.evaluate("document.documentElement.scrollWidth")
        if wide > 400:
            problems.append(f"{path}: {wide} px wide in a window of 400")
        if await browser.page.locator(".notice.error").count():
            problems.append(f"{path}: {await browser.page.locator('.notice.error').first.inner_text()}")
    assert not problems, "\n".join(problems)
    outside = {url for url in asked if not url.startswith((browser.origin, "blob:", "data:"))}
    assert not outside, outside


async def test_numbers_are_those_of_the_api_at_the_same_sequence(browser: Chromium) -> None:
    """Held GPUs of the map, waiting jobs, nodes, used GPUs of a queue, GPU-hours."""
    await _show(browser, "/map")
    map_ = await _api(browser, "/v1/map")
    held = sum(pool["states"]["held"] for pool in map_["pools"])
    assert await browser.page.inner_text("#gpus-held") == str(held) == "9"
    await _show(browser, "/pending")
    waiting = [await _api(browser, f"/v1/jobs?state={state}") for state in ("queued", "offered", "scheduled", "held")]
    assert await browser.page.inner_text("#pending-total") == str(sum(len(each["items"]) for each in waiting)) == "3"
    await _show(browser, "/nodes")
    assert await browser.page.inner_text("#nodes-total") == "2"
    await _show(browser, "/queues")
    row = browser.page.locator("tr", has_text="research/vision")
    queue = await _api(browser, "/v1/queues/research%2Fvision")
    assert await row.locator("td").nth(2).inner_text() == str(queue["used"]["gpu"] // 1000) == "8"
    told = await browser.page.inner_text("#as-of")
    assert int(re.findall(r"sequence (\d+)", told)[0]) == (await _api(browser, "/healthz"))["sequence"]


async def test_names_and_output_are_shown_as_text(browser: Chromium) -> None:
    """A name of markup is shown as it is, everywhere; an escape sequence colours nothing."""
    for path in ("/jobs", "/jobs/2", "/map?find=2", "/gantt?view=table"):
        await _show(browser, path)
        assert "Fairlead" in await browser.page.title()
        assert await browser.page.locator("main img").count() == 0
    await _show(browser, "/jobs")
    assert await browser.page.get_by_text(EVIL, exact=True).count() == 1
    await _show(browser, "/jobs/1")
    await _until(browser, "document.querySelector('.log').innerText.includes('red line')")


async def test_a_page_goes_back_in_time_and_its_links_carry_the_moment(
    cluster: StackCluster, browser: Chromium
) -> None:
    """As of a sequence before the first job nothing is held, the frame says so, buttons are off; "Live" comes back."""
    first = next(event for event in cluster.client.events() if event.type.startswith("fairlead.job.submitted"))
    before = int(first.id.partition(".")[0]) - 1
    await _show(browser, f"/map?at={before}")
    await _until(browser, "document.querySelector('#gpus-held')?.innerText === '0'")
    assert f"as of sequence {before}" in await browser.page.inner_text("#as-of")
    assert await browser.page.locator("#app.past").count() == 1
    await browser.page.get_by_role("link", name="Queues").click()
    await browser.page.wait_for_url(f"**/queues?at={before}")
    later = (await _api(browser, "/healthz"))["sequence"]
    await _show(browser, f"/jobs/1?at={later}")
    assert await browser.page.get_by_role("button", name="Cancel").is_disabled()
    await browser.page.get_by_role("button", name="Live").click()
    await _until(browser, "!location.search.includes('at=')")
    assert await browser.page.get_by_role("button", name="Cancel").is_enabled()


async def test_the_slider_moves_by_keyboard_to_a_moment(browser: Chromium) -> None:
    await _show(browser, "/map")
    await browser.page.get_by_label("Moment that is shown").focus()
    for _ in range(3):
        await browser.page.keyboard.press("ArrowLeft")
    await _until(browser, "location.search.includes('at=')")
    await _until(browser, "document.querySelector('#as-of').innerText.startsWith('as of sequence')")


async def test_an_action_asks_first_and_shows_the_answer(cluster: StackCluster, browser: Chromium) -> None:
    """By keyboard alone: cancel of a job; then the same button says why it cannot be used."""
    job = cluster.client.submit({"name": "to cancel", "command": ["sleep", "600"], "resources": GPU}).id
    cluster.until(lambda: cluster.client.job(job).state == "running", "it runs")
    await _show(browser, f"/jobs/{job}")
    await browser.page.get_by_role("button", name="Cancel").focus()
    await browser.page.keyboard.press("Enter")
    assert cluster.client.job(job).state == "running"  # asked, not done
    await browser.page.get_by_role("group", name="Cancel").get_by_role("button", name="Cancel").focus()
    await browser.page.keyboard.press("Enter")
    await _until(browser, "document.body.innerText.includes('cancelled')")
    cluster.until(lambda: cluster.client.job(job).state == "cancelled", "it is cancelled")
    button = browser.page.get_by_role("button", name="Cancel")
    await _until(browser, "[...document.querySelectorAll('button')].find((b) => b.innerText === 'Cancel')?.disabled")
    assert await button.get_attribute("title") == "it has ended: cancelled"


def _maximum(cluster: StackCluster) -> dict[str, int]:
    return next(each.maximum for each in cluster.client.queues().items if each.path == "research/vision")


async def test_a_browser_tells_when_a_job_ends_if_it_was_asked_to(cluster: StackCluster, browser: Chromium) -> None:
    """Only after the box was ticked; what it has cost is in its tab."""
    await browser.page.context.grant_permissions(["notifications"], origin=browser.origin)
    await browser.page.add_init_script(
        "window.told = []; class Told { constructor(title) { window.told.push(title); } static requestPermission() { return Promise.resolve('granted'); } }"
        " window.Notification = Told;"
    )
    job = cluster.client.submit({"name": "ends", "command": ["sleep", "600"], "resources": GPU}).id
    cluster.until(lambda: cluster.client.job(job).state == "running", "it runs")
    await _show(browser, f"/jobs/{job}?tab=cost")
    await browser.page.get_by_label("tell me when it ends").click()
    await _until(browser, "[...document.querySelectorAll('label input')].some((each) => each.checked)")
    assert await browser.page.evaluate("window.told") == []
    cluster.client.cancel(job)
    await _until(browser, f"window.told.join() === 'Job {job} has ended: cancelled'")
    await _until(browser, "Number(document.querySelector('#cost-hours')?.innerText) >= 0")


async def test_limits_are_tried_before_they_are_applied(cluster: StackCluster, browser: Chromium) -> None:
    """The dry run names the run that would yield and changes nothing; a refusal is shown in the queue's words; then it is applied."""
    await _show(browser, "/queues")
    await browser.page.locator("tr", has_text="research/vision").get_by_role("button", name="Open").click()
    await browser.page.wait_for_selector(".share-plot")
    most = browser.page.get_by_label("GPUs at most")
    try_it = browser.page.get_by_role("button", name="What would change?")
    await most.fill("-1")
    await try_it.click()
    await _until(browser, "document.querySelector('#limits-said')?.innerText.includes('nvidia.com/gpu')")
    await most.fill("4")
    await browser.page.get_by_label("ask runs beyond the maximum to yield").check()
    await try_it.click()
    await _until(browser, "document.querySelector('#preview')?.innerText.includes('1 job would be asked to yield')")
    assert EVIL in await browser.page.inner_text("#preview")
    assert _maximum(cluster) == {"gpu": 8000}
    await browser.page.get_by_label("ask runs beyond the maximum to yield").uncheck()
    await most.fill("9")
    await try_it.click()
    await _until(browser, "document.querySelector('#preview')?.innerText.includes('would be offered next')")
    await browser.page.get_by_role("button", name="Apply").click()
    await _until(browser, "document.querySelector('#limits-said')?.innerText.startsWith('applied')")
    assert _maximum(cluster) == {"gpu": 9000}
    cluster.client.apply_queues(QUEUES)
    # The refusal was meant.
    browser.complaints[:] = [each for each in browser.complaints if "queues:dryrun" not in each]


async def test_a_link_fills_the_form_and_sends_nothing(cluster: StackCluster, browser: Chromium) -> None:
    """What is typed is sent when the button is pressed, and the dry run stands next to it."""
    before = len(cluster.client.jobs(limit=1000).items)
    await _show(browser, "/submit?command=true&name=linked&gpus=0&cpu=1&memory=16Mi")
    await _until(browser, "document.querySelector('aside').innerText.includes('would')")
    assert "fairlead submit --gpus 0 --cpus 1 --memory 16Mi --name linked -- true" in await browser.page.inner_text(
        "main"
    )
    assert len(cluster.client.jobs(limit=1000).items) == before
    await browser.page.get_by_role("main").get_by_role("button", name="Submit").click()
    await browser.page.wait_for_url("**/jobs/*")
    await _until(browser, "document.querySelector('h1').innerText.includes('linked')")


async def test_sql_and_search_and_keys(browser: Chromium) -> None:
    await _show(browser, "/sql?query=SELECT%20id%2C%20name%20FROM%20jobs%20ORDER%20BY%20id%20LIMIT%201")
    await browser.page.focus("#query")
    await browser.page.keyboard.press("Control+Enter")
    await browser.page.wait_for_selector("td:has-text('first')")
    await browser.page.locator("h1").click()
    await browser.page.keyboard.press("/")
    await browser.page.keyboard.type("n sim-2")
    await browser.page.keyboard.press("Enter")
    await browser.page.wait_for_url("**/nodes/sim-2")
    await browser.page.keyboard.press("g")
    await browser.page.keyboard.press("q")
    await browser.page.wait_for_url("**/queues")
    await browser.page.keyboard.press("?")
    assert await browser.page.get_by_role("dialog").is_visible()


async def test_a_page_that_hears_nothing_says_since_when_and_comes_back(
    cluster: StackCluster, browser: Chromium
) -> None:
    """The gateway is killed: what was there stays on screen. Its successor is found again."""
    await _show(browser, "/queues")
    await _until(browser, "document.querySelector('.live-dot:not(.off)')")
    cluster.kill("gateway")
    await _until(browser, "document.querySelector('.live-dot.off')")
    assert "research/vision" in await browser.page.inner_text("main")
    await asyncio.to_thread(cluster.until, cluster.client.ready, "the gateway is back")
    await _until(browser, "document.querySelector('.live-dot:not(.off)')")
    browser.complaints[:] = [each for each in browser.complaints if "ERR_" not in each]  # the connection that was cut


async def test_the_map_model_equals_the_api_and_is_drawn(browser: Chromium) -> None:
    """The model of the columns is the map of the API at the same sequence, also after changes; each GPU has its colour where it is."""
    await _show(browser, "/map")
    lib = await browser.page.evaluate("document.querySelector('script[type=module]').src.replace('main.js', 'lib/')")
    wrong = await browser.page.evaluate(
        """async (lib) => {
          const { taken } = await import(lib + "map_model.js");
          const { layOut, CELL } = await import(lib + "cluster_layout.js");
          const { paint } = await import(lib + "map_pixels.js");
          const ask = async (path) => (await fetch(path)).json();
          let [columns, map] = [await ask("/v1/map/columns"), await ask("/v1/map")];
          for (; columns.sequence !== map.sequence; [columns, map] = [await ask("/v1/map/columns"), await ask("/v1/map")]);
          const model = taken(null, columns);
          const wrong = [];
          const said = (node) => JSON.stringify([node.id, node.state, node.gpus.map((gpu) => [gpu.index, gpu.state, gpu.holders.map((each) => [each.job, each.milli])])]);
          map.nodes.forEach((node, place) => { if (said(node) !== said(model.nodes[place])) wrong.push([said(node), said(model.nodes[place])]); });
          for (const job of map.jobs) if (model.jobs.get(job.id)?.milli !== job.gpu_milli || model.jobs.get(job.id).name !== job.name) wrong.push(job);
          const after = taken(model, { ...columns, whole: false, cursor: "next" });
          if (after.nodes !== model.nodes || after.changed.size !== model.nodes.length || after.jobs.size !== map.jobs.length) wrong.push("changes in place");
          if (taken(after, { ...columns, nodes: { ...columns.nodes, id: ["other", ...columns.nodes.id.slice(1)] }, whole: false }).shape === after.shape) wrong.push("a node that joins changes the shape");
          const layout = layOut(model.nodes, 1.7);
          const gpus = model.nodes.reduce((sum, node) => sum + node.gpus.length, 0);
          const look = { colour: Uint32Array.from({ length: gpus }, (_, each) => each + 100), marks: new Uint8Array(gpus), parts: new Map([[3, [{ part: 0.5, colour: 7 }]]]) };
          look.marks[1] = 1;
          const [width, height] = [700, 300];
          const pixels = new Uint32Array(width * height);
          for (const view of [{ scale: 1, x: -20, y: -10 }, { scale: 0.2, x: 3, y: 2 }, { scale: 2.5, x: 31, y: 17 }]) {
            paint(pixels, width, height, layout, look, view, { ground: 1, ring: 2 });
            let gpu = 0;
            for (const rack of layout.racks) for (const placed of rack.nodes) for (let number = 0; number < placed.node.gpus.length; number += 1, gpu += 1) {
              const x = Math.floor((placed.x + (number + 0.6) * CELL - view.x) * view.scale);
              const y = Math.floor((placed.y + CELL / 2 - view.y) * view.scale);
              if (x < 0 || y < 0 || x >= width || y >= height) continue;
              const found = pixels[y * width + x];
              if (found !== gpu + 100 && !(view.scale < 1 && gpu === 1)) wrong.push([view.scale, gpu, found]);
            }
          }
          paint(pixels, width, height, layout, look, { scale: 1, x: 0, y: 0 }, { ground: 1, ring: 2 });
          for (const each of [1, 2, 7]) if (!pixels.includes(each)) wrong.push(["not drawn", each]);
          return wrong;
        }""",
        lib,
    )
    assert wrong == []


async def test_a_started_job_appears_on_an_open_map(cluster: StackCluster, browser: Chromium) -> None:
    """By changes alone: the whole map is asked for once."""
    asked: list[str] = []
    browser.page.on("request", lambda request: asked.append(request.url))
    await _show(browser, "/map")
    held = int(await browser.page.inner_text("#gpus-held"))
    job = cluster.client.submit({"name": "seen", "command": ["sleep", "600"], "resources": GPU}).id
    await _until(browser, f"document.querySelector('#gpus-held').innerText === '{held + 1}'")
    cluster.client.cancel(job)
    await _until(browser, f"document.querySelector('#gpus-held').innerText === '{held}'")
    maps = [url.partition("?")[2][:6] for url in asked if "/v1/map/columns" in url]
    assert maps[0] == "" and set(maps[1:]) == {"since="}


async def test_modules_lay_out_as_they_say(browser: Chromium) -> None:
    """Arithmetic of map and Gantt: every GPU is found where it is drawn, bars at one time share no lane."""
    await _show(browser, "/map")
    lib = await browser.page.evaluate("document.querySelector('script[type=module]').src.replace('main.js', 'lib/')")
    wrong = await browser.page.evaluate(
        """async (lib) => {
          const { layOut, at, CELL } = await import(lib + "cluster_layout.js");
          const nodes = Array.from({ length: 1750 }, (_, n) => ({ id: `n${n}`, pool: n % 3 ? "a" : "b", domains: n % 5 ? { rack: `r${n % 70}` } : {},
            gpus: Array.from({ length: n % 11 ? 8 : 4 }, (_, g) => ({ index: g })) }));
          const layout = layOut(nodes, 1.7);
          const wrong = [];
          let found = 0;
          for (const rack of layout.racks) for (const placed of rack.nodes) placed.node.gpus.forEach((_, g) => {
            const hit = at(layout, placed.x + (g + 0.5) * CELL, placed.y + CELL / 2);
            found += 1;
            if (hit?.placed !== placed || hit.gpu !== g) wrong.push([placed.node.id, g]);
          });
          if (found !== nodes.reduce((sum, node) => sum + node.gpus.length, 0)) wrong.push(["lost", found]);
          const { rowsOf } = await import(lib + "gantt_rows.js");
          let seed = 7;
          const random = (below) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % below; };
          const runs = [];
          for (let time = 0; time < 400; time += 20) for (let each = 0; each < 2; each += 1) runs.push([`${runs.length}`, 1, "", "u", "q", "", time, time + 10 + random(10), ["x"], 1 + random(4)]);
          const [row] = rowsOf(runs, [["x", "NodeCordoned", 5], ["x", "NodeUncordoned", 9], ["x", "NodeLost", 50]], ["x"], 100);
          if (JSON.stringify(row.closed.map((each) => [each.begin, each.end, each.what])) !== '[[5,9,"cordoned"],[50,100,"lost"]]') wrong.push(row.closed);
          for (const a of row.bars) for (const b of row.bars) if (a !== b && a.begin < b.end && b.begin < a.end && a.lane < b.lane + b.lanes && b.lane < a.lane + a.lanes) wrong.push([a.job, b.job]);
          const { words, jobFile } = await import(lib.replace("lib/", "pages/submit.js"));
          if (JSON.stringify(words(`python "a b" 'c d' e`)) !== '["python","a b","c d","e"]') wrong.push(words(`python "a b"`));
          return wrong;
        }""",
        lib,
    )
    assert wrong == []
