"""Two agents on one bus, n1 and n2, with a scripted placer."""

import asyncio
from pathlib import Path
from typing import Any

from fairlead_agent.__main__ import build_agent
from fairlead_agent.agent import Agent
from fairlead_agent.settings import RuntimeName, Settings
from fairlead_bus.memory import MemoryHub
from fairlead_placer.shell.node_link import Relay
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.rank_rpc import GangAnswer, GangCall, decode_answer, encode_gang
from fairlead_schemas.wire.reports import ExitSeen
from tests.agent.closing import until_ended
from tests.agent.placer_script import PlacerScript, order
from tests.agent.runtimes.docker.registry import ON_LOOPBACK

GANG: dict[str, Any] = {"hosts": ("127.0.0.1", "127.0.0.2"), "nodes": ("n1", "n2"), "slots": (1, 1)}


class Pair:
    """Agents n1 and n2 with a scripted placer."""

    def __init__(self, data: Path, runtime: RuntimeName = "process") -> None:
        self.hub, self.data = MemoryHub(), data
        self.runtime: RuntimeName = runtime
        self.placer: PlacerScript
        self.agents: dict[str, tuple[Agent, asyncio.Task[int]]] = {}

    async def open(self) -> "Pair":
        bus = self.hub.connect()
        await bus.ensure()
        self.placer = await PlacerScript(bus).open()
        await Relay(bus).open()
        for node in ("n1", "n2"):
            await self.start(node)
        return self

    async def start(self, node: str) -> None:
        settings = Settings(
            node=node, runtime=self.runtime, devices="none", data=self.data / node, beat_s=0.1, registries=ON_LOOPBACK
        )
        agent = await build_agent(self.hub.connect(), settings)
        self.agents[node] = agent, asyncio.ensure_future(agent.run())
        await self.placer.joined(node)

    async def stop(self, node: str) -> None:
        agent, task = self.agents.pop(node)
        await agent.stop()
        await task

    async def said(self, speaker: str, node: str, call: GangCall) -> GangAnswer:
        """One agent's answer to what another's says (or to who has its credentials)."""
        answer = await self.hub.connect().request(subjects.gang(speaker, node), encode_gang(call), timeout_s=60)
        return decode_answer(answer)

    async def close(self) -> None:
        """What runs is ended first."""
        for node in list(self.agents):
            await self.placer.desire(node)
        await until_ended(self.agents.values())
        for node in list(self.agents):
            await self.stop(node)

    async def ended(self, count: int) -> dict[int, ExitSeen]:
        await self.placer.until(lambda: len(self.placer.of(ExitSeen)) == count)
        return {report.rank: report for report in self.placer.of(ExitSeen)}


def rank(number: int, *command: str, **words: Any) -> RunOrder:
    """The order of one of the two ranks of job 7."""
    return order("7", *command, rank=number, spec=words, **GANG)
