"""One adapter of the runtime, as the contract suites use it."""

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairlead_agent.launch.plan import Launch
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from tests.agent.runtime_watch import Watch, incarnation, launch
from tests.kit.eventually import eventually_async


class RuntimeWorld:
    """One adapter: makes runtimes on the same base, as agent processes after each other would."""

    def __init__(self, base: Path, kind: str) -> None:
        self.base = base
        self.kind = kind
        self.incarnation = incarnation()
        self._open: list[Runtime] = []

    async def runtime(self) -> tuple[Runtime, Watch]:
        watch = Watch()
        runtime: Runtime
        if self.kind == "docker":
            from fairlead_agent.runtimes.docker.engine import Patience
            from fairlead_agent.runtimes.docker.runtime import DockerRuntime
            from tests.agent.runtimes.docker.image import SOCKET

            soon = Patience(orphan_grace_s=0.5)
            runtime = DockerRuntime(self.base, "n1", self.incarnation, simulated=True, socket=SOCKET, patience=soon)
        else:
            runtime = ProcessRuntime(self.base, "n1", self.incarnation)
        await runtime.open(watch.handle)
        self._open.append(runtime)
        return runtime, watch

    def sh(self, job: str, script: str, **order: Any) -> Launch:
        return self.run(job, "sh", "-c", script, **order)

    def run(self, job: str, *words: str, **order: Any) -> Launch:
        image = ""
        if self.kind == "docker":
            from tests.agent.runtimes.docker.image import ensure_image

            image = ensure_image()
        return launch(job, *words, image=image, **order)

    async def lets_go_on(self, program: int) -> None:
        """Send USR1 to the only running program, from outside of the runtime."""
        if self.kind == "docker":
            import docker

            from tests.agent.runtimes.docker import of_journal

            (there,) = await asyncio.to_thread(of_journal.containers, self.incarnation)
            await asyncio.to_thread(docker.APIClient(version="auto").kill, there["Id"], "SIGUSR1")
        else:
            os.kill(program, signal.SIGUSR1)

    async def empty(self, programs: Iterable[int]) -> None:
        """Return True if these processes have ended and nothing of the run is left; no runtime watched them."""
        await eventually_async(lambda: not any(Path(f"/proc/{pid}").exists() for pid in programs))
        if self.kind == "docker":
            from tests.agent.runtimes.docker import of_journal

            await of_journal.until_gone(self.incarnation, ended=False)

    async def close(self) -> None:
        last, _ = await self.runtime()
        await last.adopt([])  # kills what a failed test has left
        for runtime in self._open:
            await runtime.close()
