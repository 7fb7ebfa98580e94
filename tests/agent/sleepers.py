"""Programs that sleep, and are found again among all processes of the machine, whoever else runs tests there."""

import asyncio
import contextlib
import os
from pathlib import Path

SLEEP_S = 3600
FOUND_S = 60.0


def own(mark: str) -> str:
    """Seconds to sleep that no other process of the machine names. `mark`: digits."""
    return f"{SLEEP_S}.{os.getpid()}{mark}"


def asleep(mark: str) -> list[int]:
    """Processes that `sleep` for these seconds. Who was killed and is not gone yet has no words any more."""
    words = b"sleep\0" + own(mark).encode() + b"\0"
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == words:
                found.append(int(path.parent.name))
    return found


async def until_asleep(mark: str) -> list[int]:
    """Wait for them: a shell's child is not at once what it is about to be."""
    async with asyncio.timeout(FOUND_S):
        while not (found := asleep(mark)):  # noqa: ASYNC110 -- of processes nobody tells
            await asyncio.sleep(0.02)
    return found


async def until_gone(mark: str) -> None:
    """Wait until none of them is left."""
    async with asyncio.timeout(FOUND_S):
        while asleep(mark):  # noqa: ASYNC110 -- of processes nobody tells
            await asyncio.sleep(0.02)
