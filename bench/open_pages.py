"""Pages that are open, without a browser: each follows the ticks, and asks for the changes of the map at the pace that it is told.

`python -m bench.open_pages PORT PAGES` prints a line when all are open and have the map, ends with its input, and prints how often they have asked.
"""

import asyncio
import gzip
import json
import random
import re
import sys

_SPREAD_S = 3.0
#: Found without decoding the document: 500 browsers would not share this process.
_CURSOR = re.compile(rb'"cursor":"([^"]*)"')


class OpenPage:
    """One page: a stream, and a connection for its requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked = 0
        self._newest = self._have = 0
        self._pause_s = 1.0
        self._cursor = ""
        self._news = asyncio.Event()
        self.has_map = asyncio.Event()

    async def follow(self, opened: asyncio.Semaphore) -> None:
        """Read ticks."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /v1/ticks?follow=1 HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n")
        while line := await reader.readline():
            if line.startswith(b"data: "):
                told = json.loads(line[6:])
                self._newest, self._pause_s = told["sequence"], told["pause_ms"] / 1000
                self._news.set()
                opened.release()

    async def ask(self) -> None:
        """Ask for what has changed, whenever there is something newer than what is known."""
        await asyncio.sleep(random.random() * _SPREAD_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while True:
            await self._news.wait()
            self._news.clear()
            if self._newest <= self._have:
                continue
            await asyncio.sleep(random.random() * (self._pause_s - 1))  # as `web/lib/live.js` does
            path = f"/v1/map/columns?since={self._cursor}" if self._cursor else "/v1/map/columns"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(int(each[15:]) for each in head.lower().split(b"\r\n") if each.startswith(b"content-length:"))
            body = await reader.readexactly(size)
            self.asked += 1
            self._cursor = _cursor_of(body)
            self._have = self._newest
            self.has_map.set()
            await asyncio.sleep(self._pause_s)


def _cursor_of(body: bytes) -> str:
    found = _CURSOR.search(gzip.decompress(body))
    assert found is not None
    return found[1].decode()


async def main(port: int, count: int) -> None:
    """Open so many pages, until the input ends."""
    opened = asyncio.Semaphore(0)
    pages = [OpenPage(port) for _ in range(count)]
    tasks = [asyncio.create_task(page.follow(opened)) for page in pages]
    for _ in pages:
        await opened.acquire()
    tasks += [asyncio.create_task(page.ask()) for page in pages]
    for page in pages:
        await page.has_map.wait()
    before = sum(page.asked for page in pages)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    print(sum(page.asked for page in pages) - before, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
