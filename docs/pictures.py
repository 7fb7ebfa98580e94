"""Pictures of the pages, taken by Chromium from a real stack of played nodes: `make pictures` writes docs/pictures/.

The load is the same each time; times and job numbers are those of the moment.
"""

import asyncio
import random
import tempfile
from pathlib import Path

from fairlead.client import Client
from fairlead.stack.local import Stack, StackOptions
from tests.kit.chromium import Chromium
from tests.kit.pages import set_up_modules

FOLDER = Path(__file__).parent / "pictures"
NODES, JOBS = 64, 260
#: How long the load runs before the pictures: runs have ended and others wait.
PLAY_S = 75
SIZE = {"width": 1200, "height": 720}
PAGES = {
    "map": "/map?colour=queue",
    "queues": "/queues",
    "gantt": "/gantt?seconds=90&colour=queue",
}
QUEUES = {
    "queues": {
        "research": {
            "guaranteed": {"nvidia.com/gpu": 256},
            "maximum": {"nvidia.com/gpu": 400},
            "queues": {
                "vision": {"weight": 2, "guaranteed": {"nvidia.com/gpu": 160}},
                "speech": {"guaranteed": {"nvidia.com/gpu": 64}},
            },
        },
        "inference": {"guaranteed": {"nvidia.com/gpu": 128}, "maximum": {"nvidia.com/gpu": 160}},
    }
}


def submit_load(client: Client) -> None:
    """Queues, and jobs of mixed sizes; one node is cordoned."""
    client.apply_queues(QUEUES)
    dice = random.Random(7)  # noqa: S311  # a load that is the same each time
    for number in range(JOBS):
        queue = dice.choice(["research/vision", "research/vision", "research/speech", "inference", "default"])
        gpus = dice.choice([1, 2, 4, 8, 8])
        nodes = dice.choice([1, 1, 1, 2, 4]) if gpus == 8 else 1
        resources = {"nvidia.com/gpu": gpus, "cpu": "4", "memory": "32Gi"}
        name = f"{dice.choice(['train', 'eval', 'tune', 'serve'])}-{number}"
        seconds = dice.choice([20, 40, 60, 900])
        client.submit(
            {"name": name, "queue": queue, "command": ["sleep", str(seconds)], "nodes": nodes, "resources": resources}
        )
    client.cordon("hollow-07", "fan")


async def photograph(origin: str) -> None:
    """Write each page in light and dark."""
    async with Chromium(origin) as browser:
        await browser.page.set_viewport_size(SIZE)
        for scheme in ("light", "dark"):
            await browser.page.emulate_media(color_scheme=scheme)
            for name, path in PAGES.items():
                await browser.open(path)
                await browser.page.wait_for_selector("main h1")
                await browser.page.wait_for_timeout(2500)
                await browser.page.screenshot(path=FOLDER / f"{name}-{scheme}.png")
        if browser.complaints:
            raise SystemExit("\n".join(browser.complaints))


def main() -> None:
    """Start the stack, play the load, take the pictures."""
    set_up_modules()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-pictures-") as data:
        options = StackOptions(Path(data), nodes=NODES, port=0, runtime="hollow", open=True)
        stack = Stack(options, lambda what, text: print(f"{what:<10}{text}"))
        try:
            stack.up()
            with stack.client("pictures") as client:
                submit_load(client)
                asyncio.run(asyncio.sleep(PLAY_S))
                asyncio.run(photograph(client.url))
        finally:
            stack.down()


if __name__ == "__main__":
    main()
