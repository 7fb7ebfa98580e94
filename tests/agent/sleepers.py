"""Programs that sleep, and are found again among all processes of the machine, whoever else runs tests there."""

import contextlib
import os
from pathlib import Path

from tests.kit.eventually import eventually_async

SLEEP_S = 3600


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
    return await eventually_async(lambda: asleep(mark), f"a process sleeps for {own(mark)}", look_s=0.02)


async def until_gone(mark: str) -> None:
    """Wait until none of them is left."""
    await eventually_async(lambda: not asleep(mark), f"no process sleeps for {own(mark)}", look_s=0.02)
