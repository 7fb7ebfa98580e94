"""Directories with a process runtime, and their spawners as the machine knows them."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.runtimes.process.spawner_client import PROGRAM
from tests.agent.runtime_watch import Watch, incarnation
from tests.kit.eventually import eventually_async

KEY = RunKey("801", 1, 0)


def spawners(base: Path) -> list[int]:
    """Process ids of the living spawners of a directory."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if PROGRAM in words and str(base) in words:
            found.append(int(name))
    return found


class SpawnerNode:
    """One base directory, and the runtimes that work on it one after the other."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.incarnation = incarnation()
        self.open: list[ProcessRuntime] = []

    async def runtime(self) -> tuple[ProcessRuntime, Watch]:
        runtime, watch = ProcessRuntime(self.base, "n1", self.incarnation), Watch()
        await runtime.open(watch.handle)
        self.open.append(runtime)
        return runtime, watch

    def spawners(self) -> list[int]:
        """Process ids of the living spawners of this directory."""
        return spawners(self.base)

    async def spawner(self) -> int:
        """The one spawner, once it has opened its file (agents connect before that)."""
        await eventually_async(lambda: self.spawners() and (self.base / "spawned").exists())
        (pid,) = self.spawners()
        return pid

    async def kill_spawner(self) -> int:
        """kill -9, and wait until it is gone; its process id."""
        pid = await self.spawner()
        os.kill(pid, signal.SIGKILL)
        await eventually_async(lambda: pid not in self.spawners())
        return pid

    def processes(self, key: RunKey = KEY) -> list[int]:
        return [p.pid for p in tagged(tag_prefix("n1", self.incarnation) + key.name) if p.run == ""]


@asynccontextmanager
async def spawner_node(base: Path) -> AsyncIterator[SpawnerNode]:
    """A node on a directory; at the end nothing that its runtimes have started runs on."""
    node = SpawnerNode(base)
    yield node
    last, _ = await node.runtime()
    await last.adopt([])
    for runtime in node.open:
        await runtime.close()
