"""One node's agents on the in-memory bus, with real processes, against a scripted placer."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from fairlead_agent.__main__ import build_agent
from fairlead_agent.agent import Agent
from fairlead_agent.core.runs import RunKey
from fairlead_agent.settings import Settings, from_environment
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire.reports import ExitSeen
from tests.agent.closing import until_ended
from tests.agent.placer_script import PlacerScript
from tests.agent.runtime_watch import until_file


class AgentWorld:
    """One hub, one scripted placer, and agents that use one directory one after the other."""

    def __init__(self, data: Path) -> None:
        self.hub = MemoryHub()
        self.settings = Settings(node="n1", devices="simulated", data=data, beat_s=0.1, sample_s=0.05)
        self.placer: PlacerScript
        self.agents: list[tuple[Agent, asyncio.Task[int]]] = []

    async def open(self, **environment: str) -> "AgentWorld":
        """The node has joined, with these settings in its environment, named without FAIRLEAD_; with none, as it was made."""
        if environment:
            usual = {"NODE": "n1", "DATA": str(self.settings.data), "BEAT_S": "0.1"}
            named = {f"FAIRLEAD_{name}": text for name, text in (usual | environment).items()}
            self.settings = from_environment(named)
        bus = self.hub.connect()
        await bus.ensure()
        self.placer = await PlacerScript(bus).open()
        await self.start()
        await self.placer.joined("n1")
        return self

    async def start(self, **settings: Any) -> Agent:
        """The next agent of the directory."""
        agent = await build_agent(self.hub.connect(), msgspec.structs.replace(self.settings, **settings))
        self.agents.append((agent, asyncio.ensure_future(agent.run())))
        return agent

    async def stop(self) -> int:
        """The newest agent ends; what it has started runs on. Its exit code."""
        agent, task = self.agents.pop()
        await agent.stop()
        return await task

    async def close(self) -> None:
        """Everything ends."""
        if self.agents:
            self.placer.silent = False
            if "n1" in self.placer.incarnation:
                await self.placer.desire("n1")
            await until_ended(self.agents)
        while self.agents:
            await self.stop()

    async def ended(self, job: str) -> ExitSeen:
        """The report of its end."""
        await self.placer.until(lambda: bool(self.placer.of(ExitSeen, job)))
        (report,) = self.placer.of(ExitSeen, job)
        return report

    async def says(self, job: str, words: bytes) -> None:
        """Wait until a run's output begins with these."""
        await until_file(self.agents[-1][0].runtime.output(RunKey(job, 1, 0))[0], words)
